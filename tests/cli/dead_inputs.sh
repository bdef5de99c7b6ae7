# dead_inputs.sh - tests a Linear whose inputs are 0 for all tokens. A pruner must prune it by
# magnitude, GPTQ must round it to nearest, and the log must name it. If only some input channels
# are 0, GPTQ must set their weights to 0, as LLM Compressor does, and print their number. verify
# must reject a weight of zeros.
set -euo pipefail
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
"$OSH_TOOLS/make_model" model hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=64 samples=4 tokens=16
attn=model.layers.0.self_attn
python3 "$OSH_SOURCE_DIR/tests/tools/clear_tensor.py" model $attn.v_proj.weight # o_proj reads zeros
"$OSH_TOOLS/st_edit" model fill model.layers.1.input_layernorm.weight 0 6 000000000000 # 3 channels
run() { # arguments: name, flags; prunes with the modifiers of $name.yaml and verifies the output
    "$ONESHOT" --model model --recipe $1.yaml --dataset model/calibration.jsonl --progress none --output $1 "${@:2}" >log 2>&1 || fail "$1"
    "$ONESHOT" verify $1 --model model >verify.log 2>&1 || { cat verify.log; fail "verify of $1 fails"; }
}
I='ignore: ["re:.*lm_head"]'
scheme='config_groups: {all: {targets: [Linear], weights: {num_bits: 8, type: int, strategy: group, group_size: 32}}}'
gptq="GPTQModifier: {$scheme, $I}"
recipe() { # arguments: name, modifiers
    printf 's_stage:\n  s_modifiers:\n' >$1.yaml
    printf '    %s\n' "${@:2}" >>$1.yaml
    run $1
    python3 - $1 $attn.o_proj <<'P2'
import json, sys
modules = {m["name"]: m for m in json.load(open(sys.argv[1] + "/oneshot-report.json"))["modules"]}
m = modules[sys.argv[2]]
assert m["relative_squared_error"] < 0.4, m # 1: all weights are 0
assert "its inputs were all 0" in m.get("fallback", ""), m
P2
}
recipe gptq "$gptq"
grep -q "warning: $attn.o_proj: its inputs were all 0: rounded to nearest" log || fail "no warning"
n=$(grep -c 'warning: model.layers.1.self_attn.[qkv]_proj: 3 of 64 input channels were 0 for all tokens: their weights become 0' log) || true
[ "$n" = 3 ] || fail "found $n Linears with three dead channels, wanted 3"
! "$ONESHOT" --model model --recipe gptq.yaml --dataset model/calibration.jsonl --progress none --output strict --strict >log 2>&1 || fail strict
grep -q "$attn.o_proj: its inputs were all 0: rounded to nearest; --strict allows no fallback" log || fail strict
recipe original "GPTQModifier: {$scheme, $I, target: original, scale_search: ldl, refine: [descend]}"
for pruner in "MagnitudePruningModifier: {init_sparsity: 0.0, final_sparsity: 0.5, targets: ['re:.*layers.*']}" \
    "WandaPruningModifier: {sparsity: 0.5, targets: [LlamaDecoderLayer]}" "SparseGPTModifier: {sparsity: 0.5, $I}"; do
    name=${pruner%%Modifier*}
    recipe $name "$pruner" "$gptq"
    cp -r $name zero
    python3 - zero $attn.o_proj <<'P2'
import json, pathlib, sys
sys.path.insert(0, __import__("os").environ["OSH_SOURCE_DIR"] + "/tests/tools")
from tensors import read, write
out, name = pathlib.Path(sys.argv[1]), sys.argv[2]
t = read(out / "model.safetensors")
dtype, shape, raw = t[name + ".weight_packed"]
t[name + ".weight_packed"] = (dtype, shape, b"\x80" * len(raw))
write(out / "model.safetensors", t)
m = json.loads((out / "oneshot-manifest.json").read_text())
next(x for x in m["modules"] if x["name"] == name)["relative_squared_error"] = 1
(out / "oneshot-manifest.json").write_text(json.dumps(m, indent=1))
P2
    "$OSH_TOOLS/st_edit" zero manifest
    ! "$ONESHOT" verify zero --model model >log 2>&1 || fail "$name: verify accepts a weight of zeros"
    grep -q "$attn.o_proj: all weights are 0, wanted values that are not 0" log || fail "$name: verify does not report weights of zeros"
    rm -rf zero
done
