# rotate_online.sh - tests rotations that are computed in each forward pass: R3 and R4 of
# SpinQuantModifier, and QuIPModifier. Calibration, eval and verify must apply these rotations. The
# output bytes must not depend on threads, batch, targets and a kill. If transform_config is
# removed, the predictions of the output must be noise.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
recipe() { # arguments: file, modifier, modifiers after it
    printf 's_stage:\n  s_modifiers:\n    %s\n    %s\n' "$2" "$3" >"$1.yaml"
}
recipe alone "SpinQuantModifier: {rotations: [R1, R2, R3, R4]}" ""
recipe gptq "QuIPModifier: {rotations: [v, u]}" "GPTQModifier: {scheme: W4A16, ignore: [lm_head],
      kv_cache_scheme: {num_bits: 8, type: float}}"
recipe heads "SpinQuantModifier: {rotations: [R3], center_embeddings: true}" "QuantizationModifier: {scheme: FP8_DYNAMIC,
      ignore: [lm_head], kv_cache_scheme: {num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true}}"
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64)
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
head -c 12000 "$model/data/evaluation.txt" >evaluation.txt
ppl() { "$ONESHOT" eval --model "$1" --dataset evaluation.txt --progress none --max-seq-length 128 "${@:2}" | sed -n 's/^perplexity //p'; }
close() { awk "BEGIN {exit !(($1 - $2)^2 < $3)}"; }
dense=$(ppl "$model")

for r in alone gptq; do
    one $r plain --threads 1 >log 2>&1
    grep -q 'rotated while the model runs. vLLM supports this rotation on one NVIDIA GPU' log || fail "$r: no warning: $(cat log)"
    "$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
    sums plain >want.$r
    rm -rf out.$r && mv plain out.$r
    grep -q '"transform_config": {$' out.$r/config.json || fail "$r: no transform_config"
    one $r out --threads 3 --batch-size 4 --mem-opt-level 2 >/dev/null 2>&1
    same out want.$r "$r, threads and tier"
done
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one gptq out --threads 1 >log 2>&1
same out want.gptq "counted"
if INJECT_AT=$(($(cat calls) * 6 / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one gptq out --threads 1 >log 2>&1
then fail "the run was not killed"; fi
one gptq out --threads 2 >log 2>&1 || { cat log; fail "the run does not continue"; }
same out want.gptq "killed"
echo "same bytes"

p=$(ppl out.alone)
close "$dense" "$p" 0.25 || fail "perplexity $dense became $p"
few=(--max-windows 6) # few windows, because the rotations take most of the time of eval
d=$(ppl "$model" "${few[@]}") p=$(ppl out.gptq "${few[@]}")
close "$d" "$p" 9 || fail "perplexity $d became $p with 4 bits"
mkdir noise && cp out.alone/{model.safetensors,tokenizer*} noise/ && cp "$model/config.json" noise/
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' noise/config.json
p=$(ppl noise)
awk "BEGIN {exit !($p > 1000)}" || fail "perplexity $p without run-time rotations"
echo "rotated while it runs"

# The scales of rotated keys equal those of LLM Compressor 0.14.0.1, if its calibration is not
# forced to use eager attention. (With eager attention, LLM Compressor rotates only keys.)
one heads out.heads --threads 1 >log 2>&1
grep -q 'the scales of keys do not fit the keys that it caches' log || fail "heads: no warning: $(cat log)"
"$ONESHOT" verify out.heads --model "$model" >verify.txt || { cat verify.txt; fail "heads: verify fails"; }
sums out.heads >want.heads
one heads out --threads 3 --batch-size 4 --mem-opt-level 2 >/dev/null 2>&1
same out want.heads "heads, threads and tier"
python3 - <<'P'
import json, struct
want = {"k": [15543, 15627, 15591, 15519], "v": [15542, 15472, 15515, 15507]}
with open("out.heads/model.safetensors", "rb") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(n))
    assert header["model.layers.0.self_attn.R3_q_attn.weight"]["shape"] == [64, 64], sorted(header)
    for what, scales in want.items():
        for i, w in enumerate(scales):
            f.seek(8 + n + header[f"model.layers.{i}.self_attn.{what}_scale"]["data_offsets"][0])
            got, = struct.unpack("<H", f.read(2))
            assert abs(got - w) <= 1, (what, i, got, w)
groups = json.load(open("out.heads/config.json"))["quantization_config"]["transform_config"]["config_groups"]
assert [a["location"] for a in groups["R3"]["apply"]] == ["q_attn", "k_cache"] and groups["R3"]["head_dim"] == 64, groups
P
p=$(ppl out.heads)
close "$dense" "$p" 1 || fail "perplexity $dense became $p with rotated caches of 8 bits"
echo "rotated heads"

if one gptq again --model out.alone >log 2>&1; then fail "a second compression is not refused"; fi
grep -qE 'R[34] acts while the model runs: compressing such a model again is not supported' log || { cat log; fail "the message gives no reason"; }
"$ONESHOT" plan --verbose --model "$model" --recipe gptq.yaml "${data[@]}" 2>/dev/null >plan.txt
grep -q 'v in blocks of 512 at input while the model runs' plan.txt || { cat plan.txt; fail "the plan does not list the rotation"; }
grep -q 'only vLLM on one NVIDIA GPU, which' plan.txt || { cat plan.txt; fail "the plan does not name the loaders"; }
echo "refused, and said"
