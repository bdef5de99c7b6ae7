# check_gpu.sh - runs scripts/check-gpu.sh on the emulated GPU, with a false nvidia-smi that lists a
# GPU. Runs all steps in order, with widths divided by 64, and checks the findings of each step and
# the table. After a failed step the next step still runs, except after the steps `env` and `mma`.
# The tests of kernels run elsewhere, so they are replaced here.
set -euo pipefail
export OSH_PLAY="protect=0 memory=8589934592"
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
ln -s "$OSH_TOOLS/inject.so" "$OSH_TOOLS/make_model" "$OSH_TOOLS/tiny_model" build/tests
ln -s "$OSH_TOOLS/gpu_ops_play" build/tests/gpu_ops
stub() { printf '#!/bin/sh\n%s\n' "$2" >"build/tests/$1" && chmod +x "build/tests/$1"; }
own=0 kernels=0
for f in "$OSH_SOURCE_DIR"/tests/kernels/test_*.cu; do
    stub "cuda_$(basename "$f" .cu)" 'echo "triangle of 64: cuSOLVER wants 1 bytes"'
    own=$((own + 1))
done
for f in $(grep -l 'on_gpu\.h' "$OSH_SOURCE_DIR"/tests/kernels/test_*.c "$OSH_SOURCE_DIR"/tests/golden/*/test_*.c); do
    stub "$(basename "$f" .c)" 'echo "$OSH_TEST_GPU" >gpu; sleep 0.2'
    kernels=$((kernels + 1))
done
check() { # arguments: steps, flags; prints the table
    steps=$1
    shift
    ONESHOT=$PROGRAM bash "$OSH_SOURCE_DIR/scripts/check-gpu.sh" --out out --build-dir build ${steps:+--steps "$steps"} \
        --scale 64 "$@" >table || return 1
}
finds() { grep -Eq -- "$1" out/summary.txt || fail "without '$1': $(cat out/summary.txt)"; }
verdicts() { awk '/^[a-z]/ { print $1, $2 }' out/summary.txt | paste -sd, -; }

# Runs all steps except `disk` and `sanitizer`, which the last part of this test runs.
order="env mma kernels wide gpu_ops llama qwen times whole model budgets resume jobs linear"
if [ "$SANITIZED" ]; then order="env mma wide"; fi # slow under sanitizers, and it runs the same code
PROGRAM=$PLAY_BATCHES check "$order" --samples 2 --tokens 16 --results home.tgz -- --threads 1 || fail "$(cat table)"
cat table
[ "$(verdicts)" = "step verdict,$(echo $order | sed 's/ / ok,/g') ok" ] || fail "the order is $(verdicts)"
finds '^env +ok .* a GPU, 1, 2 MiB, 9.0$'
finds "^mma +ok .* $own of $own tests pass$"
finds '^ +triangle of 64: cuSOLVER wants 1 bytes$'
if command -v python3 >/dev/null; then
    finds '^wide +ok .* self_attn.q_proj: [0-9.]+ % of the codes are equal, objective [0-9.]+ times the host.s$'
    finds "fallbacks of the GPU: none; values: .*'rest_in': 'device', 'to_device_bytes': 0"
fi
cmp out/summary.txt <(grep -v '^    |' table)
[ "$(stat -c %s home.tgz)" -lt 200000 ] || fail "the results have $(stat -c %s home.tgz) bytes"
tar -tzf home.tgz >home
if grep -E 'safetensors|\.log|work' home; then fail "the results have files that they must not have"; fi
if [ "$SANITIZED" ]; then exit 0; fi

finds "^kernels +ok .* $kernels of $kernels tests pass$"
[ "$(cat out/work/test_kernels.dir/gpu)" = 1 ] || fail "OSH_TEST_GPU is not set"
finds '^gpu_ops +ok .* ops; lowest shares: '
finds '^ +triangle of [0-9]+: potrf wants [0-9]+ bytes; a run has [0-9]+$'
finds '^ +page-locking of [0-9]+ blocks of [0-9.]+ MB: touched in '
for what in mixture routes count_routes moe_gate rotate 'gptq_solve of 2'; do
    grep -Eq "^$what +[0-9x ]+ [0-9.]+ ms" out/work/gpu_ops.txt || fail "gpu_ops has no $what: $(cat out/work/gpu_ops.txt)"
done
if command -v python3 >/dev/null; then
    finds '^ +LlamaDecoderLayer: seconds of 1 and 2 layers, of a layer, of 32 layers$'
    finds '^ +Linear: seconds of 1 and 2 layers, of a layer, of 32 layers$'
    finds '^ +Qwen3MoeDecoderLayer: seconds of 1 and 2 layers, of a layer, of 48 layers$'
    finds '^ +LlamaDecoderLayer: seconds of 2 layers$'
    finds '^ +Linear: seconds of 2 layers$'
    finds '^ +phase .* of peak +planned$'
    [ "$(grep -Ec '^ +total +[0-9]' out/summary.txt)" = 5 ] || fail "not five totals: $(cat out/summary.txt)"
    finds '^model +ok .* codes that differ, layer by layer: [0-9.]+, [0-9.]+, [0-9.]+, [0-9.]+ %$'
fi
finds 'perplexity of the GPU.s output [0-9.]+ .of 3 windows: [0-9.]+, evaluated on the GPU: [0-9.]+., of the host.s [0-9.]+$'
finds '^budgets +ok .* the same bytes in 5 ways, from [0-9]+ bytes of the GPU on$'
finds '^times +ok .* left out, because gpu_times.so or libcupti.so is missing$'
finds '^jobs +ok .* 1 of 1 jobs pass$'
finds '^resume +ok .* killed after 3 fifths, and continued: the same bytes$'
for f in summary.txt gpu_ops.txt wide.txt llama.LlamaDecoderLayer.2.json llama.Linear.1.plan.json whole.Linear.2.json; do
    grep -qx "./$f" home || fail "$f is not carried home"
done

# Tests the step `disk`, failures, and steps that are left out. A step is left out if no time is
# left, or if the step `mma` failed.
rm out/summary.txt
PROGRAM=$PLAY_BATCHES check disk -- --threads 1 || fail "$(cat table)"
finds '^disk +ok .* --use-gds false --num-workers 0: the bytes of values on the GPU, [0-9]+ ms, 0 bytes by cuFile$'
finds '^ +--use-gds true: the bytes of values on the GPU, '
finds '^ +disk to pinned +[0-9.]+ GB/s .*one reader'
stub cuda_test_mma 'echo "STRICT a: not true, but nearly. b"; exit 77'
if PROGRAM=$PWD/none check "sanitizer model wide mma env"; then fail "the script finds no fault: $(cat table)"; fi
finds '^sanitizer +FAILED .* memcheck test_routed: exit 0, 0 errors$'
finds '^ +racecheck test_gptq: exit 9, 1 hazard displayed$'
finds '^model +FAILED .* there is no .*/none$'
finds '^mma +FAILED .* cuda_test_mma: 1 STRICT a: not true, but nearly. b$'
finds '^ +cuda_test_mma: the test finds no GPU$'
finds '^env +left out +0 +6 +mma failed$'
PROGRAM=$PLAY check "env model" --time-limit 12 || fail "the script fails if no time is left for steps"
finds '^env +left out +0 +6 +no time is left$'
