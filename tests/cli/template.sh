# template.sh - tests the functions of python -m oneshot.template that need no torch. These
# functions find the names of sizes, constants and layers, write a small config.json and the sizes
# in templates, and print messages. template_torch.sh tests the other functions.
set -euo pipefail
[ -z "$SANITIZED" ] || { echo "the sanitizers' runtime is not loaded in python3"; exit 77; }
export PYTHONPATH=$OSH_SOURCE_DIR/packaging/python ONESHOT_LIBRARY=$(dirname "$ONESHOT")/liboneshot.so PYTHONDONTWRITEBYTECODE=1
python3 - "$OSH_SOURCE_DIR" <<'END'
import collections, json, sys
from oneshot._names import SHAPES, Names, evaluate, join_kinds, layer_rule, print_template, window_rule
from oneshot._sizes import stored_shape, wrong_sizes
from oneshot._small import SIZES, TOKENS, layers_needed, make_small

def same(got, want):
    assert got == want, (got, want)

# Expressions have the values that src/graph/template.c computes.
value = {"H": 6, "Dh": 16, "F": 88, "x": 4}.__getitem__
for text, want in (("H*Dh", 96), ("H*Dh+F-8", 176), ("1/sqrt(Dh)", 0.25), ("F/x/2", 11), (7, 7)):
    same(evaluate(text, value), want)

# All sizes of a small model differ, so that each size has only one name.
keys = {symbol: names[0] for symbol, (names, _) in SIZES.items()}
numbers = {names[0]: size for names, size in SIZES.values()}
names = Names(keys, dict(numbers, rms_norm_eps=0.0137, residual_multiplier=0.22, attn_scalar=311, n_shared_experts=3), ["rms_norm_eps"])
sizes = collections.defaultdict(list)
for shape in SHAPES:
    sizes[evaluate(shape, names.values.__getitem__)].append(shape)
same([s for s in sizes.values() if len(s) > 1], [])
assert TOKENS not in sizes
for n, want in ((130, "D"), (160, "H*Dh"), (320, "H*Dh+K*Dh+K*Dh"), (176, "F+F"), (156, "Fe*n_shared_experts"), (1234, 1234)):
    same(names.size(n), want)
for x, want in ((0.22, "residual_multiplier"), (0.0137, "rms_norm_eps"), (311**-0.5, "1/sqrt(attn_scalar)"), (130**0.5, "sqrt(D)"),
                (0.22 / 2**0.5, "residual_multiplier/sqrt(L)"), (0.3, 0.3)):
    same(names.number(x), want)
assert names.used >= {"residual_multiplier", "n_shared_experts"}
same(Names({"D": "n_embd", "H": "n_head"}, {"n_embd": 96, "n_head": 6, "n_ctx": 256}).dims,
     {"D": "n_embd", "H": "n_head", "Dh": "n_embd/n_head", "K": "n_head", "max_position_embeddings": "n_ctx"})

# Layers may be chosen by a list of config.json, by a key, or by a number.
types = ["sliding_attention", "full_attention"] * 2
slides = [True, False, True, False]
same(layer_rule(slides, {"layer_types": types}, {}, {"layer_types"}), (0, {"list": "layer_types", "is": "sliding_attention"}))
same(layer_rule(slides, {"layer_types": types}, {}, set())[1], {"list": "layer_types", "is": "sliding_attention", "every": 2})
same(layer_rule([True, True, False], {"no_rope": [1, 1, 0]}, {}, {"no_rope"}), (0, {"list": "no_rope"}))
same(layer_rule([False, True, True], {}, {"first_k_dense_replace": 1, "topk": 1}, set()), (1, {"from": "first_k_dense_replace"}))
same(layer_rule([True, False, True, False], {}, {}, set())[1]["every"], 2)
same(layer_rule([False, False, True], {}, {}, set()), (4, {"from": 2}))
same(layer_rule([True, False, False, True], {}, {}, set()), None)
same(window_rule([7, 7], "w", {}, {}), {"size": "w"})
same(window_rule([7, 0, 7, 0], "w", {"layer_types": types}, {}), {"size": "w", "layers": "layer_types", "every": 2})
same(window_rule([7, 0, 0, 7], "w", {}, {}), None)

# Layers of two kinds become one list. Nodes that both kinds have are outside of "if".
a, b, c, d = ({"op": x} for x in "abcd")
flags = {}
rule = lambda chosen: layer_rule(chosen, {}, {"first_k_dense_replace": 1}, set())
same(join_kinds([[a, b, d], [a, c, c, d], [a, c, c, d]], rule, flags), [a, {"if": "kind1", "nodes": [c, c], "else": [b]}, d])
same(flags, {"kind1": {"from": "first_k_dense_replace"}})
same(join_kinds([[a], [a]], rule, {}), [a])
same(join_kinds([[a], [b], [b], [a]], rule, {}), None)

# Tests the small config.json.
raw = {"hidden_size": 4096, "num_hidden_layers": 6, "num_attention_heads": 32, "vocab_size": 9, "intermediate_size": 5,
       "layer_types": types + types[:2], "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "residual_multiplier": 1.0}
small, found, changed = make_small(raw, dict(raw, num_key_value_heads=8, sliding_window=4096, bos_token_id=5))
same((small["hidden_size"], small["num_hidden_layers"], small["num_key_value_heads"], small["sliding_window"]), (160, 2, 5, 7))
same((small["layer_types"], small["torch_dtype"], small["bos_token_id"]), (types[:2], "float32", 1))
assert small["rms_norm_eps"] > 0.01 and small["residual_multiplier"] != 1 and changed == ["residual_multiplier", "rms_norm_eps"]
same(make_small(raw, raw, False)[0]["rms_norm_eps"], 1e-6)
same(layers_needed({"layer_types": ["s"] * 5 + ["f"]}, 6), 6)

# A printed template must be read back as the same JSON. Each size in a template must be a size of
# its model, or a listed exception.
source = sys.argv[1]
template = json.load(open(source + "/models/llama.json"))
same(json.loads(print_template(template)), template)
model = source + "/examples/docs-llama-3m"
config = json.load(open(model + "/config.json"))
data = open(model + "/model.safetensors", "rb")
shapes = {k: v["shape"] for k, v in json.loads(data.read(int.from_bytes(data.read(8), "little"))).items() if "shape" in v}
same(wrong_sizes(template, config, shapes), [])
template["after"][0]["weight"] = ["F"]
shapes["model.layers.3.self_attn.k_proj.weight"] = [1, 2]
wrong = wrong_sizes(template, config, shapes)
stacked = {"weight": ["F", "D"], "part": {"weight": "experts.up", "at": "e", "transposed": True}}
same(stored_shape("x", stacked, {"layers.0.experts.up": [4, 32, 128]}, "layers.0."), [None, 32])
del stacked["part"]["at"]
same(stored_shape("x", stacked, {"layers.0.experts.up": [32, 64]}, "layers.0."), [64, 32])
assert len(wrong) == 2 and wrong[0].startswith("model.norm.weight is ") and "by the template, ['K*Dh', 'D']" in wrong[1], wrong
END

refuses() { # arguments: wanted text, then a command
    local want=$1
    shift
    if "$@" >out 2>&1; then echo "was taken: $*"; exit 1; fi
    grep -qF -- "$want" out || { echo "no '$want' in: $(cat out)"; exit 1; }
}
mkdir none empty
echo '{"architectures": []}' >empty/config.json
refuses 'cannot read none/config.json' python3 -m oneshot.template none
refuses 'empty/config.json: architectures is [], want a list with the name of a class' python3 -m oneshot.template empty
echo '{"architectures": ["OddForCausalLM"]}' >empty/config.json
# Tests Python without torch.
cat >without.py <<'END'
import runpy, sys
sys.modules["numpy"] = sys.modules["torch"] = None
sys.argv = ["template", "empty"]
runpy.run_module("oneshot.template", run_name="__main__")
END
refuses 'want torch, transformers and safetensors' python3 without.py
python3 -m oneshot.template --help | grep -q trust-remote-code
