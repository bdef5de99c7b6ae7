# eval.sh - runs oneshot eval on the emulated GPU, in several batches. Its numbers are those of a
# run on the host, except for rounding. Tests a dense model, rounded weights and inputs, and
# --reference. The NLL of each token has the same bits for every choice of the budget, --batch-size,
# the tier of the rows, the prefetch of weights and the order of the GPU's work. The budget that the
# error message asks for is enough, also on a GPU that has no more memory.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=(--dataset "$model/data/evaluation.txt" --max-seq-length 32 --max-windows 4 --threads 1 --progress none --json)
fail() { echo "$*"; exit 1; }
eval_on() { # arguments: device, flags
    where=$1
    shift
    last_wins "$PLAY_BATCHES" eval "${data[@]}" --device "$where" "$@" || fail "failed: $where $*"
}
figure() { sed "s/.*\"$1\": \([0-9.e-]*\).*/\1/" "$2"; }
near() { # arguments: number to compare, relative tolerance, files
    awk -v a="$(figure "$1" "$3")" -v b="$(figure "$1" "$4")" -v s="$2" 'BEGIN { exit !(a < b * (1 + s) && a > b * (1 - s)) }' ||
        fail "$1: $(cat "$3") on the GPU, $(cat "$4") on the host"
}
for scheme in W4A16 FP8_DYNAMIC; do
    "$ONESHOT" --model "$model" --scheme $scheme --ignore lm_head --output $scheme --device cpu --threads 1 \
        --progress none >/dev/null
done
ln -s "$model" dense
jobs=(dense FP8_DYNAMIC "W4A16 --reference dense")
if [ "$SANITIZED" ]; then jobs=(); fi # builds with sanitizers are slow and give the same numbers
for job in "${jobs[@]}"; do
    name=${job// /.}
    # with only 4 short windows the noise is larger than the tolerance
    eval_on cuda --model $job --max-windows 8 --max-seq-length 48 --per-token gpu.npy >"gpu.$name"
    eval_on cpu --model $job --max-windows 8 --max-seq-length 48 --per-token host.npy >"host.$name"
    near perplexity 0.002 "gpu.$name" "host.$name"
    cmp -s gpu.npy host.npy && fail "$job: the GPU has the host's very bytes: did it run?"
done
if [ -z "$SANITIZED" ]; then
    near kl_divergence 0.02 "gpu.W4A16.--reference.dense" "host.W4A16.--reference.dense"
    near top1_agreement 0.02 "gpu.W4A16.--reference.dense" "host.W4A16.--reference.dense"
fi

job=(--model W4A16 --reference dense)
eval_on auto "${job[@]}" --per-token want.npy >want
eval_on cuda --model dense --save-logits saved >/dev/null
eval_on cuda --model W4A16 --reference saved --per-token got.npy >got
cmp got want && cmp got.npy want.npy || fail "saved logits: the figures differ"
code=0
"$PLAY_BATCHES" eval "${data[@]}" --device cuda "${job[@]}" --device-memory 33MiB 2>err || code=$?
least=$(sed -n 's/.*want at least --device-memory \([0-9]*\)MiB$/\1/p' err)
[ $code = 2 ] && [ -n "$least" ] || fail "exit $code: $(cat err)"
for how in "protect=1 order=1" "order=5 lazy=1" "memory=$((least << 20))"; do
    flags=()
    [ "$how" != "memory=$((least << 20))" ] || flags=(--device-memory "${least}MiB")
    OSH_PLAY="protect=0 $how" eval_on cuda "${job[@]}" --per-token got.npy "${flags[@]}" >got
    cmp got want && cmp got.npy want.npy || fail "$how: the figures differ"
done
on="values between subgraphs are on the GPU" in="values between subgraphs are in host memory" ahead="the next subgraph's weights are read ahead"
close=$(((least - 1) << 20)) # after the loop: a budget without room for the rows, 224 KiB
until "$PLAY_BATCHES" eval "${data[@]}" --device cuda "${job[@]}" --device-memory $((close += 64 << 10)) >/dev/null 2>err; do
    [ $close -lt $((least << 20)) ] || fail "$least MiB: $(cat err)"
done
if "$PLAY_BATCHES" eval "${data[@]}" "${job[@]}" --host-memory 20MB 2>err; then fail "a budget of 20 MB is not refused"; fi
host=$(sed -n 's/.*too small for this GPU: want at least --host-memory \([0-9]*\)MiB$/\1/p' err)
[ -n "$host" ] || fail "$(cat err)"
while IFS=: read -r flags says; do
    eval_on cuda "${job[@]}" --per-token got.npy --log-level debug $flags >got 2>log
    cmp got want && cmp got.npy want.npy || fail "$flags: the figures differ"
    grep -qF "$says" log || fail "$flags: without '$says': $(cat log)"
done <<WAYS
--batch-size 3:$on; $ahead
--device-memory $close:$in; ${ahead/read/not read}
--device-memory $((close + (384 << 10))):$on; ${ahead/read/not read}
--device-memory 1GB --host-memory 200MB:$on; $ahead
--host-memory $((host + 1))MiB:$on; ${ahead/read/not read}
WAYS
refused() { # arguments: exit code, part of the message, knobs, flags
    code=$1 want=$2 knobs=$3 got=0
    shift 3
    OSH_PLAY="protect=0 $knobs" last_wins "$PLAY_BATCHES" eval "${data[@]}" "$@" >/dev/null 2>err || got=$?
    [ "$got" = "$code" ] && grep -q -- "$want" err || fail "exit $got (wanted $code) without '$want': $(cat err)"
}
refused 2 "want at least --device-memory ${least}MiB" "" "${job[@]}" --device-memory $((least - 1))MiB
refused 2 'the GPU has [0-9]*MiB for the run: want at least' "memory=$((540 << 20))" "${job[@]}"
refused 1 'there is no GPU cuda:3' "" "${job[@]}" --device cuda:3
refused 2 'want cpu, cuda or cuda:N' "" "${job[@]}" --device gpu
refused 1 'has lost the GPU' "fail=launch:40:719" "${job[@]}"
refused 1 'cudaMalloc\|bytes free' "fail=cudaMalloc:1:2" "${job[@]}"
