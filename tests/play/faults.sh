# faults.sh - tests a lost GPU, missing memory, a killed run, and a weight that is not finite. Tests
# that the message names the failure and its position, that finished work is kept, and that the same
# command then makes the files of an undisturbed run.
set -euo pipefail
export OSH_PLAY=protect=0 ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=3 tokens=32
job=(--scheme W4A16 --method gptq --ignore lm_head --dataset small/calibration.jsonl --threads 1 --progress none)
fail() { echo "$*"; exit 1; }
one() { "$PLAY" --model small "${job[@]}" --output out "$@"; }
one >/dev/null
want=$(sha256sum <out/model.safetensors)
rm -rf out
finish() { # arguments: label, flags
    what=$1
    shift
    one "$@" >/dev/null || fail "$what: the run does not continue"
    [ "$(sha256sum <out/model.safetensors)" = "$want" ] || fail "$what: the output has other bytes"
    rm -rf out
}
broken() { # arguments: fault, part of the message, flags
    fault=$1 words=$2 code=0
    shift 2
    OSH_PLAY="protect=0 fail=$fault" one "$@" >/dev/null 2>err || code=$?
    [ $code = 1 ] && grep -Eq -- "$words" err || fail "$fault: exit $code, wanted '$words': $(cat err)"
}
for at in 1 40 200; do # `at` counts launched kernels: at the start, in the first layer, later
    broken "launch:$at:719" 'has lost the GPU.*continues from the end of the journal'
    finish "lost at kernel $at"
done
broken cudaMemcpyAsync:30:719 'has lost the GPU'
finish "lost at a copy" --mem-opt-level 1
# the copy of another thread may report the lost GPU first
broken cublasLtMatmulAlgoGetHeuristic:1:719 'has lost the GPU'
finish "lost at the choice of an algorithm"
broken cudaMalloc:1:2 'bytes free.*wanted'
[ ! -e out.oneshot-partial ] || fail "a run on a GPU without memory leaves an unfinished output"
broken cudaHostAlloc:1:2 'cudaHostAlloc|page-locked'

# The run does not continue on another device, because the device would give other bytes.
broken launch:200:719 'has lost the GPU'
if one --device cpu 2>err; then fail "continued on another device"; fi
grep -q "begun by another run: .*'cuda'\|begun by another run: isa is\|begun by another run: " err || fail "$(cat err)"
finish "lost, refused on the host"

# The run is killed before several calls that change the disk.
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one >/dev/null
rm -rf out
parts=(2 3 4)
[ -z "$SANITIZED" ] || parts=(3)
for part in "${parts[@]}"; do
    tier=$((part % 2 * 2)) # 0 and 2 in turn
    if INJECT_AT=$(($(cat calls) * part / 6)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one --mem-opt-level $tier \
        >/dev/null 2>&1; then fail "the run was not killed"; fi
    finish "killed at $part/6, tier $tier" --mem-opt-level $tier
done

# Tests weights and values that are not finite.
begins() { # arguments: file, tensor; prints the offset of its first byte
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    at=$(head -c $((8 + header)) "$1" | tail -c "$header" | grep -o "\"$2\":{[^}]*}" |
         sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
    echo $((8 + header + at))
}
cp -r small large
norm=model.layers.1.input_layernorm.weight shard=$(grep -l $norm large/*.safetensors)
printf '\177\177' | dd of="$shard" bs=1 conv=notrunc status=none seek=$(($(begins "$shard" $norm) + 10)) # 3.4e38
where='model.layers.1.input_layernorm \(rms_norm\): the output is not finite in sample [0-9]+, token [0-9]+, channel 5'
for d in cuda cpu; do
    if "$PLAY" --model large "${job[@]}" --device $d --output out 2>err.$d; then fail "a value that is not finite is accepted"; fi
    grep -Eq "$where" err.$d || fail "the message lacks '$where': $(cat err.$d)"
    rm -rf out.oneshot-partial
done
# The host and the GPU name the same sample, token and channel.
[ "$(grep -Eo "$where" err.cuda)" = "$(grep -Eo "$where" err.cpu)" ] || fail "$(cat err.cuda err.cpu)"
