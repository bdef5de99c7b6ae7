# static.sh - compares static activations in FP8, NVFP4 and integers with LLM Compressor's. Both
# programs get the same samples, in batches of one sample. All tensors must have the bytes of LLM
# Compressor's tensors. Only scales of activations may differ, by a unit in the last place.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export golden=$OSH_SOURCE_DIR/tests/golden/static
fail() { echo "$*"; exit 1; }
names=$(python3 - <<'P'
import json, os
for name, recipe in json.load(open(os.environ["golden"] + "/outputs.json")).items():
    if name == "versions": continue
    with open(name + ".yaml", "w") as f:
        f.write("s_stage: {s_modifiers: {QuantizationModifier: {%s, ignore: [lm_head]}}}\n" % recipe["keys"])
    print(name)
P
)
# LLM Compressor and this program sum a row of activations in different orders, so scales may differ
# by a unit in the last place of BF16. A zero point is -128 minus the smallest value divided by the
# scale. This quotient is about 156 here, so zero points may differ by 2. NVFP4's global scale is
# 2688 divided by the largest value, in F32.
compare() {
    python3 - "$1" <<'P'
import hashlib, json, os, struct, sys
want = json.load(open(os.environ["golden"] + "/outputs.json"))[sys.argv[1]]
raw = open("out/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
rest, off, found = hashlib.sha256(), 0, dict(want["activations"])
for name, e in sorted(json.loads(raw[8:8 + n]).items()):
    if name == "__metadata__": continue
    data = raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]]
    if not name.endswith((".input_scale", ".input_zero_point", ".input_global_scale")):
        rest.update(json.dumps([name, e["dtype"], e["shape"]]).encode() + data)
        continue
    got, wanted = struct.unpack({"BF16": "<H", "F32": "<f", "I8": "<b"}[e["dtype"]], data)[0], found.pop(name)
    most = abs(wanted) / 128 if e["dtype"] == "F32" else 2 if e["dtype"] == "I8" else 1
    assert abs(got - wanted) <= most, (name, got, wanted)
    off += got != wanted
assert not found, found
print("%s: %d of %d scales a unit apart" % (sys.argv[1], off, len(want["activations"])))
assert rest.hexdigest() == want["rest"], "other bytes"
P
}
for r in $names; do
    "$ONESHOT" --model "$model" --recipe $r.yaml --dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 \
        --max-seq-length 64 --progress none --output out >/dev/null
    compare $r || fail "$r: the scales differ from those of LLM Compressor"
    "$ONESHOT" verify out --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
    rm -rf out
done
