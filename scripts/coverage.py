#!/usr/bin/env python3
"""coverage.py - lists the architectures that have a template, and how each template is tested.

usage: coverage.py [--write] [--registry FILE]
       in an environment with transformers
       coverage.py --check
       needs no packages; exits with 1 in these cases: an architecture of models/ has no proof in
       tests/golden/families/proofs.json, no golden logits, or no row on the page; the page has an
       architecture that is not in models/; the page has other counts than this script

Prints a line for each architecture of models/, of vLLM, and of transformers' AutoModelForCausalLM,
AutoModelForImageTextToText and AutoModelForMultimodalLM. --write makes docs/reference/models.md.

tests/golden/families/vllm.json has the names in vLLM's registry. --registry FILE makes this file
from vllm/model_executor/models/registry.py of a wheel or a checkout. The script reads FILE as text,
and does not import it. --version NUMBER is vLLM's version."""
import argparse
import ast
import json
import pathlib
import re
import sys

import proofs

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "models.md"
FAMILIES = ROOT / "tests" / "golden" / "families"
VLLM = FAMILIES / "vllm.json"
KINDS = ("text", "multimodal")
# Reasons why architectures have no template. Some of the architectures are in no registry.
SCAN1 = "no op for Mamba layers that have several heads"
NOWHERE = "neither transformers 5.17 nor vLLM 0.32 has this class"
LOOPS = "no template for stacks of layers that run in turns"
WHY = {
    "ZambaForCausalLM": SCAN1, "Lfm3ForCausalLM": NOWHERE,
    "HrmTextForCausalLM": LOOPS, "InklingForCausalLM": "no op for relative positions", "InklingForConditionalGeneration": "no op for relative positions",
    "Blip2ForConditionalGeneration": "transformers' class does not run without an image",
    "RwkvForCausalLM": "no op for the recurrence of RWKV",
    "xLSTMForCausalLM": "no op for the recurrence of xLSTM", "RecurrentGemmaForCausalLM": "no op for the recurrence of RecurrentGemma",
}
SCALE = "logits are multiplied by logit_scale, which transformers 5.17 leaves out"
SCALE_G = "logits are divided by logits_scaling, which transformers 5.17 leaves out"
TWIN = "transformers has no class of this name: "
STACKED = "experts stay dense"
SPLIT = "experts stay dense without --target vllm"
SPARSE = "samples are at most index_topk tokens, for which sparse attention is exact"
BLOCKS = "samples are at most index_topk_blocks blocks, for which sparse attention is exact"
HOST = "calibrated on the CPU only"
WINDOWS = HOST + "; wo_a stays dense; samples are at most 4 index_topk tokens, for which sparse attention is exact"
CAUSAL = "a text attends causally, as in vLLM and in transformers' eager attention; final_logit_softcapping (PaliGemma 2) caps logits, which transformers 5.17 leaves out"
SHARED = "shared blocks are calibrated at their first use; adapters stay dense"
BUDGET = HOST + "; gated residuals and n-gram tables stay dense; samples are at most indexer_budget tokens"
REMARKS = dict.fromkeys(("ApertusForCausalLM", "PhimoeForCausalLM", "PhiMoEForCausalLM", "BloomForCausalLM", "MptForCausalLM", "MPTForCausalLM", "MambaForCausalLM",
                         "FalconMambaForCausalLM", "DiffLlamaForCausalLM", "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"), HOST) | dict.fromkeys(("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM", "GptOssForCausalLM"), SPLIT) | {
    "GraniteSpeechForConditionalGeneration": SCALE_G, "GraniteSpeechPlusForConditionalGeneration": SCALE_G,
    "PaliGemmaForConditionalGeneration": CAUSAL, "Zamba2ForCausalLM": SHARED, "GraniteMoeSWAForCausalLM": SPLIT, "AriaForConditionalGeneration": STACKED, "AriaTextForCausalLM": STACKED,
    "Mistral4ForCausalLM": "experts stay dense; samples are at most original_max_position_embeddings tokens", "Cohere2MoeForCausalLM": "a file without mlp_layer_types is refused",
    "AyaVisionForConditionalGeneration": SCALE, "Cohere2VisionForConditionalGeneration": SCALE,
    "Qwen4ExpForCausalLM": BUDGET, "Qwen4ExpForConditionalGeneration": BUDGET,
    "DeepseekV4ForCausalLM": WINDOWS + "; no BF16 in transformers", "HYV4ForCausalLM": "; ".join((HOST, SPLIT, SPARSE)), "Glm5NextForConditionalGeneration": HOST + "; " + SPARSE, "Glm5NextForCausalLM": HOST + "; " + SPARSE,
    "DeepseekV32ForCausalLM": SPARSE, "GlmMoeDsaForCausalLM": SPARSE, "JambaForCausalLM": HOST, "MiniMaxForCausalLM": HOST, "MiniMaxM3VLForCausalLM": "experts stay dense; " + BLOCKS, "MiniMaxM3SparseForCausalLM": BLOCKS, "MiniMaxM3SparseForConditionalGeneration": BLOCKS,
    "Phi4MMForCausalLM": "LoRA weights are copied; the model without them is calibrated", "KimiLinearForCausalLM": HOST, "DbrxForCausalLM": STACKED, "LagunaForCausalLM": "routers with a soft cap are refused",
    "GraniteMoeHybridForCausalLM": SPLIT, "Gemma4ForCausalLM": SPLIT,
    "MiniMaxM2ForCausalLM": "oneshot uses rotary_dim, which transformers 5.17 ignores", "CohereForCausalLM": "use_qk_norm (Command R+) is refused",
    "StableLmForCausalLM": "qk_layernorm is refused", "FalconForCausalLM": "alibi is refused",
    "Qwen3_5ForConditionalGeneration": "the MTP block stays dense", "Qwen3_5MoeForConditionalGeneration": "the MTP block stays dense",
}
RELEASED = "another name in files; transformers knows the model by its model_type"
# Text models that exist only inside another model. A proof (scripts/family.py) of the whole model
# also counts as proof of the text model.
INSIDE = {"MiniMaxM3SparseForCausalLM": "MiniMaxM3SparseForConditionalGeneration", "MllamaForCausalLM": "MllamaForConditionalGeneration", "Cosmos3EdgeTextModel": "Cosmos3EdgeForConditionalGeneration", "Glm5NextForCausalLM": "Glm5NextForConditionalGeneration"}
# Names of architectures in released files, and the names of these architectures in transformers.
SAME = {"PhiMoEForCausalLM": "PhimoeForCausalLM", "MPTForCausalLM": "MptForCausalLM", "LightOnOCRForConditionalGeneration": "LightOnOcrForConditionalGeneration", "LLaMAForCausalLM": "LlamaForCausalLM", "KimiK25ForConditionalGeneration": "Kimi_K25ForConditionalGeneration",
        "ExaoneMoEForCausalLM": "ExaoneMoeForCausalLM", "Qwen2_5OmniModel": "Qwen2_5OmniForConditionalGeneration"}
HEAD = """# Architectures

Which architectures does `oneshot` calibrate, and how is each proven? The name of an architecture is the entry of
`architectures` in `config.json`. `scripts/coverage.py --write` makes this page.

- **Template**: the file of `models/`. A model with a template can be calibrated with data, for example by GPTQ, AWQ or SmoothQuant.
- **Logits**: the F32 logits of a tiny model differ from the logits of transformers by at most 5e-6 of the largest logit. A test
  checks the logits of every architecture.
- **Twin**: transformers has no class of this name. The logits are those of the class that the
  remarks name, with the same tensors under other names. Sources of vLLM show that both compute the
  same.
- **BF16**: the median error of BF16 logits of 512 tokens, against F32 logits, is at most 1.1 times
  the error of BF16 logits of transformers (`scripts/family.py`).
- **Load**: transformers loads every tensor of a W4 output of GPTQ. The loaded model has the logits of the model with rounded
  weights (`scripts/family.py`).
- **Codes**: LLM Compressor compresses the family by GPTQ with `pipeline=basic`, and at most 1 in
  10,000 codes of W4 differ (`scripts/compare_families.py --gptq`).
- **vLLM**: vLLM 0.32 for CPUs generates tokens from a W4 output with dense experts and without its
  towers (`scripts/vllm_families.py`).

An architecture without a template is rounded without data, by the names of its tensors ([formats](formats.md)).
"""


def templates():
    """Returns {architecture: (file, True if it wraps a text model)}."""
    out = {}
    for path in sorted((ROOT / "models").glob("*.json")):
        t = json.loads(path.read_text())
        out |= {a: (path.name, "wraps" in t) for a in t["architectures"]}
    return out


def goldens():
    """Returns the architectures with golden logits."""
    cases = [p for folder in (FAMILIES.parent / "models", FAMILIES / "logits") for p in folder.glob("*.json") if p.name != "MANIFEST.json"]
    return {json.loads(p.read_text())["config"]["architectures"][0] for p in cases}


def reasons():
    """Returns {architecture: the reason why transformers cannot load its whole output, or None}."""
    out = {}
    for p in proofs.read()["families"].values():
        out[p["architecture"]] = out.get(p["architecture"]) or p["but"]
    return out


def read_all():
    known, proven, held = templates(), reasons(), goldens()
    for inner, whole in (INSIDE | SAME).items():
        proven[inner] = proven.get(whole)
        held |= {inner} if whole in held else set()
    return known, proven, held


def registries():
    """Returns {architecture: set of "transformers", "vLLM"}."""
    from transformers.models.auto import modeling_auto
    out = {}
    for names in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
                  modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES):
        for name in names.values():
            for one in [name] if isinstance(name, str) else name:
                out.setdefault(one, set()).add("transformers")
    registry = json.loads(VLLM.read_text())
    for kind in KINDS:
        for name in registry[kind]:
            out.setdefault(name, set()).add("vLLM")
    return out


def read_registry(path, version):
    """Writes vllm.json from vLLM's registry.py."""
    tables = {"_TEXT_GENERATION_MODELS": "text", "_MULTIMODAL_MODELS": "multimodal"}
    out = {"vllm": version}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and node.targets[0].id in tables:
            out[tables[node.targets[0].id]] = sorted(key.value for key in node.value.keys)
    VLLM.write_text(json.dumps(out, indent=1) + "\n")


def reached(known):
    """Returns a sentence with the numbers of vLLM's architectures that have a template."""
    registry = json.loads(VLLM.read_text())
    n = {kind: sum(name in known for name in registry[kind]) for kind in KINDS}
    parts = [f"{n[kind]} of the {len(registry[kind])} {kind} architectures" for kind in KINDS]
    return f"The registry of vLLM {registry['vllm']} has templates here for {' and '.join(parts)}."


def words_of(name, held, but):
    kept = proofs.read()
    words = [word for word, key in (("BF16", "bf16"), ("codes", "codes"), ("vLLM", "vllm")) if (INSIDE | SAME).get(name, name) in proofs.architectures(kept, key)]
    if but and but.startswith(TWIN):
        return ", ".join(["twin", *words])
    return ", ".join((["logits"] if held else []) + words + ([] if but else ["load"]))


def table(known, proven, held):
    """Returns the page."""
    rows = []
    for name, found in sorted(known.items(), key=lambda x: x[0].lower()):
        but = proven.get(name)
        words = [w for w in ("towers stay dense" if found[1] else "", REMARKS.get(name), RELEASED if name in SAME else "", but) if w]
        rows.append(f"| `{name}` | `{found[0]}` | {words_of(name, name in held, but)} | {'; '.join(words)} |")
    return rows


def page(known, proven, held, every):
    rest = sorted((n for n in every if n not in known), key=str.lower)
    text = HEAD + f"\n## With a template\n\n{len(known)} architectures. {reached(known)}\n\n| Architecture | Template | Proven by | Remarks |\n|---|---|---|---|\n"
    text += "\n".join(table(known, proven, held))
    why = sorted((n for n in WHY if n not in known), key=str.lower)
    text += "\n\n## Without a template\n\nSome architectures have no template for a known reason:\n\n| Architecture | Reason |\n|---|---|\n"
    text += "\n".join(f"| `{n}` | {WHY[n]} |" for n in why)
    text += "\n\nvLLM knows these architectures, but transformers has no class with their name, so their logits cannot be compared:\n\n"
    text += ", ".join(f"`{n}`" for n in rest if n not in WHY and "transformers" not in every[n])
    others = [f"`{n}`" for n in rest if n not in WHY and "transformers" in every[n]]
    text += "\n\ntransformers knows these other architectures, for which nobody has written a template:\n\n"
    return text + ", ".join(others) + "\n"


def check():
    """Returns lines about templates without a proof, golden logits or a row of the page."""
    known, proven, held = read_all()
    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", PAGE.read_text(), re.M)
    listed = dict(rows)
    lines = [f"{n} of models/{f} has no proof: want scripts/family.py --record" for n, (f, _) in known.items() if n not in proven]
    lines += [f"{n} of models/{f} has no golden logits: want tests/golden/families/gen_logits.py" for n, (f, _) in known.items() if n not in held]
    lines += [f"{n} of models/{f} is not in {PAGE.name}: want scripts/coverage.py --write" for n, (f, _) in known.items() if listed.get(n) != f]
    if reached(known) not in PAGE.read_text():
        lines.append(f"{PAGE.name} does not say \"{reached(known)}\": want scripts/coverage.py --write")
    return lines + [f"{n} of {PAGE.name} is not in models/" for n in listed if n not in known]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true")
    p.add_argument("--check", action="store_true")
    p.add_argument("--registry", type=pathlib.Path)
    p.add_argument("--version", default="of an unknown version")
    a = p.parse_args()
    if a.registry:
        read_registry(a.registry, a.version)
    if a.check:
        lines = check()
        print("\n".join(lines))
        return len(lines) > 0
    (known, proven, held), every = read_all(), registries()
    for name in sorted(known.keys() | every.keys() | WHY.keys(), key=str.lower):
        said = [known[name][0] if name in known else WHY.get(name, "no template")]
        said += ["logits"] if name in held else []
        said += [f"but: {proven[name]}" if proven[name] else "transformers loads all tensors"] if name in proven else []
        print(f"{name:46s} {'+'.join(sorted(every.get(name, {'neither'}))):18s} {'; '.join(said)}")
    n = len([x for x in every if x in known])
    print(f"{len(known)} architectures have a template; {n} of {len(every)} that transformers or vLLM knows")
    print(reached(known))
    if a.write:
        PAGE.write_text(page(known, proven, held, every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
