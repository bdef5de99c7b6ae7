# smoothquant.sh - tests SmoothQuant before GPTQ and before rounding, in one traversal. The output
# bytes do not depend on threads, batch, tier, budget or a kill. verify accepts the changed tensors.
# SmoothQuant alone does not change the predictions of the model. Mappings that would change the
# predictions are refused.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
recipe() { # arguments: file, keys of SmoothQuantModifier, modifiers after it
    printf 's_stage:\n  s_modifiers:\n    SmoothQuantModifier: {%s}\n    %s\n' "$2" "$3" >"$1"
}
gptq="GPTQModifier: {scheme: W8A8, ignore: [lm_head]}"
rtn="QuantizationModifier: {scheme: W8A8, ignore: [lm_head]}"
recipe gptq.yaml "smoothing_strength: 0.8" "$gptq"
recipe rtn.yaml "smoothing_strength: 0.8" "$rtn"
# The smooth layer is a Linear: factors are moved from the output of up_proj to the weight of
# down_proj.
recipe up.yaml 'mappings: [[["re:.*down_proj"], "re:.*up_proj"], [["re:.*gate_proj", "re:.*up_proj"], "re:.*post_attention_layernorm"]]' "$gptq"
docs=$model docs_data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64)
# The model is small, because its runs are repeated with many flags.
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=6 tokens=64 ragged=1 outliers=3
model=small data=(--dataset small/calibration.jsonl --num-calibration-samples 6 --max-seq-length 64)
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
budget() { # arguments: the plan's smallest device memory, recipe, flags
    "$ONESHOT" plan --verbose --model "$model" --recipe "$1.yaml" "${data[@]}" "${@:2}" |
        sed -n 's/^smallest budgets: device memory \([0-9.]*\) MB.*/\1/p'
}

"$ONESHOT" plan --verbose --model "$model" --recipe gptq.yaml "${data[@]}" >plan.txt
grep -q 'SmoothQuantModifier: factors of 4 layers, such as model.layers.0.input_layernorm, for 10 weights' plan.txt ||
    { cat plan.txt; fail "the plan does not list the mappings"; }
grep -q 'passes: smooth, observe, propagate' plan.txt || { cat plan.txt; fail "the plan does not list the passes"; }
"$ONESHOT" plan --model "$model" --recipe gptq.yaml "${data[@]}" --json >plan.txt
[ "$(grep -c '"layer":' plan.txt)" = 4 ] || fail "the plan as JSON does not list the mappings"

declare -A how=([layer]="" [Linear]="--sequential-targets Linear" [basic]="--pipeline basic"
    [two]="--sequential-targets Linear --sequential-targets-per-subgraph 2")
for what in "gptq layer" "gptq Linear" "rtn basic" "rtn layer" "up two"; do
    read -r r t <<<"$what"
    flags=(${how[$t]})
    one $r plain "${flags[@]}" --threads 1 >/dev/null
    sums plain >want.$r.$t
    "$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "$what: verify fails"; }
    grep -q 'rule": "changed"' plain/oneshot-manifest.json || fail "$what: nothing is called changed"
    rm -rf out.$r.$t && mv plain out.$r.$t
    one $r out "${flags[@]}" --threads 3 --batch-size 4 >/dev/null
    same out want.$r.$t "$what, threads and batch"
    one $r out "${flags[@]}" --mem-opt-level 2 >/dev/null
    same out want.$r.$t "$what, values on the disk"
    least=$(budget $r "${flags[@]}")
    for part in 1 1.5; do
        bytes=$(awk "BEGIN {printf \"%d\", $least * $part * 1e6 + 60000}")
        one $r out "${flags[@]}" --threads 1 --device-memory $bytes >/dev/null
        same out want.$r.$t "$what, device memory $bytes"
    done
done
echo "same bytes"

# Runs are killed at writes to the disk. After an early kill the factors are computed again. After a
# late kill the factors of finished layers are read from the journal.
kills=0 resumed=0 shares=(12 60 75 88)
[ "${KILLS:-50}" -ge 50 ] || shares=(50 88) # with sanitizers, only two runs are killed
for what in "gptq Linear" "rtn layer" "up two"; do
    read -r r t <<<"$what"
    flags=(${how[$t]} --mem-opt-level 2 --threads 1)
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one $r out "${flags[@]}" >log 2>&1
    same out want.$r.$t "$what, counted"
    calls=$(cat calls)
    for share in "${shares[@]}"; do
        if INJECT_AT=$((calls * share / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one $r out "${flags[@]}" \
            >log 2>&1; then fail "$what: the run was not killed"; fi
        kills=$((kills + 1))
        one $r out "${flags[@]}" --log-level debug >log 2>&1 || { cat log; fail "$what: the run does not continue"; }
        ! grep -q "are read from the disk" log || resumed=$((resumed + 1))
        same out want.$r.$t "$what, killed at $share % of $calls calls"
    done
done
[ $resumed -ge $((${#shares[@]} / 2)) ] || fail "only $resumed of $kills runs read the stored values"
echo "killed, and the same"

# verify finds a wrong norm, wrong factors, and missing factors.
cp -r out.gptq.layer broken
sed -i '0,/"factors": "......../s//"factors": "3f910000/' broken/oneshot-manifest.json
! "$ONESHOT" verify broken --model "$model" >found.txt 2>&1 || fail "other factors are not found"
grep -q 'input_layernorm.weight: differs from byte' found.txt || { cat found.txt; fail "verify does not name the norm"; }
sed -i '/^  "folds"/,/^  \],/d' broken/oneshot-manifest.json
! "$ONESHOT" verify broken --model "$model" >found.txt 2>&1 || fail "missing factors are not found"
grep -q "factors of its channels" found.txt || { cat found.txt; fail "verify does not name the factors"; }

# The predictions of the model must stay nearly the same. 8-bit weights change the perplexity by
# 0.02. A missing factor would change it by thousands.
model=$docs data=("${docs_data[@]}")
recipe w8.yaml "smoothing_strength: 0.8" "QuantizationModifier: {scheme: W8A16, ignore: [lm_head]}"
one w8 w8 >/dev/null
head -c 20000 "$model/data/evaluation.txt" >evaluation.txt
nll() { "$ONESHOT" eval --model "$1" --dataset evaluation.txt --progress none --max-seq-length 128 | tail -1 | sed 's/.* //'; }
a=$(nll "$model") b=$(nll w8)
awk "BEGIN {exit !(($a - $b)^2 < 0.01)}" || fail "perplexity $a became $b"

refused() { # arguments: keys, modifiers after SmoothQuantModifier, part of the message, flags
    recipe bad.yaml "$1" "$2"
    code=0
    "$ONESHOT" plan --model "$model" --recipe bad.yaml "${data[@]}" "${@:4}" >msg 2>&1 || code=$?
    [ $code -gt 0 ] && grep -qF "$3" msg || { cat msg; fail "not refused: $1"; }
}
refused 'mappings: [[["re:.*query"], "re:.*input_layernorm"]]' "$gptq" "match all of its balance layers (re:.*query"
refused 'mappings: [[["re:.*q_proj"], "re:.*ln_1"]]' "$gptq" "smooth layer re:.*ln_1 matches no module"
refused 'mappings: [[["re:.*q_proj", "re:.*k_proj"], "re:.*input_layernorm"]]' "$gptq" \
    "v_proj (linear) also reads its output"
refused 'mappings: [[["re:.*gate_proj", "re:.*up_proj"], "re:.*input_layernorm"]]' "$gptq" \
    "self_attn.q_proj (linear) also reads its output"
refused 'mappings: [[["re:.*o_proj"], "re:.*v_proj"]]' "$gptq" "self_attn (attention) also reads its output"
refused 'mappings: [[["re:.*down_proj"], "re:.*gate_proj"]]' "$gptq" "mlp (glu) also reads its output"
refused 'mappings: [[["lm_head"], "model.norm"]]' "$gptq" "which is the weight of 2 modules"
refused 'mappings: [[["re:.*q_proj"], "model.embed_tokens"]]' "$gptq" "want a norm of whole rows, or a Linear"
refused '' "GPTQModifier: {scheme: W8A8, ignore: [lm_head], target: original}" "want one of the two" \
    --sequential-targets Linear
refused '' "$gptq" "needs calibration data" --pipeline datafree
echo "impossible jobs are refused"
