# mixed.sh - tests the choice of bits for each module (docs/how-to/mixed-precision.md). The output
# must be at most as large as the target. Modules that inference engines fuse must get the same
# bits. The output bytes must not depend on threads, batch or a kill. Impossible jobs must be
# refused before any work.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 96)
plain=(--model "$model" --scheme W4A16 --group-size 64 --quality gptq --progress none)
job=("${plain[@]}" "${data[@]}" --threads 1)
fail() { echo "$*"; exit 1; }
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}

"$ONESHOT" "${job[@]}" --target-bits 3.7 --output out >said
grep -q 'chosen: 3\.[0-9]* bits a weight' said || fail "$(cat said)"
[ ! -e out.oneshot-survey.oneshot-partial ] || fail "the survey is left"
"$ONESHOT" verify out --model "$model" >found || fail "$(cat found)"
"$ONESHOT" "${job[@]}" --target-bits 3.7 --output out | grep -q 'nothing to do' || fail "the same command does not find the finished output"
python3 - out 3.7 <<'P'
import json, struct, sys
out, most = sys.argv[1], float(sys.argv[2])
with open(out + "/model.safetensors", "rb") as f:
    head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
head.pop("__metadata__", None)
size = lambda t: t["data_offsets"][1] - t["data_offsets"][0]
coded = {n[:-len(".weight_packed")] for n in head if n.endswith(".weight_packed")}
taken = sum(size(t) for n, t in head.items() if n.rsplit(".", 1)[0] in coded)
shapes = {m: head[m + ".weight_scale"]["shape"] for m in coded}
weights = sum(s[0] * s[1] * 64 for s in shapes.values())
assert taken * 8 <= most * weights, (taken * 8 / weights, most)
assert taken * 8 > (most - 0.3) * weights, (taken * 8 / weights, most)
groups = json.load(open(out + "/config.json"))["quantization_config"]["config_groups"]
bits = {m: g["weights"]["num_bits"] for g in groups.values() for m in g["targets"]}
assert set(bits) == coded and len(set(bits.values())) > 1, bits
for m, b in bits.items():
    for fused in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        parent, leaf = m.rsplit(".", 1)
        if leaf in fused: assert all(bits[parent + "." + x] == b for x in fused), m
P
python3 - out <<'P' # the report has the bytes of each unit, and a curve of losses that falls with
                    # the size
import json, sys
c = json.load(open(sys.argv[1] + "/oneshot-report.json"))["choice"]
assert c["weighed_by"] == "gradients" and "not_by_gradients" not in c, c
assert c["bound"] <= c["loss"] * (1 + 1e-9) and c["bytes"] <= c["limit_bytes"], c
at = {u["name"]: {b: n for b, n, loss in u["candidates"]}[u["bits"]] for u in c["units"]}
assert len(at) == 16 and sum(at.values()) == c["bytes"], at
assert all(a[0] < b[0] and a[1] > b[1] for a, b in zip(c["curve"], c["curve"][1:])), c["curve"]
page = open(sys.argv[1] + "/oneshot-report.html").read()
assert '<svg id="choice"' in page and "model.layers.0.self_attn.q_proj" in page
P
want=$(sha256sum <out/model.safetensors)
"$ONESHOT" "${plain[@]}" "${data[@]}" --threads 3 --batch-size 4 --target-bits 3.7 --output other >/dev/null
[ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "threads and batch: the output has other bytes"

# Kills the process during the survey, and during the run after the survey.
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" --target-bits 3.7 --output all >/dev/null
for at in 3 8; do
    if INJECT_AT=$(($(cat calls) * at / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" \
        --target-bits 3.7 --output killed >/dev/null 2>&1; then fail "the run was not killed"; fi
    "$ONESHOT" "${job[@]}" --target-bits 3.7 --output killed >/dev/null
    [ "$(sha256sum <killed/model.safetensors)" = "$want" ] || fail "killed at $at tenths: the output has other bytes"
    [ ! -e killed.oneshot-survey.oneshot-partial ] || fail "killed at $at tenths: the survey is left"
    rm -rf killed
done

# Tests target sizes of the quantized modules and of the whole output.
"$ONESHOT" "${job[@]}" --target-size 0.2x --output share | grep -q 'bits a weight' || fail "--target-size with a share prints no choice of bits"
"$ONESHOT" "${job[@]}" --target-size 3MB --output whole >/dev/null
# the target is the size of the whole file, with its header
[ "$(stat -c %s whole/model.safetensors)" -le 3020000 ] || fail "$(stat -c %s whole/model.safetensors) bytes"
# For a quantized source, 0.9x means 0.9 times the bytes of its codes and scales.
again=(--model share --scheme W4A16 --group-size 64 --quality gptq --progress none "${data[@]}" --threads 1)
"$ONESHOT" "${again[@]}" --target-size 0.9x --output again >/dev/null
python3 - share again <<'P'
import json, struct, sys
def taken(folder):
    with open(folder + "/model.safetensors", "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    ends = (".weight_packed", ".weight_scale", ".weight_shape")
    return sum(t["data_offsets"][1] - t["data_offsets"][0] for n, t in head.items() if n.endswith(ends))
assert 0.8 < taken(sys.argv[2]) / taken(sys.argv[1]) <= 0.9, (taken(sys.argv[2]), taken(sys.argv[1]))
P
cat >recipe.yaml <<'R'
default_stage:
  default_modifiers:
    QuantizationModifier:
      targets: [Linear]
      scheme: W8A16
      candidates: [8, 4]
      ignore: [lm_head]
R
"$ONESHOT" --model "$model" --recipe recipe.yaml "${data[@]}" --threads 1 --progress none --target-size 0.4x --output rtn >said
grep -q ' 4 bits for [0-9]*, 8 bits for' said || fail "$(cat said)"
# The head is a target, too. It has no gradient at its output, so gradients are not used.
sed '/candidates/s/8, 4/4, 3/; /ignore/d; s/\[Linear\]/[Linear, lm_head]/' recipe.yaml >head.yaml
head=(--model "$model" --recipe head.yaml "${data[@]}" --threads 1 --progress none --target-bits 3.9)
"$ONESHOT" "${head[@]}" --output head >said
python3 - head <<'P'
import json, sys
c = json.load(open(sys.argv[1] + "/oneshot-report.json"))["choice"]
assert c["weighed_by"] == "effects" and c["not_by_gradients"] == "lm_head is the output head", c
P
"$ONESHOT" plan --verbose "${head[@]}" | grep -q 'effects of rounding, and not by gradients: lm_head is the output head' || fail "the plan does not say that it uses no gradients"
grep -q 'QuantizationModifier' rtn/recipe.yaml && ! grep -q candidates rtn/recipe.yaml || fail "$(cat rtn/recipe.yaml)"

# Candidates may also be schemes. Each group of the output must have one format. The predicted loss
# must include the rounding of inputs. The output bytes must not depend on threads.
among="[3, MXFP8, NVFP4A16, 4, MXFP6A16, W8A8]"
[ -z "$SANITIZED" ] || among="[4, MXFP8]"
sed "s/QuantizationModifier/GPTQModifier/; s/W8A16/W4A16/; s/\[8, 4\]/$among/" recipe.yaml >formats.yaml
mix=(--model "$model" --recipe formats.yaml "${data[@]}" --progress none --target-bits 5)
"$ONESHOT" "${mix[@]}" --threads 1 --output mix >said 2>warned
"$ONESHOT" verify mix --model "$model" >found || fail "$(cat found)"
[ -n "$SANITIZED" ] || {
grep -q 'NVFP4A16 for [0-9]*, .*MXFP6A16 for [0-9]*.* of 16 units' said || fail "$(cat said)"
grep -q 'candidates: MXFP6A16: .*no kernel of vLLM' warned && ! grep -q 'MXFP8:' warned || fail "$(cat warned)"
"$ONESHOT" "${mix[@]}" --threads 3 --output mix3 >/dev/null 2>&1
cmp mix/model.safetensors mix3/model.safetensors
python3 - mix <<'P'
import json, sys
c = json.load(open(sys.argv[1] + "/oneshot-report.json"))["choice"]
q = json.load(open(sys.argv[1] + "/config.json"))["quantization_config"]
chosen = {u["name"]: u["chosen"] for u in c["units"]}
assert c["bits"] <= 5 and len(set(chosen.values())) > 2, chosen
kinds = {"3 bits": "pack-quantized", "4 bits": "pack-quantized", "NVFP4A16": "nvfp4-pack-quantized", "W8A8": "int-quantized",
         "MXFP6A16": "mxfp6-pack-quantized", "MXFP8": "mxfp8-quantized"}
formats = {m: g["format"] for g in q["config_groups"].values() for m in g["targets"]}
assert q["format"] == "mixed-precision" and len(formats) == 28, q
assert all(formats[n] == kinds[k] for n, k in chosen.items()), (formats, chosen)
for fused in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
    for m, f in formats.items():
        parent, leaf = m.rsplit(".", 1)
        if leaf in fused: assert all(formats[parent + "." + x] == f for x in fused), m
loss = lambda label: sum(u["candidates"][u["labels"].index(label)][2] for u in c["units"])
assert loss("MXFP6A16") < loss("4 bits") < loss("3 bits"), "weights"
assert 5 * loss("W8A8") > loss("MXFP8"), "the largest value of a token is not that of the largest channel"
assert 2 * loss("MXFP6A16") < loss("MXFP8") and loss("W8A8") < loss("MXFP8"), "inputs of 4 digits are worse than of 8 bits"
P
}

refused() { # arguments: part of the message, then the arguments of oneshot
    local text=$1 rc=0
    shift
    last_wins "$ONESHOT" "$@" --output refused >said 2>&1 || rc=$?
    [ "$rc" != 0 ] && grep -q -- "$text" said || fail "'$text' is not in: $(cat said)"
    [ -z "$(ls -d refused* 2>/dev/null)" ] || fail "refused: $(ls -d refused*) is left"
}
refused 'exclude each other' "${job[@]}" --target-bits 4 --target-size 0.3x
refused 'want bytes, such as' "${job[@]}" --target-size little
refused 'want a share above 0' "${job[@]}" --target-size 2x
refused 'with the fewest bits of each module they take' "${again[@]}" --target-size 0.3x
refused 'the dense tensors alone take' "${job[@]}" --target-size 1MB
refused 'want --dataset' "${plain[@]}" --target-bits 4
refused 'with the fewest bits' "${job[@]}" --target-bits 2.1
refused 'are not integers: want integers' --model "$model" --scheme FP8 "${data[@]}" --target-bits 4
refused 'is too small' "${job[@]}" --target-bits 4 --host-memory 1MiB
"$ONESHOT" plan --verbose "${job[@]}" --target-bits 4 >plan
grep -q 'a survey comes first: 28 modules' plan && grep -q '^losses are weighted by gradients' plan || fail "$(cat plan)"
"$ONESHOT" plan "${job[@]}" --target-bits 3.7 >plan
MOST=$(tr '\n' ' ' <plan | sed -n 's/^before  *a survey comes first.* has at most  *\([0-9.]*\) MB .*/\1/p') python3 -c 'import os
most, has = float(os.environ["MOST"]) * 1e6, os.path.getsize("out/model.safetensors")
assert 0.97 * most < has < most + 2e4, (most, has) # the header has 2e4 bytes at most'
