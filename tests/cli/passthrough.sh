# passthrough.sh - tests --calib-passthrough. With this flag, the result of a slice must get the
# range of the slice's input, if the input is observed in the same subgraph. The plan must list
# these results. Budgets, sequential targets and second passes must not change the ranges.
set -euo pipefail
fail() { echo "$*"; exit 1; }
scales() { # arguments: output, ending of the name; prints the F32 or BF16 numbers
    python3 - "$@" <<'P'
import json, struct, sys
with open(sys.argv[1] + "/model.safetensors", "rb") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    for name, e in sorted(json.loads(f.read(n)).items()):
        if not name.endswith(sys.argv[2]): continue
        f.seek(8 + n + e["data_offsets"][0])
        raw = f.read(e["data_offsets"][1] - e["data_offsets"][0])
        bits = struct.unpack("<H", raw)[0] << 16 if e["dtype"] == "BF16" else struct.unpack("<I", raw)[0]
        print(struct.unpack("<f", struct.pack("<I", bits))[0])
P
}
run() { # arguments: model, recipe, output, flags
    "$ONESHOT" --model "$1" --recipe "$2.yaml" --dataset "$1/calibration.jsonl" --progress none --output "$3" "${@:4}" >/dev/null 2>log ||
        { cat log; fail "failed: $*"; }
}
plan() { "$ONESHOT" plan --verbose --model "$1" --recipe "$2.yaml" --dataset "$1/calibration.jsonl" "${@:3}" 2>&1 || true; }
"$OSH_TOOLS/tiny_model" phi3 phi3
"$OSH_TOOLS/tiny_model" deepseek_v2 deepseek

# In a model without rope, queries, keys and values are slices of one projection and share its
# range.
mkdir models
python3 - "$OSH_SOURCE_DIR/models/phi3.json" <<'P'
import json, sys
t = json.load(open(sys.argv[1]))
nodes = t["layer"]["nodes"]
kept = [n for n in nodes if n.get("op") != "rope"]
assert len(kept) == len(nodes) - 2
next(n for n in kept if n.get("op") == "attention")["in"] = ["q", "k", "v"]
t["layer"]["nodes"] = kept
json.dump(t, open("models/phi3.json", "w"))
P
group='input_activations: {num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true, observer: static_minmax}'
echo "s_modifiers: {QuantizationModifier: {config_groups: {g: {targets: ['re:.*self_attn\$'], $group}}}}" >attention.yaml
run phi3 attention seen --models-dir models
run phi3 attention passed --models-dir models --calib-passthrough slice
paste <(scales seen q_scale) <(scales seen k_scale) <(scales seen v_scale) |
    awk '{ m = $1; if ($2 > m) m = $2; if ($3 > m) m = $3; print m }' >want.txt
[ -s want.txt ] || fail "the output has no scales"
[ "$(scales seen q_scale)" != "$(scales seen k_scale)" ] || fail "all ranges are the same: the test cannot fail"
for leaf in q_scale k_scale v_scale; do diff want.txt <(scales passed $leaf) || fail "$leaf"; done
plan phi3 attention --models-dir models --calib-passthrough slice >plan.txt
for what in keys values queries; do
    grep -q "^not observed: $what of model.layers.\*.self_attn.o_proj, .*: the range is that of model.layers.\*.qkv" plan.txt || fail "$(cat plan.txt)"
done

# Queries and keys are still observed, because they are results of rope. Values are observed, too,
# if each head has its own range, because the range of the projection is not per head. Values are
# also observed if "no-slice" follows "slice" in the list of ops: "no-slice" removes "slice".
plan phi3 attention --calib-passthrough slice | grep '^not observed' >list.txt
[ "$(wc -l <list.txt)" = 1 ] && grep -q '^not observed: values' list.txt || fail "$(cat list.txt)"
sed 's/strategy: tensor/strategy: attn_head/' attention.yaml >heads.yaml
if plan phi3 heads --calib-passthrough slice | grep '^not observed'; then fail "heads"; fi
if plan phi3 attention --calib-passthrough slice,no-slice | grep '^not observed'; then fail "no-slice"; fi
plan phi3 attention --calib-passthrough rope | grep -q 'rope computes new values with another range: want slice' || fail "rope"
plan phi3 attention --calib-passthrough slicer | grep -q 'slicer is not an op: want slice' || fail "slicer"

# DeepSeek's attention appends zeros to the values of each head, and a slice removes them before a
# Linear. The zeros do not change the smallest and the largest value, but they change percentiles.
acts() { # arguments: observer, kwargs
    echo "s_modifiers: {GPTQModifier: {ignore: [lm_head], config_groups: {g: {targets: [Linear], weights: {num_bits: 8, strategy: channel},
        input_activations: {num_bits: 8, dynamic: false, strategy: tensor, observer: $1, observer_kwargs: {$2}}}}}}"
}
acts static_minmax '' >ends.yaml
acts layerwise_percentile 'exact: true, first: 70, second: 80, third: 90' >percentiles.yaml
run deepseek ends ends
run deepseek ends ends.passed --calib-passthrough slice
cmp ends/model.safetensors ends.passed/model.safetensors || fail "the outputs of both recipes have other bytes"
plan deepseek ends --calib-passthrough slice --json | grep -A3 '"module": "model.layers.1.self_attn.o_proj"' | grep -q '"range_of": "model.layers.1.c"' || fail json
run deepseek percentiles seen.lwp
run deepseek percentiles passed.lwp --calib-passthrough slice
if cmp -s seen.lwp/model.safetensors passed.lwp/model.safetensors; then fail "o_proj's input is observed"; fi
least=$(plan deepseek percentiles --calib-passthrough slice --host-memory 4MiB | sed -n 's/.*want at least --host-memory \([0-9]*MiB\).*/\1/p')
ways=("--calib-cache disk --threads 1" "--calib-cache recompute --batch-size 3")
# the plan does not count the memory of a sanitizer
[ -n "$SANITIZED" ] || ways+=("--host-memory $least")
for how in "${ways[@]}"; do
    run deepseek percentiles out --calib-passthrough slice $how
    cmp out/model.safetensors passed.lwp/model.safetensors || fail "the output has other bytes: $how"
    rm -rf out
done
# With single Linears as targets, the input of the slice is in an earlier subgraph.
if plan deepseek percentiles --calib-passthrough slice --sequential-targets Linear | grep '^not observed'; then fail "Linears"; fi
