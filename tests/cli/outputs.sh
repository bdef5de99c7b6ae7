# outputs.sh - tests output_activations. Tests that the scales equal those of LLM Compressor on the
# same samples, in batches of one sample. Tests that the output bytes do not depend on threads,
# batch, budget, pipeline or a kill. Tests that eval rounds the outputs of Linears, and that verify
# finds impossible scales.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
golden=$OSH_SOURCE_DIR/tests/golden/outputs/scales.json
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64)
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
names=$(python3 - "$golden" <<'P'
import json, sys
for name, recipe in json.load(open(sys.argv[1])).items():
    if name == "versions": continue
    with open(name + ".yaml", "w") as f:
        f.write("s_stage: {s_modifiers: {%s}}\n" % recipe["modifier"])
    print(name)
P
)
# LLM Compressor sums a row of activations in another order. So scales may differ by a unit in the
# last place of BF16, and zero points by 1. If LLM Compressor and oneshot round a tie to different
# codes, later scales may differ by a few units.
compare() {
    python3 - "$1" <<'P'
import json, os, struct, sys
want = json.load(open(os.environ["OSH_SOURCE_DIR"] + "/tests/golden/outputs/scales.json"))[sys.argv[1]]["tensors"]
most, off = 4 if sys.argv[1] == "solved" else 1, 0
with open("out/model.safetensors", "rb") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(n))
    for name, value in want.items():
        e = header.pop(name)
        assert e["shape"] == [1] and e["dtype"] == ("I8" if name.endswith("zero_point") else "BF16"), (name, e)
        f.seek(8 + n + e["data_offsets"][0])
        got = struct.unpack("<b" if e["dtype"] == "I8" else "<H", f.read(e["data_offsets"][1] - e["data_offsets"][0]))[0]
        assert abs(got - value) <= most, (name, got, value)
        off += got != value
assert not [k for k in header if k.split(".")[-1].startswith("output_")], header
group = json.load(open("out/config.json"))["quantization_config"]["config_groups"]["g"]["output_activations"]
assert group["observer"] == {"dynamic": None, "asymmetric": "static_minmax"}.get(sys.argv[1], "minmax"), group
print("%s: %d of %d a unit apart" % (sys.argv[1], off, len(want)))
P
}
recipes=$names
[ -z "$SANITIZED" ] || recipes=asymmetric
for r in $recipes; do
    one $r out --sequential-targets Linear >/dev/null
    compare $r || fail "$r: other scales"
    "$ONESHOT" verify out --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
    rm -rf out
done

one solved plain --threads 1 >/dev/null
sums plain >want
"$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "verify fails"; }
one solved out --threads 3 --batch-size 4 >/dev/null
same out want "threads and batch"
least=$("$ONESHOT" plan --model "$model" --recipe solved.yaml "${data[@]}" --json |
    sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
one solved out --mem-opt-level 2 --device-memory $((least + 60000)) >/dev/null
python3 - <<'P'
import json, os
m = json.load(open("out/oneshot-report.json"))["memory"]
assert os.environ["SANITIZED"] or m["peak_bytes"] <= m["predicted_peak_bytes"], m
P
same out want "the smallest device memory"
[ -n "$SANITIZED" ] || {
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one solved out --mem-opt-level 2 >log 2>&1
    same out want "counted"
    if INJECT_AT=$(($(cat calls) * 70 / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
    one solved out --mem-opt-level 2 >log 2>&1; then fail "the run was not killed"; fi
    one solved out --mem-opt-level 2 >log 2>&1 || { cat log; fail "the run does not continue"; }
    same out want "killed"
    # Without a solve no value changes, so the pipeline has no effect.
    one symmetric a >/dev/null; sums a | grep safetensors >want
    for how in "--pipeline basic" "--sequential-targets Linear"; do
        one symmetric b $how >/dev/null
        sums b | grep safetensors | diff - want || fail "$how: the output has other bytes"
        rm -rf b
    done
}

# `oneshot eval` rounds the outputs of Linears. Outputs of 8 bits change the perplexity little.
# Outputs of 2 bits change it much.
head -c $([ -z "$SANITIZED" ] && echo 20000 || echo 6000) "$model/data/evaluation.txt" >evaluation.txt
perplexity() {
    "$ONESHOT" eval --model "$1" --dataset evaluation.txt --max-seq-length 128 --progress none "${@:2}" |
        sed -n 's/.*perplexity *\([0-9.]*\).*/\1/p'
}
[ -d a ] || one symmetric a >/dev/null
sed 's/output_activations: {num_bits: 8/output_activations: {num_bits: 2/' symmetric.yaml >coarse.yaml
one coarse c >/dev/null
with=$(perplexity a) without=$(perplexity a --no-activation-quantization) coarse=$(perplexity c)
awk "BEGIN {exit !($with != $without && $with < 1.05 * $without && $coarse > 1.5 * $without)}" ||
    fail "perplexity $with, outputs not rounded $without, to 2 bits $coarse"

python3 - <<'P'
import json, struct
with open("a/model.safetensors", "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    e = json.loads(f.read(n))["model.layers.2.mlp.up_proj.output_scale"]
    f.seek(8 + n + e["data_offsets"][0])
    f.write(b"\0\0")
P
! "$ONESHOT" verify a --model "$model" >verify.txt || fail "verify accepts a scale of 0"
grep -q 'model.layers.2.mlp.up_proj.output_scale: is 0' verify.txt || { cat verify.txt; fail "verify does not name the scale of 0"; }
echo "LLM Compressor's scales"
