# independent.sh - runs --pipeline independent on the emulated GPU. The output equals that of two
# runs with one modifier each. With the smallest --device-memory of the plan, the output is the
# same. The GPU memory of a traversal is predicted.
set -euo pipefail
export OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
printf 'a_stage:\n  m_modifiers:\n    GPTQModifier: {scheme: W8A8, targets: ["re:.*self_attn.*"]}\n' >first.yaml
printf 'b_stage:\n  m_modifiers:\n    GPTQModifier: {scheme: W4A16, targets: ["re:.*down_proj"]}\n' >second.yaml
cat first.yaml second.yaml >both.yaml
job=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64 --device cuda)
one() { "$PLAY" "${job[@]}" --progress none "$@" >log 2>&1 || { cat log; fail "$*"; }; }
one --model "$model" --recipe both.yaml --pipeline independent --output both
one --model "$model" --recipe first.yaml --output first
one --model first --recipe second.yaml --only 're:.*down_proj' --output chain
cmp both/model.safetensors chain/model.safetensors || fail "the output differs from that of two runs"
least=$("$PLAY" plan "${job[@]}" --model "$model" --recipe both.yaml --pipeline independent --json |
    sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
one --model "$model" --recipe both.yaml --pipeline independent --output small --device-memory "$least"
cmp both/model.safetensors small/model.safetensors || fail "the least memory changes the bytes"
if ! command -v python3 >/dev/null; then exit 0; fi
python3 - <<'P'
import json
for name in ("both", "small"):
    r = json.load(open(name + "/oneshot-report.json"))
    assert len(r["traversals"]) == 2 and r["device"]["peak_bytes"] <= r["device"]["predicted_peak_bytes"], r["device"]
P
