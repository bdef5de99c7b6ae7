#!/usr/bin/env python3
"""check.py - makes an output of oneshot for each scheme, and decompresses it with
compressed-tensors. The weights must equal oneshot's own dequantization bit for bit. Then
transformers generates 8 tokens from the output.

    check.py --oneshot BUILD/oneshot --dequantize BUILD/tests/dequantize
             --model examples/docs-llama-3m [NAME ...]

Run by hand with a Python that has torch, transformers, compressed-tensors and safetensors. It
prints one line per scheme, and exits with 1 if a weight differs or a checkpoint does not load and
generate.
"""
import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile

os.environ["TQDM_DISABLE"] = "1"

import compressed_tensors
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def ints(bits, strategy, symmetric=True, **more):
    return {"num_bits": bits, "type": "int", "strategy": strategy, "symmetric": symmetric, **more}


def group(size):
    return {"group_size": size}


FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
PRESETS = ["W4A16", "W4A16_ASYM", "W8A16", "W8A8", "FP8", "FP8_DYNAMIC", "FP8_BLOCK"]
PRESETS += ["MXFP6A16", "MXFP6A8", "MXFP4XFP8"]  # schemes that need compressed-tensors 0.20
WEIGHTS = {
    "FP8 weights, channel": {**FP8, "strategy": "channel"},
    "FP8 weights, tensor": {**FP8, "strategy": "tensor"},
    "INT2 g32": ints(2, "group", **group(32)),
    "INT2 g64 asym": ints(2, "group", False, **group(64)),
    "INT3 g32": ints(3, "group", **group(32)),
    "INT3 channel asym": ints(3, "channel", False),
    "INT4 g64 asym": ints(4, "group", False, **group(64)),
    "INT4 channel": ints(4, "channel"),
    "INT4 tensor asym": ints(4, "tensor", False),
    "INT5 channel asym": ints(5, "channel", False),
    "INT5 g128": ints(5, "group", **group(128)),
    "INT6 g128": ints(6, "group", **group(128)),
    "INT6 tensor": ints(6, "tensor"),
    "INT7 g64 asym": ints(7, "group", False, **group(64)),
    "INT7 channel": ints(7, "channel"),
    "INT8 tensor": ints(8, "tensor"),
    "INT8 g32 asym": ints(8, "group", False, **group(32)),
}
INT8 = ints(8, "channel")
FORMATS = {  # each of these groups sets its own format
    "W8A8 static tensor": ({"weights": INT8, "input_activations": ints(8, "tensor")}, None),
    "W8A8 static asym": ({"weights": INT8, "input_activations": ints(8, "tensor", False)}, None),
    "INT8 naive-quantized": ({"weights": INT8}, "naive-quantized"),
    "INT8 int-quantized": ({"weights": INT8}, "int-quantized"),
    "INT4 asym int-quantized": ({"weights": ints(4, "channel", False)}, "int-quantized"),
    "FP8 naive-quantized": ({"weights": {**FP8, "strategy": "tensor"}}, "naive-quantized"),
}
GPTQ = ["W4A16", "W4A16_ASYM", "W8A16", "W8A8", "INT3 g32", "INT2 g64 asym", "INT4 g64 asym", "INT5 channel asym",
        "INT6 g128", "INT7 channel", "INT8 tensor"]
LEARNED = ["NVFP4A16", "MXFP4A16", "FP8", "FP8_DYNAMIC", "FP8_BLOCK"]


def cases():
    """Returns a dict from names to (modifier, arguments). The arguments are JSON, which is valid
    YAML."""
    for method, names in (("QuantizationModifier", None), ("GPTQModifier", GPTQ)):
        short = "GPTQ " if names else "RTN "
        for s in PRESETS:
            if not names or s in names:
                yield short + s, method, {"scheme": s, "targets": ["Linear"]}
        for s, w in WEIGHTS.items():
            if not names or s in names:
                yield short + s, method, {"config_groups": {"g": {"targets": ["Linear"], "weights": w}}}
    for s in LEARNED:
        yield "AutoRound " + s, "AutoRoundModifier", {"scheme": s, "targets": ["Linear"], "iters": 5}
    for s, (args, form) in FORMATS.items():
        yield "RTN " + s, "QuantizationModifier", {"config_groups": {"g": {"targets": ["Linear"], **args, "format": form}}}
    two = {"a": {"targets": ["re:.*down_proj$"], "weights": WEIGHTS["INT6 g128"]},
           "b": {"targets": ["Linear"], "weights": INT8, "input_activations": ints(8, "token", dynamic=True)}}
    yield "RTN two groups, two formats", "QuantizationModifier", {"config_groups": two}


def make(a, modifier, arguments, out):
    recipe = out + ".yaml"
    with open(recipe, "w") as f:
        json.dump({"s_stage": {"q_modifiers": {modifier: {**arguments, "ignore": ["lm_head"]}}}}, f)
    data = os.path.join(a.model, "data", "calibration.jsonl")
    subprocess.run([a.oneshot, "--model", a.model, "--recipe", recipe, "--dataset", data, "--num-calibration-samples",
                    "16", "--max-seq-length", "256", "--output", out, "--progress", "none"], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([a.dequantize, out, out + ".safetensors"], check=True)
    return load_file(out + ".safetensors")


def bits(t):
    return t.contiguous().view(torch.uint8)


def check(name, a, modifier, arguments, tmp):
    out = os.path.join(tmp, "out")
    ours = make(a, modifier, arguments, out)
    model = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer("The", return_tensors="pt")
    made = model.generate(**ids, max_new_tokens=8, min_new_tokens=8, do_sample=False)  # the first step decompresses the weights
    n_new = made.shape[1] - ids["input_ids"].shape[1]
    theirs = {n + ".weight": m.weight.detach() for n, m in model.named_modules() if hasattr(m, "quantization_scheme")}
    missing = set(ours) ^ set(theirs)
    wrong = [n for n in sorted(set(ours) & set(theirs))
             if ours[n].dtype != theirs[n].dtype or not torch.equal(bits(ours[n]), bits(theirs[n]))]
    elements = sum(t.numel() for t in ours.values())
    q = json.load(open(os.path.join(out, "config.json")))["quantization_config"]["format"]
    ok = not missing and not wrong and n_new == 8 and len(ours) > 0
    print(f"{name:32} {q:16} {len(ours):3} weights {elements:8} elements  {len(wrong)} differ  "
          f"{n_new} tokens {tokenizer.decode(made[0])!r}{'' if ok else '  WRONG ' + str((sorted(missing) + wrong)[:3])}",
          flush=True)
    return ok


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for flag in ("oneshot", "dequantize", "model"):
        p.add_argument("--" + flag, required=True)
    p.add_argument("names", nargs="*", help="only these cases")
    a = p.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    print(f"compressed-tensors {compressed_tensors.__version__}, transformers {transformers.__version__}, "
          f"torch {torch.__version__}")
    n = bad = 0
    for name, modifier, arguments in cases():
        if a.names and name not in a.names:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            n += 1
            try:
                bad += not check(name, a, modifier, arguments, tmp)
            except Exception as e:  # prints one line for this scheme and continues with the next
                bad += 1
                print(f"{name:32} FAILED {type(e).__name__}: {str(e)[:300]}", flush=True)
    print(f"{n} schemes, {bad} wrong")
    sys.exit(1 if bad or not n else 0)


if __name__ == "__main__":
    main()
