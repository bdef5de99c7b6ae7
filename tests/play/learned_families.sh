# learned_families.sh - runs AutoRound by block on the emulated GPU, for families whose layers have
# routers, experts, a recurrent state, convolutions, gates or sinks, and for a model with online
# rotations. The codes are near the host's. The memory is predicted. For one model with experts and
# one with a recurrent state, the output bytes do not depend on the order of the GPU's threads,
# batches, tiers or budgets, and `oneshot plan` plans the job for a GPU that the machine lacks.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
fail() { echo "$*"; exit 1; }
recipe() { # argument: steps
    printf '%s\n' "s_stage:" "  s_modifiers:" "    AutoRoundModifier:"
    printf '      %s\n' 'ignore: ["re:.*lm_head"]' "unit: block" "iters: $1" "lr: 0.05" "batch_size: 3" \
        "config_groups: {g: {targets: [Linear], weights: {num_bits: 4, strategy: group, group_size: 8}}}"
}
recipe 2 >two.yaml
families="deepseek_v3 qwen3_next granite_hybrid_moe gpt_oss llama4_two gemma4_moe"
[ -z "$SANITIZED" ] || families=deepseek_v3 # builds with sanitizers are slow
for case in $families; do
    # in BF16, other roundings change the experts of some tokens of Gemma 4
    dtype=bfloat16
    [ $case != gemma4_moe ] || dtype=float32
    "$OSH_TOOLS/tiny_model" $case $case $dtype
    job=(--model $case --dataset $case/calibration.jsonl --num-calibration-samples 2 --max-seq-length 16 --recipe two.yaml
         --threads 1 --progress none)
    "$PLAY" "${job[@]}" --output gpu.$case --device cuda >/dev/null 2>err || fail "$case: $(cat err)"
    "$PLAY" "${job[@]}" --output host.$case --device cpu >/dev/null 2>err || fail "$case on the host: $(cat err)"
    python3 "$OSH_SOURCE_DIR/tests/tools/equal_codes.py" gpu.$case host.$case 0.95
    "$ONESHOT" verify gpu.$case --model $case >verify.txt || { cat verify.txt; fail "$case: verify"; }
done
[ -z "$SANITIZED" ] || exit 0
# online rotations (R3 and R4)
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
printf '%s\n' "s_stage:" "  s_modifiers:" "    SpinQuantModifier: {rotations: [R3, R4]}" \
    '    AutoRoundModifier: {scheme: W4A16, unit: block, iters: 1, lr: 0.05, batch_size: 2, ignore: [lm_head, "re:.*layers.[123]"]}' >spin.yaml
job=(--model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 2 --max-seq-length 16 --recipe spin.yaml
     --threads 1 --progress none)
for where in cuda cpu; do
    "$PLAY" "${job[@]}" --output spin.$where --device $where >/dev/null 2>err || fail "spin, $where: $(cat err)"
done
python3 "$OSH_SOURCE_DIR/tests/tools/equal_codes.py" spin.cuda spin.cpu 0.98
# ---- bytes ----
"$OSH_TOOLS/make_model" experts hidden=32 intermediate=32 heads=2 kv=1 head_dim=16 layers=2 vocab=128 samples=4 tokens=30 \
    experts=4 topk=2
run() { # arguments: flags; prints the checksum
    last_wins "$PLAY_BATCHES" "${job[@]}" --progress none --output out "$@" >/dev/null 2>err || fail "failed: $model $*: $(cat err)"
    cat out/*.safetensors | sha256sum
    rm -rf out out.oneshot-partial
}
for model in experts qwen3_next; do
    job=(--model $model --dataset $model/calibration.jsonl --recipe two.yaml --threads 1)
    [ $model = experts ] || job+=(--num-calibration-samples 2 --max-seq-length 16)
    base=$(run)
    [ "$(OSH_PLAY="protect=0 order=5 lazy=1" run --threads 2 --batch-size 3 --mem-opt-level 2)" = "$base" ] ||
        fail "$model: the order of the GPU's threads, threads or the tier change the bytes"
    least=$("$PLAY_BATCHES" plan "${job[@]}" --json | sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
    [ "$(OSH_PLAY="protect=0 memory=$least" run --device-memory "$least")" = "$base" ] ||
        fail "$model: $least bytes: other bytes"
    "$ONESHOT" plan "${job[@]}" --device-model h200 --json >plan.json || fail "$model: no plan for a GPU"
    grep -q '"device_model"' plan.json || fail "$model: the plan is not for a GPU"
done
