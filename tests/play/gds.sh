# gds.sh - tests a GPU that reads weights from their files with an emulated cuFile. The numbers of
# an evaluation have the same bytes as without cuFile. This also holds if the library, its driver or
# the file system refuses a file, and after any failed read. The log says how the data are read.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
emulated=$LD_LIBRARY_PATH
data=(--dataset "$model/data/evaluation.txt" --max-seq-length 32 --max-windows 4 --threads 1 --progress none --json)
fail() { echo "$*"; exit 1; }
eval_with() { # arguments: options of the emulated GPU, flags; numbers to got and got.npy, messages
              # to log
    knobs=$1
    shift
    OSH_PLAY="protect=0 $knobs" "$PLAY_BATCHES" eval --model "$model" "${data[@]}" --device cuda --per-token got.npy \
        "$@" >got 2>log || fail "failed: $knobs $*: $(cat log)"
}
eval_with "" --use-gds false --log-level debug
! grep -qi 'cufile\|page-locked' log || fail "--use-gds false: $(cat log)"
mv got want && mv got.npy want.npy
same() { # arguments: part of the log, options of the emulated GPU, flags
    words=$1
    shift
    eval_with "$@"
    cmp got want && cmp got.npy want.npy || fail "$*: the figures differ"
    [ "$(grep -c -- "$words" log)" = 1 ] || fail "$*: not once '$words': $(cat log)"
}
all='cuFile read [0-9]* bytes of weights'
# Tests eval without libcufile.so.0. Also tests eval without the kernel module nvidia-fs, which
# `--use-gds auto` requires.
same 'warning: .*page-locked host memory, not by cuFile: libcufile.so.0: cannot open' "" --use-gds true
same 'page-locked host memory, not by cuFile: the kernel has no module nvidia-fs' "" --log-level info
eval_with ""
[ ! -s log ] || fail "--use-gds auto prints messages: $(cat log)"
export LD_LIBRARY_PATH=$emulated:$emulated/gds
same 'warning: .*not by cuFile: cuFileDriverOpen: the module nvidia-fs is not set up (cuFile 5033)' \
    "fail=cuFileDriverOpen:1:5033" --use-gds true
same 'warning: .*not by cuFile: .* has no 16 MiB for it' "" --use-gds true --device-memory 40MiB
same "warning: $model/model.safetensors: cuFileHandleRegister: the file system does not support it (cuFile 5008): it is read" \
    "fail=cuFileHandleRegister:1:5008" --use-gds true --log-level debug
grep -q 'cuFile read 0 bytes of weights' log || fail "cuFile reads weights of a file that it refuses: $(cat log)"
for knobs in "" "order=3 lazy=1" "fail=cuFileBufRegister:1:5036"; do
    same "$all" "$knobs" --use-gds true --log-level debug
    bytes=$(sed -n 's/^debug: cuFile read \([0-9]*\) bytes.*/\1/p' log)
    [ "$bytes" -gt 4000000 ] || fail "$knobs: cuFile read $bytes bytes"
done
if [ -z "$SANITIZED" ]; then # every read uses the same code
    for what in "cuFileRead:9:5010" "cuFileRead.short:2:8192"; do
        words='cuFileRead: .*: it is read through page-locked host memory'
        [[ $what != *:8192 ]] || words=$all
        same "$words" "fail=$what" --use-gds true --log-level debug
    done
fi
# The GPU reads a value that is not finite. The host then checks whether the file has it.
rm -rf large && cp -r "$model" large && chmod -R u+w large
header=$(od -An -tu8 -N8 large/model.safetensors | tr -d ' ')
at=$(head -c $((8 + header)) large/model.safetensors | tail -c "$header" |
     grep -o '"model.layers.1.mlp.up_proj.weight":{[^}]*}' | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
printf '\200\177' | dd of=large/model.safetensors bs=1 conv=notrunc status=none seek=$((8 + header + at + 10)) # infinite
for gds in true false; do
    if "$PLAY_BATCHES" eval "${data[@]}" --model large --device cuda --use-gds $gds >/dev/null 2>err.$gds; then
        fail "an infinite weight is accepted with --use-gds $gds"
    fi
    grep -q 'tensor model.layers.1.mlp.up_proj.weight: element 5 is not finite' err.$gds || fail "$gds: $(cat err.$gds)"
done
# A read returns wrong bytes: elements that are not finite.
if OSH_PLAY="protect=0 fail=cuFileRead.wrong:1:-1" "$PLAY_BATCHES" eval "${data[@]}" --model "$model" --device cuda \
    --use-gds true >/dev/null 2>err; then fail "wrong weights are accepted"; fi
grep -q 'is finite in its file, but not after the GPU read it' err || fail "$(cat err)"
last_wins "$ONESHOT" eval --model "$model" "${data[@]}" --device cpu --max-windows 1 --use-gds true >/dev/null 2>err
grep -q 'warning: --use-gds true: nothing runs on a GPU' err || fail "$(cat err)"
"$ONESHOT" plan --model "$model" --scheme W8A8 --device cpu --pin-memory true >/dev/null 2>err
grep -q 'warning: --pin-memory true: .*nothing runs on a GPU' err || fail "$(cat err)"

# Runs jobs whose values are on the disk. For any kind of read and any failure, the output must have
# the bytes of a run with values on the GPU.
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=5 tokens=40
job=(--model small --scheme W4A16 --method gptq --ignore lm_head --dataset small/calibration.jsonl --threads 1
     --progress none --output out)
run() { # arguments: options of the emulated GPU, flags; prints the checksum; messages to log
    knobs=$1
    shift
    OSH_PLAY="protect=0 $knobs" last_wins "$PLAY_BATCHES" "${job[@]}" "$@" >/dev/null 2>log || fail "failed: $knobs $*: $(cat log)"
    sha256sum out/model.safetensors | cut -d' ' -f1
    cp out/oneshot-report.json .
    rm -rf out
}
read_by_gpu() { sed -n '/"device": {/,/^  }/s/^ *"read_by_device_bytes": \([0-9]*\),*$/\1/p' oneshot-report.json; }
want=$(run "" --mem-opt-level 0)
[ "$(run "" --mem-opt-level 2 --use-gds false)" = "$want" ] || fail "values on the disk: the output has other bytes"
[ "$(read_by_gpu)" = 0 ] || fail "--use-gds false: the GPU reads $(read_by_gpu) bytes"
[ "$(run "lazy=1" --mem-opt-level 2 --use-gds true)" = "$want" ] || fail "values that the GPU reads: the output has other bytes"
[ "$(read_by_gpu)" -gt 100000 ] || fail "the GPU reads $(read_by_gpu) bytes: $(cat log)"
# Threads prefetch values. The number of threads and the kind of memory must not change a byte.
disk=(--mem-opt-level 2 --use-gds false)
for flags in "--num-workers 5 --pin-memory true" "--num-workers 3 --pin-memory false"; do
    [ -z "$SANITIZED" ] || break
    [ "$(run "order=3 lazy=1" "${disk[@]}" $flags)" = "$want" ] || fail "$flags: the output has other bytes"
    ! grep -q '"pageable_copies": [1-9]' oneshot-report.json && [ ! -s log ] || fail "$flags: $(cat log)"
done
[ "$(run "" --mem-opt-level 1 --pin-memory false)" = "$want" ] || fail "values in memory that is not page-locked: the output has other bytes"
OSH_PLAY=protect=0 last_wins "$PLAY_BATCHES" plan "${job[@]}" "${disk[@]}" --num-workers 5 --json >plan.json
host=$(sed -n '/"memory"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1)
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json)
[ "$host" -ge "$least" ] || host=$least
host=$((host + (256 << 10))) # the program's base size differs by up to 256 KiB between processes
[ -n "$SANITIZED" ] || [ "$(run "lazy=1" "${disk[@]}" --num-workers 5 --host-memory "$host")" = "$want" ] ||
    fail "--host-memory $host: the output has other bytes" # a sanitizer's own memory makes the base unknown
OSH_PLAY=protect=0 last_wins "$PLAY_BATCHES" plan "${job[@]}" --mem-opt-level 2 --json >plan.json
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
[ "$(run "memory=$least" --mem-opt-level 2 --use-gds true --device-memory "$least")" = "$want" ] || fail "the smallest budget: the output has other bytes"
grep -q 'not by cuFile: .* has no 16 MiB for it' log && [ "$(read_by_gpu)" = 0 ] || fail "a budget without room for cuFile does not disable cuFile: $(cat log)"
room=$((2 * least + (32 << 20))) # the plan uses more memory if there is more
[ "$(run "memory=$room" --mem-opt-level 2 --use-gds true --device-memory "$room")" = "$want" ] || fail "a budget with room: the output has other bytes"
[ "$(read_by_gpu)" -gt 100000 ] || fail "a budget with room for cuFile disables cuFile: $(cat log)"
if [ -z "$SANITIZED" ]; then
    for what in cuFileRead.wrong:7:1 cuFileHandleRegister:2:5008; do
        [ "$(run "fail=$what" --mem-opt-level 2 --use-gds true)" = "$want" ] || fail "$what: the output has other bytes"
        grep -q '"files_through_host": [1-9]' oneshot-report.json || fail "$what: the report names no fallback"
        [ "$(grep -c 'it is read through page-locked host memory' log)" = 1 ] || fail "$what: $(cat log)"
    done
    [ "$(run "" --mem-opt-level 2 --use-gds true --scratch-compression zstd)" = "$want" ] || fail "zstd: the output has other bytes"
    grep -q 'warning: --use-gds true: .* zstd compresses them' log || fail "zstd: $(cat log)"
    # A run that is killed with --use-gds true continues with --use-gds false.
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$PLAY_BATCHES" "${job[@]}" --mem-opt-level 2 --use-gds true >/dev/null 2>&1
    rm -rf out
    if INJECT_AT=$(($(cat calls) / 2)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
        "$PLAY_BATCHES" "${job[@]}" --mem-opt-level 2 --use-gds true >/dev/null 2>&1; then fail "the run was not killed"; fi
    [ "$(run "" --mem-opt-level 2 --use-gds false --log-level info)" = "$want" ] || fail "killed: the output has other bytes"
    grep -q 'are read from the disk' log || fail "the continued run does not read the stored values: $(cat log)"
fi
