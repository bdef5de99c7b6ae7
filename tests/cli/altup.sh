# altup.sh - tests Gemma 3n. A W4 output must be readable, although the names of some Linears have
# "embed" in them. A layer runs the router of AltUp twice, so this router must stay dense.
set -euo pipefail
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
"$OSH_TOOLS/tiny_model" ../families/logits/gemma3n_text g float32
gptq_recipe 8 8 >recipe.yaml
"$ONESHOT" --model g --dataset g/calibration.jsonl --progress none --recipe recipe.yaml --indivisible dense --output out >/dev/null || fail "the run fails"
"$ONESHOT" verify out --model g >log || fail "$(cat log)"
codes=$(grep -o '"[^"]*weight_packed"' out/oneshot-manifest.json | sort -u)
grep -q 'altup_unembed_projections\.2' <<<"$codes" || fail "a Linear after the layers has no codes: $codes"
if grep -q 'modality_router' <<<"$codes"; then fail "the router has codes: $codes"; fi
grep -qF '"model.layers.0.altup.modality_router"' out/config.json || fail "the router is not in ignore"
perplexity() { "$ONESHOT" eval --model "$1" --dataset g/calibration.jsonl --progress none | sed -n 's/^perplexity \([0-9.]*\).*/\1/p'; }
awk -v a="$(perplexity g)" -v b="$(perplexity out)" 'BEGIN { print a, b; exit !(a > 1 && b > 1 && a != b && b < 1.05 * a && a < 1.05 * b) }' || fail "perplexity"

# The ops of AltUp run on the CPU only.
if "$ONESHOT" plan --model g --dataset g/calibration.jsonl --recipe recipe.yaml --indivisible dense --device-model h100 2>err; then fail "the plan for a GPU is not refused"; fi
grep -q 'is not supported on a GPU in this version: want --device cpu' err || fail "$(cat err)"
