"""gen.py - k_scale and v_scale that LLM Compressor finds on the small model in examples/, four samples of 64 tokens, one
in a batch.

usage: python gen.py      (in an environment with llmcompressor, transformers, torch)

scales.json  the recipe's observer, type: name of the scale: its BF16 bits. tests/cli/kv_cache.sh compares with them.
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
SCHEMES = {"float-minmax": "type: float", "int-static_minmax": "type: int, observer: static_minmax"}


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    lines = (MODEL / "data" / "calibration.jsonl").read_text().splitlines()[:4]
    rows = [tokenizer(json.loads(line)["text"]).input_ids[:64] for line in lines]
    out = {}
    for name, keys in SCHEMES.items():
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
        recipe = ("s_stage: {s_modifiers: {QuantizationModifier: {scheme: FP8_DYNAMIC, ignore: [lm_head], "
                  "kv_cache_scheme: {num_bits: 8, symmetric: true, strategy: tensor, dynamic: false, %s}}}}" % keys)
        data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(r) for r in rows]})
        oneshot(model=model, recipe=recipe, dataset=data, num_calibration_samples=len(rows), batch_size=1,
                max_seq_length=64, shuffle_calibration_samples=False)
        out[name] = {k: v.view(torch.int16).item() & 0xffff for k, v in model.state_dict().items()
                     if k.endswith(("k_scale", "v_scale"))}
        assert len(out[name]) == 8
    versions = {p: importlib.metadata.version(p) for p in ("torch", "compressed-tensors", "llmcompressor")}
    (HERE / "scales.json").write_text(json.dumps({"versions": versions, **out}, indent=1) + "\n")


if __name__ == "__main__":
    main()
