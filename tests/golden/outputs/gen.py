"""gen.py - writes the output_scale and output_zero_point that LLM Compressor finds for the small
model in examples/, with four samples of 64 tokens, one per batch.

usage: python gen.py      (in an environment with llmcompressor, transformers, torch)

scales.json has, for each recipe, its modifiers and the values of each tensor. BF16 scales are
stored as bits. tests/cli/outputs.sh runs the recipes and compares the values.

During calibration, LLM Compressor 0.14.0.1 rounds outputs with an uninitialized scale, so all
values after a Linear in the same subgraph are wrong. The sequential target here is Linear, so a
subgraph ends with its Linears.
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
GROUP = "config_groups: {g: {targets: [Linear], weights: {num_bits: 8, strategy: channel}, %s}}, ignore: [lm_head]"
RECIPES = {
    "symmetric": "QuantizationModifier: {%s}" % GROUP % "output_activations: {num_bits: 8, strategy: tensor}",
    "asymmetric": "QuantizationModifier: {%s}" % GROUP %
                  "input_activations: {num_bits: 8, strategy: tensor}, "
                  "output_activations: {num_bits: 8, strategy: tensor, symmetric: false, observer: static_minmax}",
    "float": "QuantizationModifier: {%s, output_observer: minmax}" % GROUP %
             "output_activations: {num_bits: 8, type: float, strategy: tensor}",
    "dynamic": "QuantizationModifier: {%s}" % GROUP % "output_activations: {num_bits: 8, strategy: token, dynamic: true}",
    "solved": "GPTQModifier: {config_groups: {g: {targets: [Linear], weights: {num_bits: 4, strategy: group, group_size: 128}, "
              "output_activations: {num_bits: 8, strategy: tensor}}}, ignore: [lm_head]}",
}


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    lines = (MODEL / "data" / "calibration.jsonl").read_text().splitlines()[:4]
    rows = [tokenizer(json.loads(line)["text"]).input_ids[:64] for line in lines]
    out = {}
    for name, modifier in RECIPES.items():
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
        data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(r) for r in rows]})
        oneshot(model=model, recipe="s_stage: {s_modifiers: {%s}}" % modifier, dataset=data, batch_size=1,
                num_calibration_samples=len(rows), max_seq_length=64, shuffle_calibration_samples=False,
                sequential_targets=["Linear"])
        found = {}
        for k, v in model.state_dict().items():
            zero = k.endswith(".output_zero_point")
            if not k.endswith(".output_scale") and not (zero and name == "asymmetric"):
                continue
            assert list(v.shape) == [1] and v.dtype == (torch.int8 if zero else torch.bfloat16)
            found[k] = int(v) if zero else int(v.view(torch.int16)) & 0xffff
        out[name] = {"modifier": modifier, "tensors": found}
    out["versions"] = {p: importlib.metadata.version(p) for p in ("llmcompressor", "compressed-tensors", "transformers", "torch")}
    (HERE / "scales.json").write_text(json.dumps(out, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
