"""gen.py - writes results of LLM Compressor for schemes whose activations have static scales, on
the small model in examples/, with four samples of 64 tokens, one per batch.

usage: python gen.py      (in an environment with llmcompressor, transformers, torch)

outputs.json has, for each recipe, its arguments, the values of the tensors that describe
activations, and a checksum of all other tensors (SHA-256 over the sorted names and bytes).
tests/cli/static.sh runs the recipes and compares the results. """
import hashlib
import importlib.metadata
import json
import pathlib
import shutil
import struct
import tempfile

import torch
from datasets import Dataset
from llmcompressor import oneshot
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parents[2] / "examples" / "docs-llama-3m"
INT8 = "config_groups: {g: {targets: [Linear], weights: {num_bits: 8, strategy: channel}, input_activations: {num_bits: 8, strategy: tensor%s}}}"
RECIPES = {
    "FP8": "scheme: FP8",
    "NVFP4": "scheme: NVFP4",
    "INT8_static": INT8 % "",
    "INT8_static_asym": INT8 % ", symmetric: false",
    "W4_FP8_static": "config_groups: {g: {targets: [Linear], weights: {num_bits: 4, strategy: group, group_size: 128}, "
                     "input_activations: {num_bits: 8, type: float, strategy: tensor}}}",
    "FP8_static_minmax": "scheme: FP8, input_observer: static_minmax",
}


def tensors(path):
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: (e, raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])
            for k, e in sorted(json.loads(raw[8:8 + n]).items()) if k != "__metadata__"}


def digest(path):
    """Returns the checksum of the tensors that do not depend on activations, and the values of the
    other tensors (BF16: bits as whole numbers)."""
    rest, found = hashlib.sha256(), {}
    for name, (entry, data) in tensors(path).items():
        if name.endswith((".input_scale", ".input_zero_point", ".input_global_scale")):
            found[name] = struct.unpack({"BF16": "<H", "F32": "<f", "I8": "<b"}[entry["dtype"]], data)[0]
        else:
            rest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode() + data)
    return rest.hexdigest(), found


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    lines = (MODEL / "data" / "calibration.jsonl").read_text().splitlines()[:4]
    rows = [tokenizer(json.loads(line)["text"]).input_ids[:64] for line in lines]
    out = {}
    for name, keys in RECIPES.items():
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
        data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(r) for r in rows]})
        oneshot(model=model, recipe="s_stage: {s_modifiers: {QuantizationModifier: {%s, ignore: [lm_head]}}}" % keys, dataset=data,
                batch_size=1, num_calibration_samples=len(rows), max_seq_length=64, shuffle_calibration_samples=False)
        at = pathlib.Path(tempfile.mkdtemp())
        model.save_pretrained(at, save_compressed=True)
        rest, found = digest(at / "model.safetensors")
        out[name] = {"keys": keys, "rest": rest, "activations": found}
        shutil.rmtree(at)
    out["versions"] = {p: importlib.metadata.version(p) for p in ("llmcompressor", "compressed-tensors", "transformers", "torch")}
    (HERE / "outputs.json").write_text(json.dumps(out, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
