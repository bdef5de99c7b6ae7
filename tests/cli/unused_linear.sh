# unused_linear.sh - tests Linears of the indexers of DeepSeek V4 and GLM-5.3. In DeepSeek V4, no
# node reads the outputs of some of these Linears, so the pass with quantized weights does not load
# their weights. A run with the smallest --host-memory and runs that continue after a kill must give
# the same bytes.
set -euo pipefail
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
"$OSH_TOOLS/tiny_model" ../families/logits/deepseek_v4 m bfloat16
gptq_recipe 4 32 >recipe.yaml
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
job=(--model m --recipe recipe.yaml --dataset m/calibration.jsonl --progress none --indivisible dense --threads 1)
calls=$PWD/calls
INJECT_COUNT=$calls LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" --output plain >/dev/null || fail "the run fails"
grep -q 'indexer[^"]*weight_packed' plain/oneshot-manifest.json || fail "no Linear of the indexer is quantized"

"$ONESHOT" plan --json "${job[@]}" >plan.json
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json)
"$ONESHOT" "${job[@]}" --host-memory $((least + 1048576)) --output small >log 2>&1 || fail "the run fails with $least bytes: $(cat log)"
cmp plain/model.safetensors small/model.safetensors || fail "the smallest budget makes other bytes"

resumed=0
for part in 3 4 5 6 7 8; do
    rm -rf out
    if INJECT_AT=$(($(cat calls) * part / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" --output out >log 2>&1; then
        fail "kill at $part tenths of the calls: the run ends"
    fi
    [ ! -e out.oneshot-partial ] || resumed=$((resumed + 1))
    "$ONESHOT" "${job[@]}" --output out >log 2>&1 || fail "after a kill at $part tenths of the calls: $(cat log)"
    cmp plain/model.safetensors out/model.safetensors || fail "after a kill at $part tenths of the calls: the output has other bytes"
done
[ "$resumed" -gt 2 ] || fail "only $resumed runs continued"

# In GLM-5.3, a parameter of the indexer also multiplies the output of a norm. This parameter is not
# the weight of a module, so factors of this norm cannot be folded.
"$OSH_TOOLS/tiny_model" ../families/logits/glm5_next glm bfloat16
cat >smooth.yaml <<'Y'
s_stage:
  q_modifiers:
    SmoothQuantModifier: {}
    QuantizationModifier: {targets: [Linear], ignore: ["re:.*lm_head"], scheme: W8A8}
Y
if "$ONESHOT" --model glm --recipe smooth.yaml --dataset glm/calibration.jsonl --progress none --indivisible dense --output smooth 2>err; then
    fail "SmoothQuant of GLM-5.3 is not refused"
fi
grep -qF 'finds no norm before Linears in this model: want mappings' err || fail "$(cat err)"
sed 's/{}/{mappings: [[["re:.*q_a_proj", "re:.*kv_a_proj_with_mqa", "re:.*indexer.wk", "re:.*indexer.weights_proj"], "re:.*1.input_layernorm"]]}/' smooth.yaml >mapped.yaml
if "$ONESHOT" --model glm --recipe mapped.yaml --dataset glm/calibration.jsonl --progress none --indivisible dense --output smooth 2>err; then
    fail "a mapping that leaves out a reader is not refused"
fi
grep -qF 'self_attn.indexer (linear) also reads its output' err || fail "$(cat err)"
