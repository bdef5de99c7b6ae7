# python.sh - tests packaging/python without a wheel. Tests that recipes as objects, dicts, lists
# and text give the same plan, and that messages name the part of the recipe as the caller wrote it.
# Also tests the progress bar and the notebook.
set -euo pipefail
build=$(dirname "$ONESHOT") model=$OSH_SOURCE_DIR/examples/docs-llama-3m
[ -z "$SANITIZED" ] || { echo "the sanitizers' runtime is not loaded in python3"; exit 77; }
export PYTHONPATH=$OSH_SOURCE_DIR/packaging/python ONESHOT_LIBRARY=$build/liboneshot.so PYTHONDONTWRITEBYTECODE=1
python3 - "$model" <<'END'
import collections, contextlib, enum, io, os, pathlib, sys, types, typing
import oneshot as o

model = sys.argv[1]
data = model + "/data/calibration.jsonl"
few = dict(dataset=data, num_calibration_samples=4, max_seq_length=64, threads=2)
said = []

def planned(recipe, **more):
    plan = o.plan(model, recipe, log=lambda level, text: said.append(text), **dict(few, **more))
    return {key: plan[key] for key in ("quantization_config", "modules", "files", "tensors")}

def refused(kind, message, call):
    try:
        call()
    except kind as e:
        assert str(e).startswith(message), (message, str(e))
        assert "/recipe.yaml" not in str(e) and "/dataset.jsonl" not in str(e), str(e)
    else:
        raise AssertionError("was taken")

# The classes below stand for LLM Compressor's classes, which are pydantic models that dump all
# their fields. In a dump, None means the default, and a name with _ at the end is internal state. A
# sentinel (a unique object for "not set") cannot be written as YAML.
class Kind(str, enum.Enum):
    GROUP = "group"
class Model:
    def __init__(self, **fields):
        self.__dict__.update(fields)
    def model_dump(self):
        def plain(x):
            return x.model_dump() if isinstance(x, Model) else {k: plain(v) for k, v in x.items()} if isinstance(x, dict) else x
        return plain(self.__dict__)
class Quantizer(Model):
    unset = object()
    model_fields = {"device": types.SimpleNamespace(default=unset)}
    def __init__(self, **fields):
        super().__init__(config_groups=None, kv_cache_scheme=None, observer=None, initialized_=False, index=None,
                         requires_calibration_data=True, device=self.unset, scales_={3}, **fields)
class QuantizationModifier(Quantizer): pass
class GPTQModifier(Quantizer): # its dump makes a string of a sentinel
    static = object()
    model_fields = {**Quantizer.model_fields, "actorder": types.SimpleNamespace(default=static)}
    def __init__(self, **fields):
        super().__init__(**dict({"actorder": self.static}, **fields))
    def model_dump(self):
        return dict(super().model_dump(), actorder="static" if self.actorder is self.static else self.actorder)
class SmoothQuantModifier(Model): pass
class Recipe(Model): pass
gptq = dict(scheme="W4A16", targets=["Linear"], ignore=["lm_head"])
want = planned("s_stage:\n  q_modifiers:\n    GPTQModifier: {scheme: W4A16, targets: [Linear], ignore: [lm_head]}\n")
for recipe in (GPTQModifier(**gptq), [GPTQModifier(**gptq)], [[GPTQModifier(**gptq)]], Recipe(modifiers=[GPTQModifier(**gptq)]),
               {"GPTQModifier": gptq}, [{"GPTQModifier": gptq}], {"GPTQModifier": GPTQModifier(**gptq)},
               {"type": "GPTQModifier", **gptq}, {"s_stage": {"q_modifiers": {"GPTQModifier": gptq}}},
               {"q_modifiers": {"GPTQModifier": gptq}},
               'GPTQModifier: {scheme: W4A16, targets: [Linear], ignore: [lm_head]}',
               "# text\nGPTQModifier:\n  scheme: W4A16\n  targets:\n  - Linear\n  ignore:\n  - lm_head\n",
               '{"s_stage": {"q_modifiers": {"GPTQModifier": {"scheme": "W4A16", "targets": ["Linear"], "ignore": ["lm_head"]}}}}'):
    assert planned(recipe) == want, recipe
two = planned([SmoothQuantModifier(smoothing_strength=0.8), {"QuantizationModifier": dict(gptq, scheme="W8A8")}])
assert two == planned("s_stage:\n  q_modifiers:\n    SmoothQuantModifier: {smoothing_strength: 0.8}\n"
                      "    QuantizationModifier: {scheme: W8A8, targets: [Linear], ignore: [lm_head]}\n") != want
# A list may have two modifiers of the same name. An enum counts as its value.
assert planned([{"QuantizationModifier": dict(gptq, targets=["re:.*mlp.*"])}, {"QuantizationModifier": dict(gptq, targets=["re:.*attn.*"])}]) \
    ["modules"] == want["modules"]
weights = Model(num_bits=4, strategy=Kind.GROUP, group_size=32, zp_dtype=None)
groups = QuantizationModifier(ignore=["lm_head"])
groups.config_groups = {"g": Model(targets=["Linear"], weights=weights)}
assert planned(groups)["quantization_config"]["config_groups"]["g"]["weights"]["group_size"] == 32
# If the actorder of the modifier is not set, the group must keep its actorder. If the modifier has
# another actorder than the group, the recipe must be refused.
weights.actorder = "weight"
order = GPTQModifier(ignore=["lm_head"])
order.config_groups = groups.config_groups
assert planned(order)["quantization_config"]["config_groups"]["g"]["weights"]["actorder"] == "weight"
order.actorder = None
refused(o.OneshotError, "GPTQModifier.actorder is null but that of g is weight", lambda: planned(order))
del weights.actorder
assert planned(None, scheme="W4A16", output=None)["modules"] == want["modules"]

# Messages must name the part of the recipe, the row of data, or the argument as the caller wrote
# it.
groups.config_groups["g"].weights.num_bits = 77
refused(o.OneshotError, "recipe.config_groups.g.weights: ", lambda: planned(groups))
bad = dict(gptq, block_size=None)
refused(o.OneshotError, "recipe[1].block_size: ", lambda: planned([SmoothQuantModifier(), GPTQModifier(**bad)]))
refused(o.OneshotError, "recipe['GPTQModifier']['block_size']: ", lambda: planned({"GPTQModifier": bad}))
refused(o.OneshotError, "recipe[0]['GPTQModifier']['block_size']: ", lambda: planned([{"GPTQModifier": bad}]))
refused(o.OneshotError, "recipe['s_stage']['q_modifiers']['GPTQModifier']['block_size']: ",
        lambda: planned({"s_stage": {"q_modifiers": {"GPTQModifier": bad}}}))
refused(o.OneshotError, "recipe['GPTModifier']: unknown modifier 'GPTModifier': ", lambda: planned({"GPTModifier": gptq}))
refused(o.OneshotError, "recipe, line 2, column 3: unknown key 'shceme'", lambda: planned("GPTQModifier:\n  shceme: W4A16\n"))
refused(o.OneshotError, "recipe, line 4, column 5: unknown key", lambda: planned("s_stage:\n q_modifiers:\n  GPTQModifier:\n    x: 1\n"))
assert planned("GPTQModifier:\n  offload_hessians: true\n  scheme: W4A16\n  ignore: [lm_head]\n", log_level="info") == want
assert said[-1].startswith("recipe, line 2: offload_hessians"), said
refused(ValueError, "recipe: the key 'scheme' has 'W4A16', want the name of a modifier", lambda: planned(gptq))
refused(ValueError, "recipe: want at least one modifier, got []", lambda: planned([]))
refused(TypeError, "recipe[1]: want a path, YAML text", lambda: planned([{"GPTQModifier": gptq}, 3]))
refused(TypeError, "recipe['GPTQModifier']['ignore']: want a number, a text", lambda: planned({"GPTQModifier": dict(gptq, ignore={"a"})}))
odd = QuantizationModifier(**gptq)
odd.device = object()
refused(TypeError, "recipe.device: want a number, a text", lambda: planned(odd))
refused(o.OneshotError, "no column 'text', found 'txt'; while reading dataset[1]",
        lambda: planned(None, scheme="W4A16", method="gptq", dataset=["a", {"txt": "b"}]))
refused(o.OneshotError, "dataset: the dataset is empty", lambda: planned(None, scheme="W4A16", method="gptq", dataset=[]))
refused(TypeError, "dataset[1]: want a text or a dict", lambda: planned(None, scheme="W4A16", dataset=["a", 3]))
mixed = o.plan(model, scheme="W4A16", method="gptq", dataset={data: 0.75, model + "/data/evaluation.txt": None},
               num_calibration_samples=4, max_seq_length=64, threads=2)
assert [x["samples"] for x in mixed["data_sets"]] == [3, 1], mixed["data_sets"]
refused(TypeError, "dataset['a.jsonl']: want a share", lambda: planned(None, scheme="W4A16", dataset={"a.jsonl": "x"}))
refused(TypeError, "dataset: want a path, or texts", lambda: planned(None, scheme="W4A16", dataset=3))
two = [{"QuantizationModifier": dict(gptq, targets=["re:.*mlp.*"])}, {"QuantizationModifier": dict(gptq, targets=["re:.*attn.*"], scheme="W8A16")}]
refused(o.OneshotError, "output_dir is not given, and recipe has 2 schemes", lambda: o.oneshot(model, two))
assert not os.path.exists("docs-llama-3m-W8A16")
assert o.oneshot(model, {"QuantizationModifier": dict(gptq, scheme="W8A16")}) == "docs-llama-3m-W8A16"
# The command in the log must not name the temporary file of the recipe, because that file no longer
# exists.
log = open("docs-llama-3m-W8A16/oneshot.log").readline()
assert log.rstrip().endswith(" --recipe=recipe.yaml") and os.path.exists("docs-llama-3m-W8A16/recipe.yaml"), log
refused(TypeError, "output_dir is 'a' and output is 'b'", lambda: o.oneshot(model, scheme="W4A16", output_dir="a", output="b"))
refused(TypeError, "model: want a text, a path", lambda: o.plan(collections.Counter(), scheme="W4A16"))
refused(TypeError, "ignore[1]: want a text", lambda: planned(None, scheme="W4A16", ignore=["lm_head", {}]))
refused(TypeError, "progress: plan shows none", lambda: planned(None, scheme="W4A16", progress=True))
refused(TypeError, "progress: want True, False or a function", lambda: o.oneshot(model, scheme="W4A16", progress="bar"))

# Tests the progress bar with a replacement of tqdm and without tqdm. Messages are printed on
# sys.stderr.
class Bar(list):
    def __init__(self, **options): self.n, self.total = 0, options["total"]
    def set_description_str(self, text, refresh): self.append(text)
    def set_postfix_str(self, text, refresh): pass
    def refresh(self): self.append(self.n)
    def clear(self): self.append("clear")
    def close(self): bars.append(self)
bars = []
for tqdm in (Bar, None):
    sys.modules["tqdm"] = sys.modules["tqdm.auto"] = types.SimpleNamespace(tqdm=tqdm) if tqdm else None
    with contextlib.redirect_stderr(io.StringIO()) as err:
        assert o.oneshot(pathlib.Path(model), output="out%s" % bool(tqdm), scheme="W8A16", ignore="lm_hed", progress=True) \
            == "out%s" % bool(tqdm)
    assert "warn: ignore lm_hed of " in err.getvalue(), err.getvalue()
lines = [line for line in err.getvalue().splitlines() if not line.startswith("warn: ")]
assert "clear" in bars[0]
assert len(bars) == 1 and bars[0].n == bars[0].total == 100 and any("layers" in str(x) for x in bars[0]), bars
assert lines[-1].startswith("100%") and len(lines) > 4 and "layers" in lines[-2], lines
# On a terminal, a message erases the line of the bar.
class Terminal(io.StringIO):
    def isatty(self): return True
with contextlib.redirect_stderr(Terminal()) as err:
    bar = o.Bar()
    bar(o.Progress(1, 2, "layer", "solve", 1, 2, None, 5.0, None, None, False))
    job = types.SimpleNamespace(_bar=bar)
    o._Job._print(job, "warn", "a message")
    bar(o.Progress(2, 2, "layer", "solve", 2, 2, None, 3661.0, None, None, True))
    bar.close()
line = " 25%  [1/2] layer  solve 1/2  0:05 left"
assert err.getvalue() == "\r%s\r%s\rwarn: a message\n\r100%%  [2/2] layer  solve  1:01:01 left\n" % (line, " " * len(line)), err.getvalue()

# Every public function has types and a docstring.
for name in ("oneshot", "plan", "evaluate", "verify", "version"):
    f = getattr(o, name)
    assert f.__doc__ and set(typing.get_type_hints(f)) == {*f.__code__.co_varnames[:f.__code__.co_argcount + f.__code__.co_kwonlyargcount],
        *(["arguments"] if name != "version" else []), "return"}, name
END
cp "$OSH_SOURCE_DIR/examples/notebook.ipynb" .
ln -s "$model" docs-llama-3m
TMPDIR=$PWD python3 "$OSH_SOURCE_DIR/tests/tools/notebook.py" notebook.ipynb 2>bar
grep -q '^100%  \[6/6\] the output' bar || { cat bar; exit 1; }
