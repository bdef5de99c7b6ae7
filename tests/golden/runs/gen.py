"""gen.py - writes the codes of whole GPTQ runs of LLM Compressor over a tiny model of each family.

usage: python gen.py [CASE...]      (in an environment with compressed-tensors, llmcompressor,
                                    safetensors, torch, transformers)

<case>.safetensors   weight_packed (I32) of every quantized module, with LLM Compressor's names
MANIFEST.json        versions, and the number of codes of each case

Weights and tokens are those of a case of tests/golden/models, in F32. The scheme is 4 bits in
groups of 8, symmetric; the pipeline is basic. For Falcon, LLM Compressor writes dense weights and
scales. So the script computes the codes as weights divided by scales. """
import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent


def module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


models = module("models", HERE.parent / "models" / "gen.py")
families = module("families", HERE.parents[2] / "scripts" / "compare_families.py")

CASES = """llama_default mistral_window ministral3 qwen2 qwen3 gemma2 gemma3 gemma4 gemma4_k_eq_v gemma4_moe gemma4_vision phi3 phi3_longrope
    granite olmo2 olmo3 glm4 smollm3 stablelm stablelm_parallel falcon falcon_new falcon_old opt opt_after gpt_neox gpt_neox_serial mixtral
    qwen2_moe qwen3_moe qwen3_moe_stacked glm4_moe deepseek_v2 deepseek_v3 gpt_oss qwen3_next qwen3_5 qwen3_5_moe granite_hybrid
    granite_hybrid_moe mamba2 llava gemma3_vision qwen2_5_vl qwen3_vl mllama""".split()
RECIPE = """s_stage:
  q_modifiers:
    GPTQModifier:
      ignore: ["re:.*lm_head"]
      config_groups:
        g:
          targets: [Linear]
          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 8}
"""


def packed(tensors):
    out = {n: t for n, t in tensors.items() if n.endswith(".weight_packed")}
    for name, scale in tensors.items():
        stem = name.removesuffix("_scale")
        if stem == name or stem not in tensors:
            continue
        codes = tensors[stem].float() / scale.float().repeat_interleave(8, 1)
        assert (codes - codes.round()).abs().max() < 1e-3, name
        nibbles = (codes.round().to(torch.int64) + 8).unflatten(1, (-1, 8))
        words = (nibbles << torch.arange(0, 32, 4)).sum(-1)
        out[f"{stem}_packed"] = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return out


def run(case):
    config, _ = models.CASES[case]
    with tempfile.TemporaryDirectory() as d:
        source = pathlib.Path(d) / "source"
        source.mkdir()
        (source / "config.json").write_text(json.dumps(config))
        tensors = models.names_and_shapes(source, case.endswith("_stacked"))
        save_file({n: torch.from_numpy(np.asarray(models.weight(n, s))) for n, s in tensors}, source / "model.safetensors", {"format": "pt"})
        (source.parent / "recipe.yaml").write_text(RECIPE)
        rows = [ids.tolist() for ids in models.tokens(config.get("text_config", config)["vocab_size"])]
        families.upstream(source, source.parent / "out", rows, models.loader(config))
        out = packed(families.tensors(source.parent / "out"))
    save_file(dict(sorted(out.items())), HERE / f"{case}.safetensors")
    return sum(t.numel() for t in out.values()) * 8


def main():
    torch.set_num_threads(1)
    path = HERE / "MANIFEST.json"
    versions = {p: importlib.metadata.version(p) for p in ("torch", "transformers", "compressed-tensors", "llmcompressor")}
    old = json.loads(path.read_text()) if path.exists() else {}
    codes = old.get("codes", {}) if {k: old.get(k) for k in versions} == versions else {}
    for case in sys.argv[1:] or CASES:
        codes[case] = run(case)
        print(f"{case:20s} {codes[case]} codes", flush=True)
        path.write_text(json.dumps({"seed": models.SEED, **versions, "codes": dict(sorted(codes.items()))}, indent=1) + "\n")


if __name__ == "__main__":
    main()
