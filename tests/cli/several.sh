# several.sh - tests several modifiers in one traversal of the model. The first case is AWQ, then
# rounding of attention, then GPTQ of the MLP. Other cases are two quantizers with different
# targets, and stages in the order of the file. If the other modifiers do not change the inputs of a
# modifier, the result of this modifier must be the same without the other modifiers.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
recipe() { # arguments: file, modifiers
    printf 's_stage:\n  s_modifiers:\n' >"$1.yaml"
    printf '    %s\n' "${@:2}" >>"$1.yaml"
}
awq="AWQModifier: {n_grid: 4}"
attention="QuantizationModifier: {scheme: W4A16_ASYM, targets: ['re:.*self_attn.*']}"
mlp="GPTQModifier: {scheme: W4A16, targets: ['re:.*mlp.*']}"
recipe all "$awq" "$attention" "$mlp"
recipe rounded "$awq" "$attention"
recipe pair "$attention" "$mlp"
recipe riap "$mlp" "$attention"
recipe gptq "$mlp"
recipe smooth "SmoothQuantModifier: {}" "GPTQModifier: {scheme: W8A8, ignore: [lm_head]}"
printf '%s\n' 'a_stage:' '  x_modifiers:' '    SmoothQuantModifier: {}' 'b_stage:' '  y_modifiers:' \
    '    GPTQModifier: {scheme: W8A8, ignore: [lm_head]}' >stages.yaml
printf '%s\n' 'b_stage:' '  y_modifiers:' '    GPTQModifier: {scheme: W8A8, ignore: [lm_head]}' 'a_stage:' \
    '  x_modifiers:' '    SmoothQuantModifier: {}' >backwards.yaml
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64)
one() { # arguments: recipe, flags
    rm -rf "$1"
    "$ONESHOT" --model "$model" --recipe "$1.yaml" "${data[@]}" --progress none --output "$1" "${@:2}" >log 2>&1
}
cat >same.py <<'P'
"""same.py A B PATTERN: the tensors whose names match are the same bytes in both; prints how many, and how many are not"""
import json, pathlib, re, struct, sys
def tensors(out):
    raw = pathlib.Path(out, "model.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__" and re.search(sys.argv[3], k)}
a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
print(len(a), sum(a[k] != b.get(k) for k in a) + len(b.keys() - a.keys()))
P
tensors() { [ "$(python3 same.py "$1" "$2" "$3")" = "$4 0" ] || fail "$1 and $2: $3: $(python3 same.py "$1" "$2" "$3")"; }
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"

one all --profile profile.yaml || { cat log; fail "the run fails"; }
for r in rounded pair riap gptq; do one $r || { cat log; fail "$r: the run fails"; }; done
"$ONESHOT" verify all --model "$model" >verify.txt || { cat verify.txt; fail "verify fails"; }
for i in 0 1 2; do
    [ "$(grep -c "step: \"propagate model.layers.$i Start\"" profile.yaml)" = 1 ] || fail "layer $i does not have one pass of propagation"
done
# GPTQ solves nothing before the attention of layer 0, so `all` and `rounded` have the same codes of
# this attention. Rounding of attention does not change the inputs of the MLPs, because its errors
# are not propagated. So `pair`, `riap` and `gptq` have the same codes of the MLPs.
tensors all rounded 'layers\.0\.self_attn' 16
tensors pair gptq 'mlp\.' 36
tensors pair riap '.' 110
echo "one traversal, the same tensors"

one smooth
one stages
for r in smooth stages; do sums $r | grep -v 'recipe.yaml\|oneshot-manifest' >sums.$r; done
diff sums.smooth sums.stages || fail "stages make other bytes"
if one backwards; then fail "SmoothQuant after GPTQ is not refused"; fi
grep -q 'SmoothQuantModifier comes after GPTQModifier, which quantizes the weights of model.layers.0.self_attn.q_proj' log ||
    { cat log; fail "the message gives no reason"; }
# Tests a transform after a quantizer. The transform may change modules that this quantizer does not
# quantize.
after="AWQModifier: {n_grid: 4, mappings: [{smooth_layer: 're:.*post_attention_layernorm$',
        balance_layers: ['re:.*gate_proj$', 're:.*up_proj$']}]}"
of_attention="GPTQModifier: {scheme: W8A8, targets: ['re:.*self_attn.*']}"
of_mlp="QuantizationModifier: {scheme: W4A16, targets: ['re:.*mlp.*']}"
recipe between "$of_attention" "$after" "$of_mlp"
recipe attention "$of_attention"
recipe plain "$of_attention" "$of_mlp"
for r in between attention plain; do one $r || { cat log; fail "$r: the run fails"; }; done
"$ONESHOT" verify between --model "$model" >verify.txt || { cat verify.txt; fail "between: verify fails"; }
tensors between attention 'layers\.0\.self_attn' 8
tensors between attention 'input_layernorm' 4
[ "$(python3 same.py between plain 'layers\.0\.post_attention_layernorm')" = "1 1" ] || fail "a pair of layers after a quantizer gets no factors"
echo "stages in the order of the file"

one gptq --pipeline independent
mv gptq independent && one gptq
tensors gptq independent '.' 62
one smooth --pipeline independent || { cat log; fail "independent: the run fails"; }
[ "$(python3 same.py smooth stages 'layers\.0\.self_attn')" = "8 0" ] || fail "layer 0 has other weights than wanted"
[ "$(python3 same.py smooth stages 'layers\.3\.mlp.*weight$')" = "3 3" ] || fail "independent gives the bytes of sequential"
echo "independent of one modifier and of two"

# A vision tower gets no text. One modifier rounds or prunes the tower without data, and GPTQ solves
# the text model. A pruner that needs data leaves the tower dense.
"$OSH_TOOLS/tiny_model" llava llava
two() { # arguments: recipe for the tower, recipe for the text model
    printf 's_stage:\n  s_modifiers:\n    %s\n    %s\n' "$@" >two.yaml
    rm -rf out
    "$ONESHOT" --model llava --recipe two.yaml --dataset llava/calibration.jsonl --output out --progress none >log 2>&1 &&
        "$ONESHOT" verify out --model llava >>log 2>&1 || fail "$*: $(cat log)"
}
text='GPTQModifier: {scheme: W8A8, targets: ["re:.*language_model.*proj"], ignore: ["re:.*lm_head"]}'
two 'QuantizationModifier: {scheme: W8A8, targets: ["re:.*vision_tower.*"]}' "$text"
grep -q '"vision_tower[^"]*fc1.weight_scale"' out/oneshot-manifest.json || fail "the tower is dense"
two 'MagnitudePruningModifier: {final_sparsity: 0.5, targets: ["re:.*vision_tower.*"]}' "$text"
for pruner in SparseGPTModifier WandaPruningModifier; do
    two "$pruner: {sparsity: 0.5, ignore: ['re:.*lm_head'], targets: Linear}" ''
    grep -q '14 modules checked' log || fail "$pruner: $(cat log)"
done
"$ONESHOT" plan --model llava --recipe two.yaml --dataset llava/calibration.jsonl --verbose |
    grep -q '^dense: vision_tower.encoder.layers.\*.mlp.fc1 (1, .*it does not process text' || fail "the message gives no reason"
