# quality.sh - tests --quality best on the emulated GPU. Tests that the losses are near the host's,
# and that no step raises a loss. Tests that the output bytes do not depend on the order of the
# threads, and that the arena uses at most the planned bytes. Also tests that GPTQ and `--quality
# best` with NVFP4 and MX give results near the host's.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
job=(--model "$model" --scheme W3A16 --quality best --targets 're:model.layers.0.(self_attn.[qkv]|mlp.down)_proj'
     --ignore lm_head --dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64 --threads 1 --progress none)
fail() { echo "$*"; exit 1; }
"$PLAY" "${job[@]}" --output gpu >/dev/null
"$PLAY" "${job[@]}" --output host --device cpu >/dev/null
OSH_PLAY="protect=0 order=5 lazy=1" last_wins "$PLAY" "${job[@]}" --threads 2 --batch-size 3 --output other >/dev/null
cmp gpu/model.safetensors other/model.safetensors || fail "the order of the threads changes the bytes"
python3 - <<'PYTHON'
import json
gpu, host = (json.load(open(d + "/oneshot-report.json")) for d in ("gpu", "host"))
assert 0 < gpu["device"]["peak_bytes"] <= gpu["device"]["predicted_peak_bytes"], gpu["device"]
assert len(gpu["modules"]) == 4 == len(host["modules"])
for a, b in zip(gpu["modules"], host["modules"]):
    x, y = ([s["loss"] for s in m["losses"]] for m in (a, b))
    assert len(x) == 4 and x == sorted(x, reverse=True) and x[3] < x[0], a
    assert abs(x[3] / y[3] - 1) < 0.1, (a, b)
PYTHON

float4() { # arguments: scheme, quality, targets
    job=(--model "$model" --scheme $1 --quality $2 --targets "$3" --ignore lm_head --overwrite --threads 1
         --dataset "$model/data/calibration.jsonl" --num-calibration-samples 3 --max-seq-length 48 --progress none)
    "$PLAY" "${job[@]}" --output gpu >/dev/null
    "$PLAY" "${job[@]}" --output host --device cpu >/dev/null
    "$ONESHOT" verify gpu --model "$model" >verify.txt || { cat verify.txt; fail "$1 $2: verify fails"; }
    python3 - <<'PYTHON'
import json
gpu, host = (json.load(open(d + "/oneshot-report.json")) for d in ("gpu", "host"))
assert 0 < gpu["device"]["peak_bytes"] <= gpu["device"]["predicted_peak_bytes"], gpu["device"]
assert len(gpu["modules"]) == len(host["modules"]) > 1
for a, b in zip(gpu["modules"], host["modules"]):
    assert abs(a["relative_squared_error"] / b["relative_squared_error"] - 1) < 0.05, (a, b)
    x, y = ([s["loss"] for s in m.get("losses", [])] for m in (a, b))
    assert len(x) == len(y) and x == sorted(x, reverse=True), a
    assert not x or abs(x[-1] / y[-1] - 1) < 0.1, (a, b)
PYTHON
}
float4 NVFP4 gptq 're:model.layers.0.*'
float4 MXFP4A16 gptq 're:model.layers.0.*'
float4 NVFP4A16 best 're:model.layers.0.self_attn.[qkv]_proj'
