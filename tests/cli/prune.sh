# prune.sh - tests a pruner alone, and a pruner and a quantizer in one traversal. The output bytes
# must not depend on threads, batch, tier, budget or a kill. The predicted memory must be enough.
# Pruned weights must still be zeros after quantization, and verify must find one that is not zero.
# Impossible jobs must be refused.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
recipe() { # arguments: file, modifiers
    printf 's_stage:\n  s_modifiers:\n    %s\n    %s\n' "$2" "${3:-}" >"$1.yaml"
}
sparse='SparseGPTModifier: {sparsity: 0.5, mask_structure: "2:4", ignore: ["re:.*lm_head"]}'
recipe alone "$sparse"
recipe codes "$sparse" "GPTQModifier: {scheme: W4A16_ASYM, ignore: [lm_head]}"
recipe wanda "WandaPruningModifier: {sparsity: [0.3, 0.4, 0.5, 0.6], targets: LlamaDecoderLayer}" \
    "QuantizationModifier: {scheme: FP8_DYNAMIC, ignore: [lm_head, 're:.*down_proj']}"
recipe any "SparseGPTModifier: {sparsity: 0.6, block_size: 64, preserve_sparsity_mask: true, targets: ['re:.*mlp']}"
recipe least "MagnitudePruningModifier: {init_sparsity: 0.0, final_sparsity: 0.4, targets: ['re:.*layers.*']}"
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64)
one() { # arguments: recipe, output
    local d=("${data[@]}")
    [ "$1" != least ] || d=()
    "$ONESHOT" --model "$model" --recipe "$1.yaml" "${d[@]}" --progress none --output "$2" "${@:3}"
}
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
declare -A how=([layer]="" [Linear]="--sequential-targets Linear" [basic]="--pipeline basic")
runs=("alone layer" "codes Linear" "wanda basic" "any layer" "least layer")
[ -z "$SANITIZED" ] || runs=("codes Linear" "least layer")
for what in "${runs[@]}"; do
    read -r r t <<<"$what"
    flags=(${how[$t]})
    one $r plain "${flags[@]}" --threads 1 >/dev/null
    sums plain >want
    "$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "$what: verify fails"; }
    grep -q '28 modules checked\|12 modules checked' verify.txt || { cat verify.txt; fail "$what: verify does not check all modules"; }
    rm -rf "out.$r" && mv plain "out.$r"
    one $r out "${flags[@]}" --threads 3 --batch-size 4 >/dev/null
    same out want "$what, threads and batch"
    [ $r != least ] || continue
    least=$("$ONESHOT" plan --model "$model" --recipe "$r.yaml" "${data[@]}" "${flags[@]}" --json |
        sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
    one $r out "${flags[@]}" --mem-opt-level 2 --threads 2 --device-memory $((least + 60000)) >/dev/null
    python3 - <<'P'
import json, os
m = json.load(open("out/oneshot-report.json"))["memory"]
assert os.environ["SANITIZED"] or m["peak_bytes"] <= m["predicted_peak_bytes"], m
P
    same out want "$what, the smallest device memory"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one $r out "${flags[@]}" --mem-opt-level 2 >log 2>&1
    same out want "$what, counted"
    for share in 50 85; do
        if INJECT_AT=$(($(cat calls) * share / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
            one $r out "${flags[@]}" --mem-opt-level 2 >log 2>&1; then fail "$what: the run was not killed"; fi
        one $r out "${flags[@]}" --mem-opt-level 2 >log 2>&1 || { cat log; fail "$what: the run does not continue"; }
        same out want "$what, killed at $share %"
    done
done
echo "same bytes"

# Tests the predicted memory. The pruner needs Hessians, which take most of the memory; the
# quantizer needs none.
if [ -z "$SANITIZED" ]; then
    "$OSH_TOOLS/make_model" wide hidden=64 intermediate=3072 heads=2 kv=2 layers=1 vocab=512 samples=2 tokens=64
    recipe wide "SparseGPTModifier: {sparsity: 0.5, targets: [LlamaDecoderLayer]}" \
        "QuantizationModifier: {scheme: FP8_DYNAMIC, ignore: [lm_head]}"
    "$ONESHOT" --model wide --dataset wide/calibration.jsonl --recipe wide.yaml --num-calibration-samples 2 \
        --max-seq-length 64 --progress none --output out >/dev/null
    python3 - <<'P'
import json
m = json.load(open("out/oneshot-report.json"))["memory"]
assert m["peak_bytes"] <= m["predicted_peak_bytes"], m
P
    rm -rf out wide
fi

# Pruning alone gives a dense model with zeros at the expected positions. verify finds a changed
# value.
python3 - <<'P'
import json, os, struct
if os.environ["SANITIZED"]:
    raise SystemExit
for name in ("alone", "least", "any"):
    config = json.load(open(f"out.{name}/config.json"))
    assert "quantization_config" not in config, name
    path = f"out.{name}/model.safetensors"
    with open(path, "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        entry = header["model.layers.1.mlp.up_proj.weight"]
        f.seek(8 + n + entry["data_offsets"][0])
        words = struct.unpack(f"<{entry['shape'][1]}H", f.read(2 * entry["shape"][1]))
        zero = next(i for i, w in enumerate(words) if w & 0x7fff == 0)
        f.seek(8 + n + entry["data_offsets"][0] + 2 * zero)
        f.write(b"\x80\x3f")
P
if [ -z "$SANITIZED" ]; then
    for r in alone least; do
        ! "$ONESHOT" verify out.$r --model "$model" >verify.txt || fail "$r: a 1 instead of a 0 is not found"
        grep -q 'model.layers.1.mlp.up_proj: \(row 0 has fewer\|row 0, column\)' verify.txt || { cat verify.txt; fail "$r: verify does not name the row"; }
    done
fi

# OWL computes a sparsity for each layer. This sparsity must be near that of LLM Compressor
# (tests/golden/prune/owl.py).
owl='{sparsity: 0.5, sparsity_profile: OWL, owl_m: 3, owl_lmbda: 0.1, targets: [LlamaDecoderLayer]}'
recipe owl "WandaPruningModifier: $owl"
one owl plain --threads 1 >/dev/null
sums plain >want
python3 - "$OSH_SOURCE_DIR/tests/golden/prune/owl.json" <<'P'
import json, re, struct, sys
found = json.loads(re.search("layer_sparsities: (.*)", open("plain/recipe.yaml").read())[1])
want = json.load(open(sys.argv[1]))
assert found.keys() == want.keys() and all(abs(found[k] - want[k]) < 0.005 for k in want), (found, want)
raw = open("plain/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
for name, e in json.loads(raw[8:8 + n]).items():
    if not name.endswith("_proj.weight"):
        continue
    w = struct.unpack(f"<{e['shape'][0] * e['shape'][1]}H", raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])
    zeros = sum(x & 0x7fff == 0 for x in w) / len(w)
    assert abs(zeros - found[".".join(name.split(".")[:3])]) < 0.01, (name, zeros)
P
one owl out --threads 3 --batch-size 4 >/dev/null
same out want "OWL, threads and batch"
"$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "OWL: verify fails"; }
"$ONESHOT" plan --verbose --model "$model" --recipe owl.yaml "${data[@]}" >plan.txt
grep -q '^outliers of the layers are measured first' plan.txt || { cat plan.txt; fail "OWL: the plan does not name the measurement of outliers"; }
one owl plain | grep -q 'is finished' || fail "OWL: the same command does not find the finished output"
rm -rf plain
# The attention of an Olmo 3 layer reads the output of the layer before, without a norm. The wanted
# numbers are those of "owl.py olmo3 olmo3/calibration.jsonl 4 2048 0.5 3 0.1 --ids".
"$OSH_TOOLS/tiny_model" olmo3 olmo3
recipe olmo "WandaPruningModifier: {sparsity: 0.5, sparsity_profile: owl, owl_m: 3, owl_lmbda: 0.1, ignore: [lm_head]}"
"$ONESHOT" --model olmo3 --recipe olmo.yaml --dataset olmo3/calibration.jsonl --progress none --output plain >/dev/null
python3 - <<'P'
import json, re
found = json.loads(re.search("layer_sparsities: (.*)", open("plain/recipe.yaml").read())[1])
want = [0.62057, 0.49557, 0.46328, 0.42057]
assert all(abs(found[f"model.layers.{i}"] - w) < 0.005 for i, w in enumerate(want)), (found, want)
P
rm -rf plain olmo3
echo "outliers of layers"

refused() { # arguments: modifiers, part of the message, flags
    recipe bad "$1" "${4:-}"
    code=0
    "$ONESHOT" plan --model "$model" --recipe bad.yaml "${data[@]}" ${3:-} >msg 2>&1 || code=$?
    [ $code -gt 0 ] && grep -qF -- "$2" msg || { cat msg; fail "not refused: $1"; }
}
refused 'SparseGPTModifier: {sparsity: 1}' "sparsity: want a number from 0 to below 1, got '1'"
refused 'SparseGPTModifier: {}' "has no sparsity and no mask_structure N:M"
refused 'SparseGPTModifier: {sparsity: 0.5, mask_structure: "4:4"}' "mask_structure '4:4': want N:M with N below M"
refused 'SparseGPTModifier: {sparsity: 0.5, mask_structure: "2:24"}' "block_size 128 is not a multiple of the 24 columns"
refused 'WandaPruningModifier: {sparsity: 0.5, mask_structure: "2:7"}' "which mask_structure 2:7 does not divide"
refused 'SparseGPTModifier: {sparsity: 0.5, sparsity_profile: owl, owl_m: 5, owl_lmbda: 0.1}' "lm_head is not in a decoder layer"
refused 'SparseGPTModifier: {sparsity: 0.5, sparsity_profile: owl, owl_m: 5}' "owl_m and owl_lmbda go together"
refused 'WandaPruningModifier: {sparsity: 0.5, mask_structure: "2:4", sparsity_profile: owl, owl_m: 5, owl_lmbda: 0.1}' \
    "mask_structure 2:4 and sparsity_profile owl both set the sparsity"
refused 'WandaPruningModifier: {sparsity: [0.5, 0.6], targets: LlamaDecoderLayer}' "has 2 sparsities, and its targets are 4"
refused 'WandaPruningModifier: {sparsity: 0.5, block_size: 3}' "unknown key 'block_size'"
refused 'MagnitudePruningModifier: {final_sparsity: 0.5, mask_structure: filter}' "want unstructured"
refused 'MagnitudePruningModifier: {final_sparsity: 0.5, apply_globally: true}' "apply_globally"
refused "$sparse" "would change its zeros" "" "GPTQModifier: {scheme: W4A16, quality: best}"
refused "$sparse" "is a target of SparseGPTModifier and of WandaPruningModifier" "" "WandaPruningModifier: {sparsity: 0.5}"
refused "GPTQModifier: {scheme: W4A16}" "comes after GPTQModifier, which quantizes" "" "$sparse"
refused "$sparse" "comes after SparseGPTModifier, which prunes" "" "AWQModifier: {}"
echo "impossible jobs are refused"
