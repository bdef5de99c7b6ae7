# device_model.sh - makes a plan for a GPU that is not present, with a program that may have no
# CUDA. The plan counts the same memory as a plan on the emulated GPU. It chooses the tier and the
# batches for that memory. It computes its times from the table of GPUs (src/budget/gpus.c).
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
job=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 10 --max-seq-length 48 --threads 1)
fail() { echo "$*"; exit 1; }
field() { sed -n 's/^ *"'"$2"'": "\{0,1\}\([^",]*\)"\{0,1\},*$/\1/p' "$1" | head -1; } # arguments:
                                                                                       # file, key
for budget in 40MiB 60MiB 2GB; do
    "$ONESHOT" plan "${job[@]}" --device-model rtx3060 --device-memory $budget --json >sheet.json
    OSH_PLAY=protect=0 "$PLAY" plan "${job[@]}" --device cuda --device-memory $budget --json >emulated.json
    for key in device device_bytes activation_tier phases values_ahead; do
        [ "$(field sheet.json $key)" = "$(field emulated.json $key)" ] || fail "$budget: $key is $(field sheet.json $key), on the emulated GPU $(field emulated.json $key)"
    done
done
for name in b200 h200 h100 a100 l40s rtx5090 rtx4090 rtx3090 rtx3060 rtx4060; do
    "$ONESHOT" plan "${job[@]}" --device-model $name --json >$name.json
    [ "$(field $name.json batches)" = 8 ] && [ "$(field $name.json activation_tier)" = device ] || fail "$name: $(cat $name.json)"
done
less() { awk -v a="$(field "$1.json" "$3")" -v b="$(field "$2.json" "$3")" 'BEGIN { exit !(a > 0 && a < b) }' || fail "$3: $1 is not faster than $2"; }
[ "$(field h200.json solve)" = "$(field h100.json solve)" ] || fail "a solve does not depend on the memory's rate"
less b200 h200 solve
less h200 h100 observe # faster memory
less h100 a100 solve
less a100 rtx4090 propagate
less rtx5090 rtx4090 observe
less rtx4090 rtx3060 observe
less rtx4060 rtx3060 solve
[ "$(field l40s.json copies)" = "$(field rtx3090.json copies)" ] || fail "two GPUs with the same bus have different times of copies"
"$ONESHOT" plan --verbose "${job[@]}" --device-model h200 >text
grep -q '^planned for NVIDIA H200 SXM, with 141.4 of its 150.8 GB$' text && grep -q 'estimate from the data sheet of the GPU, without the disk' text || fail "$(cat text)"
cat >pruned.yaml <<'Y'
s_modifiers:
  WandaPruningModifier: {sparsity: 0.5, targets: ['re:.*layers.*']}
  GPTQModifier: {scheme: W4A16, targets: [Linear], ignore: [lm_head]}
Y
pruned=(--model "$model" --recipe pruned.yaml "${job[@]:8}" --device-model h200)
"$ONESHOT" plan --verbose "${pruned[@]}" >text
grep -q '^not in the estimate: the host solves pruned weights with GPTQ ([0-9.e-]* TFLOP)$' text || fail "$(cat text)"
"$ONESHOT" plan "${pruned[@]}" --json >pruned.json
[ "$(field pruned.json solve)" = 0 ] || fail "the GPU solves pruned weights: $(field pruned.json solve)"
# A program without CUDA, too, knows which ops a GPU can learn by block.
echo '{s_stage: {s_modifiers: {AutoRoundModifier: {scheme: W4A16, targets: [Linear], ignore: [lm_head], iters: 2}}}}' >learned.yaml
"$ONESHOT" plan --model "$model" --recipe learned.yaml "${job[@]:8}" --device-model h200 --json >learned.json
awk -v a="$(field learned.json solve)" 'BEGIN { exit !(a > 0) }' || fail "the GPU does not learn: $(field learned.json solve)"
refused() { # arguments: part of the message, flags
    want=$1
    shift
    "$ONESHOT" "$@" 2>err >/dev/null && fail "$* is not refused"
    grep -q -- "$want" err || fail "without '$want': $(cat err)"
}
refused 'device_model: want one of b200|h200|h100' plan "${job[@]}" --device-model h20
refused 'exclude each other' plan "${job[@]}" --device-model h200 --device cpu
refused 'want at least' plan "${job[@]}" --device-model rtx3060 --device-memory 32MiB
refused 'a run uses the GPU of the machine' "${job[@]}" --device-model h200 --output o
[ ! -e o ] || fail "a refused run left something"
