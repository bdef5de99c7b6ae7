#!/usr/bin/env python3
"""gen_modelopt.py - makes checkpoints with NVIDIA ModelOpt. Each directory also has the weights
that ModelOpt decodes (expected.safetensors).

    gen_modelopt.py        writes the directories modelopt_* and MANIFEST-modelopt.json beside the
                           script

Needs nvidia-modelopt and the libraries of gen.py."""
import copy
import json
import os
import shutil
import tempfile

import modelopt
import modelopt.torch.quantization as mtq
import torch
import transformers
from gen import HERE, SEED
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.quantization.qtensor import NVFP4QTensor
from safetensors.torch import load_file, save_file


def dequantized(t, name, dtype):
    """Returns the weight that ModelOpt decodes from the stored tensors t of module `name`."""
    w, scale = t[name + ".weight"], t[name + ".weight_scale"]
    if w.dtype == torch.uint8:
        q = NVFP4QTensor((w.shape[0], w.shape[1] * 2), dtype, w)
        return q.dequantize(dtype=dtype, scale=scale, double_scale=t[name + ".weight_scale_2"], block_sizes={-1: 16})
    return (w.float() * scale.float()).to(dtype)  # the formula of ModelOpt's FP8QTensor.dequantize


def export(name, config, dtype, beside):
    tiny = transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                                    num_key_value_heads=1, vocab_size=72, tie_word_embeddings=False, architectures=["LlamaForCausalLM"])
    model = transformers.LlamaForCausalLM(tiny).to(dtype)
    mtq.quantize(model, copy.deepcopy(config), lambda m: m(torch.arange(16)[None]))
    with tempfile.TemporaryDirectory() as out:
        export_hf_checkpoint(model, dtype=dtype, export_dir=out)
        t = load_file(os.path.join(out, "model.safetensors"))
        with open(os.path.join(out, "config.json")) as f:
            made = json.load(f)
        folder = os.path.join(HERE, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        save_file(t, os.path.join(folder, "model.safetensors"))
        if beside:  # ModelOpt before 0.31 wrote only hf_quant_config.json
            shutil.copy(os.path.join(out, "hf_quant_config.json"), folder)
    config = {"architectures": ["LlamaForCausalLM"], "dtype": str(dtype).split(".")[1]}
    if not beside:
        config["quantization_config"] = made["quantization_config"]
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    expected = {}
    for key, value in t.items():
        module, leaf = key.rsplit(".", 1)
        if module + ".weight_scale" not in t:
            expected[key] = value
        elif leaf == "weight":
            expected[key] = dequantized(t, module, dtype)
    save_file({k: v.contiguous() for k, v in expected.items()}, os.path.join(folder, "expected.safetensors"))


def main():
    torch.manual_seed(SEED)
    export("modelopt_nvfp4", mtq.NVFP4_DEFAULT_CFG, torch.bfloat16, False)
    export("modelopt_nvfp4_file", mtq.NVFP4_DEFAULT_CFG, torch.float16, True)
    export("modelopt_fp8", mtq.FP8_DEFAULT_CFG, torch.bfloat16, True)
    with open(os.path.join(HERE, "MANIFEST-modelopt.json"), "w") as f:
        json.dump({"seed": SEED, "torch": torch.__version__.split("+")[0], "modelopt": modelopt.__version__}, f, indent=1)


if __name__ == "__main__":
    main()
