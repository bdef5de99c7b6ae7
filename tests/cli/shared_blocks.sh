# shared_blocks.sh - tests blocks whose weights several layers share (Zamba 2). The weights must be
# quantized once, and every layer must read the same codes. Modifiers that change the weights for
# one layer must be refused.
set -euo pipefail
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
"$OSH_TOOLS/tiny_model" ../families/logits/zamba2 z float32
gptq_recipe 8 8 >recipe.yaml
job=(--model z --dataset z/calibration.jsonl --progress none --indivisible dense)
"$ONESHOT" "${job[@]}" --recipe recipe.yaml --threads 1 --output out >/dev/null || fail "the run fails"
"$ONESHOT" "${job[@]}" --recipe recipe.yaml --threads 2 --output two >/dev/null || fail "the run fails with two threads"
cmp out/model.safetensors two/model.safetensors || fail "two threads make other bytes"
"$ONESHOT" verify out --model z >log || fail "$(cat log)"

# Each of layers 1 and 2 has a block of 6 Linears. Layer 3 uses the block of layer 1 again.
# Each layer has its own adapters, which stay dense.
codes=$(grep -o '"[^"]*shared_transformer[^"]*weight_packed"' out/oneshot-manifest.json | sort -u)
[ "$(grep -c 'layers\.[12]\.' <<<"$codes")" = 12 ] || fail "want 12 Linears of shared blocks: $codes"
if grep -q 'layers\.3\.\|adapter' <<<"$codes"; then fail "codes of a shared weight or an adapter: $codes"; fi
grep -qF '"re:.*_adapter(_list)?\\..*"' out/config.json || fail "adapters are not in ignore"
# eval of the output must use the shared codes in every layer. The perplexity must change only a
# little.
perplexity() { "$ONESHOT" eval --model "$1" --dataset z/calibration.jsonl --progress none | sed -n 's/^perplexity \([0-9.]*\).*/\1/p'; }
awk -v a="$(perplexity z)" -v b="$(perplexity out)" 'BEGIN { print a, b; exit !(a > 1 && b > 1 && a != b && b < 1.05 * a && a < 1.05 * b) }' || fail "perplexity"

# A fold for one layer would change the shared weights for the other layers, too.
cat >awq.yaml <<'Y'
s_stage:
  q_modifiers:
    AWQModifier: {}
    QuantizationModifier:
      ignore: [lm_head]
      config_groups: {g: {targets: [Linear], weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 8}}}
Y
if "$ONESHOT" "${job[@]}" --recipe awq.yaml --output awq 2>err; then fail "AWQ changes a shared weight"; fi
grep -q 'which is the weight of 2 modules' err || fail "$(cat err)"
# Scales of keys and values belong to one module, but a shared block has a cache for each layer. So
# kv_cache_scheme is refused.
cat >kv.yaml <<'Y'
s_stage:
  q_modifiers:
    QuantizationModifier:
      kv_cache_scheme: {num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true}
Y
if "$ONESHOT" "${job[@]}" --recipe kv.yaml --output kv 2>err; then fail "kv_cache_scheme of a shared block is not refused"; fi
grep -q 'kv_cache_scheme: no quantized Linear reads the output of model.layers.3.shared_transformer.self_attn' err || fail "$(cat err)"
