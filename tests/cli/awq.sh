# awq.sh - tests AWQ before rounding and before GPTQ, in one traversal. Tests that the output bytes
# do not depend on threads, batch, tier, budget or a kill. Tests that the predicted memory is
# enough, and that verify accepts the changed tensors. Tests that the KL divergence of the output
# from the source is smaller with AWQ than without AWQ. Mappings may be lists of pairs or of dicts.
# Impossible mappings must be refused. Mappings that LLM Compressor skips must be skipped.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
recipe() { # arguments: file, keys of AWQModifier, modifiers after it
    printf 's_stage:\n  s_modifiers:\n    AWQModifier: {%s}\n    %s\n' "$2" "$3" >"$1.yaml"
}
rtn="QuantizationModifier: {scheme: W4A16, ignore: [lm_head]}"
gptq="GPTQModifier: {scheme: W4A16, ignore: [lm_head]}"
recipe rtn "n_grid: 8" "$rtn"
recipe gptq "n_grid: 6, duo_scaling: both" "$gptq"
recipe given 'n_grid: 5, duo_scaling: false, mappings: [{smooth_layer: "re:.*v_proj$", balance_layers: ["re:.*o_proj$"]},
        {smooth_layer: "re:.*up_proj$", balance_layers: ["re:.*down_proj$"], activation_hook_target: null},
        [["re:.*gate_proj$", "re:.*up_proj$"], "re:.*post_attention_layernorm$"]]' "$rtn"
printf 's_stage:\n  s_modifiers:\n    %s\n' "$rtn" >plain.yaml
# Each head has its own keys and values, so that a mapping from v_proj to o_proj is possible. The
# model is so wide that the search needs a measurable amount of memory.
"$OSH_TOOLS/make_model" heads hidden=256 intermediate=640 heads=4 kv=4 layers=2 vocab=512 samples=6 tokens=64
declare -A from=([docs]="$model" [heads]=heads)
declare -A data=([docs]="$model/data/calibration.jsonl" [heads]=heads/calibration.jsonl)
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
one() { # arguments: recipe, model, output
    "$ONESHOT" --model "${from[$2]}" --dataset "${data[$2]}" --recipe "$1.yaml" --num-calibration-samples 6 \
        --max-seq-length 64 --progress none --output "$3" "${@:4}"
}
plan() { # arguments: recipe, model
    "$ONESHOT" plan --verbose --model "${from[$2]}" --dataset "${data[$2]}" --recipe "$1.yaml" --num-calibration-samples 6 \
        --max-seq-length 64 "${@:3}"
}
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"

plan rtn docs >plan.txt
grep -q 'AWQModifier: factors of 12 layers, such as model.layers.0.input_layernorm, for 24 weights' plan.txt ||
    { cat plan.txt; fail "docs: wrong mappings for heads that share values"; }
plan rtn heads >plan.txt
grep -q 'AWQModifier: factors of 8 layers, such as model.layers.0.input_layernorm, for 14 weights' plan.txt ||
    { cat plan.txt; fail "heads: wrong mappings for heads with their own values"; }
plan given docs >plan.txt 2>log # LLM Compressor skips the mapping from v_proj to o_proj
grep -q 'AWQModifier: factors of 8 layers, such as model.layers.0.mlp.up_proj, for 12 weights' plan.txt ||
    { cat plan.txt; fail "docs: the plan has other mappings than the recipe"; }

declare -A how=([layer]="" [Linear]="--sequential-targets Linear" [basic]="--pipeline basic")
runs=("rtn docs layer" "gptq heads Linear" "given heads basic")
[ -z "$SANITIZED" ] || runs=("gptq heads Linear")
for what in "${runs[@]}"; do
    read -r r m t <<<"$what"
    flags=(${how[$t]})
    one $r $m plain "${flags[@]}" --threads 1 >/dev/null
    sums plain >want
    "$ONESHOT" verify plain --model "${from[$m]}" >verify.txt || { cat verify.txt; fail "$what: verify fails"; }
    grep -q 'rule": "changed"' plain/oneshot-manifest.json || fail "$what: nothing is called changed"
    rm -rf "out.$r" && mv plain "out.$r"
    one $r $m out "${flags[@]}" --threads 3 --batch-size 4 >/dev/null
    same out want "$what, threads and batch"
    least=$(plan $r $m "${flags[@]}" --json | sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
    one $r $m out "${flags[@]}" --mem-opt-level 2 --threads 2 --device-memory $((least + 60000)) >/dev/null
    python3 - <<'P'
import json, os
m = json.load(open("out/oneshot-report.json"))["memory"]
assert os.environ["SANITIZED"] or m["peak_bytes"] <= m["predicted_peak_bytes"], m
P
    same out want "$what, the smallest device memory"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one $r $m out "${flags[@]}" --mem-opt-level 2 >log 2>&1
    same out want "$what, counted"
    for share in 50 85; do
        if INJECT_AT=$(($(cat calls) * share / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
            one $r $m out "${flags[@]}" --mem-opt-level 2 >log 2>&1; then fail "$what: the run was not killed"; fi
        one $r $m out "${flags[@]}" --mem-opt-level 2 >log 2>&1 || { cat log; fail "$what: the run does not continue"; }
        same out want "$what, killed at $share %"
    done
done
echo "same bytes"

# Compares AWQ before the rounding with the rounding alone. With AWQ, the KL divergence from the
# source must be smaller.
if [ -z "$SANITIZED" ]; then
    one plain docs out.plain >/dev/null
    head -c 20000 "$model/data/evaluation.txt" >evaluation.txt
    awq=$(kl out.rtn) rounded=$(kl out.plain)
    awk "BEGIN {exit !($awq < 0.98 * $rounded)}" || fail "KL divergence $awq, without AWQ $rounded"
fi

refused() { # arguments: keys, modifiers after AWQ, part of the message, flags
    recipe bad "$1" "$2"
    code=0
    plan bad docs "${@:4}" >msg 2>&1 || code=$?
    [ $code -gt 0 ] && grep -qF -- "$3" msg || { cat msg; fail "not refused: $1"; }
}
refused 'n_grid: 1' "$rtn" "n_grid"
refused 'n_grid: 3, duo_scaling: both' "$rtn" "n_grid: 3 with duo_scaling both: want at least 4"
refused 'duo_scaling: some' "$rtn" "duo_scaling: want true, false or both"
refused 'scheme: W4A16' "$rtn" "scheme"
refused 'mappings: [{smooth_layer: a, balanced: [b]}]' "$rtn" "unknown key 'balanced'"
refused 'mappings: [{smooth_layer: a}]' "$rtn" "mappings: want a list of pairs"
refused '' "QuantizationModifier: {ignore: [lm_head], config_groups: {g: {targets: [Linear], weights: {num_bits: 8, strategy: tensor}}}}" \
    "one scale for the whole weight"
refused 'mappings: [[["re:.*q_proj"], "re:.*input_layernorm"]]' "$rtn" "also reads its output"
refused '' "$rtn" "needs calibration data" --pipeline datafree
echo "impossible jobs are refused"
