# check_gpu.sh - scripts/check-gpu.sh with an nvidia-smi that lists a GPU and the program on the
# emulated GPU: checks the findings of each step, and the table. After a failed step the next step
# still runs.
set -euo pipefail
export OSH_PLAY=protect=0
fail() { echo "$*"; cat out/*.log; exit 1; }
mkdir -p bin build/tests
cat >bin/nvidia-smi <<'SH'
#!/bin/sh
case $1 in -L) echo "GPU 0: a GPU" ;; --query-gpu=compute_cap) echo 9.0 ;; --query-gpu=*) echo "a GPU, 1, 2 MiB, 9.0" ;; esac
SH
cat >bin/compute-sanitizer <<'SH'
#!/bin/sh
case $* in *racecheck*test_gptq) echo "========= RACECHECK SUMMARY: 1 hazard displayed"; exit 9 ;; esac
echo "========= ERROR SUMMARY: 0 errors"
SH
chmod +x bin/*
export PATH=$PWD/bin:$PATH
ln -s "$OSH_TOOLS/inject.so" "$OSH_TOOLS/make_model" build/tests
ln -s "$OSH_TOOLS/card_ops_play" build/tests/card_ops
own=0
for f in "$OSH_SOURCE_DIR"/tests/kernels/test_*.cu; do
    ln -s "$OSH_TOOLS/$(basename "$f" .cu)" "build/tests/cuda_$(basename "$f" .cu)"
    own=$((own + 1))
done
check() { # arguments: steps, flags; prints the table
    steps=$1
    shift
    ONESHOT=$PROGRAM bash "$OSH_SOURCE_DIR/scripts/check-gpu.sh" --out out --build-dir build --steps "$steps" "$@" >table || return 1
}
finds() { grep -Eq -- "$1" out/summary.txt || fail "without '$1': $(cat out/summary.txt)"; }

PROGRAM=$PLAY check "env build mma model" --samples 8 -- --threads 1 || fail "$(cat table)"
finds '^env +ok .* a GPU, 1, 2 MiB, 9.0$'
finds '^build +ok .* given: '
finds "^mma +ok .* $own of $own tests pass$"
if command -v python3 >/dev/null; then finds '^model +ok .* codes that differ, layer by layer: [0-9.]+, [0-9.]+, [0-9.]+, [0-9.]+ %$'; fi
finds 'perplexity of the GPU.s output [0-9.]+ .evaluated on the GPU: [0-9.]+., of the host.s [0-9.]+$'
cmp out/summary.txt <(grep -v '^    |' table)

# Times each op alone, and compares one layer with the host, with small widths. The results are
# small and have no work files.
PROGRAM=$PLAY check "card_ops wide" --scale 32 --results home.tgz -- --threads 1 || fail "$(cat table)"
finds '^card_ops +ok .* ops; lowest shares: '
finds '^ +triangle of [0-9]+: potrf wants [0-9]+ bytes, trtri [0-9]+ and [0-9]+ of the host; a run has [0-9]+$'
finds '^ +page-locking of 64 blocks of [0-9.]+ MB: touched in '
if command -v python3 >/dev/null; then
    finds '^wide +ok .* self_attn.q_proj: [0-9.]+ % of the codes are equal, objective [0-9.]+ times the host.s$'
    finds "fallbacks of the GPU: none; values: .*'rest_in': 'device', 'to_device_bytes': 0"
fi
[ "$(stat -c %s home.tgz)" -lt 200000 ] || fail "the results have $(stat -c %s home.tgz) bytes"
tar -tzf home.tgz >home
for f in summary.txt card_ops.txt wide.txt; do grep -qx "./$f" home || fail "$f is not carried home"; done
if grep -E 'safetensors|\.log|work' home; then fail "that is not to be carried home"; fi

if [ "$SANITIZED" ]; then exit 0; fi # slow with sanitizers, and the other steps run the same code
export OSH_PLAY="protect=0 memory=8589934592"
PROGRAM=$PLAY_BATCHES check "budgets disk resume" --samples 3 --tokens 12 -- --threads 1 || fail "$(cat table)"
finds '^budgets +ok .* the same bytes in 6 ways, from [0-9]+ bytes of the GPU on$'
finds '^disk +ok .* --use-gds false --num-workers 0: the bytes of values on the GPU, [0-9]+ ms, 0 bytes by cuFile$'
finds '^ +--use-gds true: the bytes of values on the GPU, '
finds '^ +disk to pinned +[0-9.]+ GB/s .*one reader'
finds '^resume +ok .* killed three times, gone on with to the same bytes$'

rm build/tests/cuda_test_mma
printf '#!/bin/sh\necho "STRICT a: not true, but nearly. b"\nexit 77\n' >build/tests/cuda_test_mma && chmod +x build/tests/cuda_test_mma
if PROGRAM=$PWD/none check "mma sanitizer model env"; then fail "all is well: $(cat table)"; fi
finds '^mma +FAILED .* cuda_test_mma: 1 STRICT a: not true, but nearly. b$'
finds '^ +cuda_test_mma: says that there is no GPU$'
finds '^sanitizer +FAILED .* memcheck test_attention: exit 0, 0 errors$'
finds '^ +racecheck test_gptq: exit 9, 1 hazard displayed$'
finds '^model +FAILED .* there is no .*/none$'
finds '^env +ok '
PROGRAM=$PLAY check "env model" --time-limit 12 || fail "steps without time fail"
finds '^env +left out +0 +no time is left$'
