"""gen.py - scales and zero points of keys and values that LLM Compressor finds on the small model in examples/, four
samples of 64 tokens, one in a batch.

usage: python gen.py      (in an environment with llmcompressor, transformers, torch)

scales.json  name of the recipe: its keys, and of each tensor its shape and values, a BF16 scale as its bits.
             tests/cli/kv_cache.sh runs the recipes and compares.
"""
import importlib.metadata
import json
import pathlib

import torch
from datasets import Dataset
from llmcompressor import oneshot
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parents[2] / "examples" / "docs-llama-3m"
FP8 = "scheme: FP8_DYNAMIC, ignore: [lm_head], "
CACHE = "kv_cache_scheme: {num_bits: 8, dynamic: false, %s}"
RECIPES = {
    "float-minmax": FP8 + CACHE % "type: float, strategy: tensor, symmetric: true",
    "int-static_minmax": FP8 + CACHE % "type: int, strategy: tensor, symmetric: true, observer: static_minmax",
    "float-heads": FP8 + CACHE % "type: float, strategy: attn_head, symmetric: true",
    "int-zeros": FP8 + CACHE % "type: int, strategy: tensor, symmetric: false",
    "alone": CACHE % "type: int, strategy: attn_head, symmetric: false, observer: mse",
}


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    lines = (MODEL / "data" / "calibration.jsonl").read_text().splitlines()[:4]
    rows = [tokenizer(json.loads(line)["text"]).input_ids[:64] for line in lines]
    out = {}
    for name, keys in RECIPES.items():
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
        recipe = "s_stage: {s_modifiers: {QuantizationModifier: {%s}}}" % keys
        data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(r) for r in rows]})
        oneshot(model=model, recipe=recipe, dataset=data, num_calibration_samples=len(rows), batch_size=1,
                max_seq_length=64, shuffle_calibration_samples=False)
        found = {}
        for k, v in model.state_dict().items():
            if not k.endswith(("k_scale", "v_scale", "q_scale", "k_zero_point", "v_zero_point", "q_zero_point")):
                continue
            bits = v.view(torch.int16).int() & 0xffff if v.dtype == torch.bfloat16 else v.to(torch.int32)
            found[k] = [list(v.shape), bits.flatten().tolist()]
        out[name] = {"keys": keys, "tensors": found}
        assert len(found) >= 8
    versions = {p: importlib.metadata.version(p) for p in ("torch", "compressed-tensors", "llmcompressor")}
    lines = ['{"versions": ' + json.dumps(versions)]
    for name, recipe in out.items():
        rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in recipe["tensors"].items())
        lines.append(f' "{name}": {{"keys": {json.dumps(recipe["keys"])}, "tensors": {{\n{rows}}}}}')
    (HERE / "scales.json").write_text(",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
