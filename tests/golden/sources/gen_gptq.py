#!/usr/bin/env python3
"""gen_gptq.py - makes GPTQ checkpoints with GPTQModel. Each directory also has the weights that
GPTQModel decodes (expected.safetensors).

    gen_gptq.py        writes the directories gptq_* and MANIFEST-gptq.json beside gen_gptq.py

Needs gptqmodel, torch and the libraries of gen.py."""
import json
import os
import shutil

import gptqmodel
import torch
from gen import BF16, HERE, SEED, write
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module, convert_gptq_v2_to_v1_format_module
from gptqmodel.utils.model_dequant import convert_gptq_file


class Bits:  # replaces a QuantizeConfig; the conversion to version 1 reads only the member `bits`
    def __init__(self, bits):
        self.bits, self.pack_dtype = bits, torch.int32


def linear(bits, group, O, I, sym, act):
    """Returns a TorchLinear with random codes, packed by GPTQModel."""
    G = 1 if group == -1 else -(-I // group)
    m = TorchLinear(bits=bits, group_size=group, sym=sym, desc_act=act, in_features=I, out_features=O, bias=False)
    scale = torch.rand(O, G) * 0.02 + 0.001
    scale = scale.half().float()
    zero = torch.full((O, G), 1 << (bits - 1)) if sym else torch.randint(0, 1 << bits, (O, G))
    g_idx = torch.arange(I, dtype=torch.int32) // (I if group == -1 else group)
    if act:
        g_idx = g_idx[torch.randperm(I)]
    codes = torch.randint(0, 1 << bits, (O, I))
    dense = torch.nn.Linear(I, O, bias=False)
    dense.weight.data = (codes - zero[:, g_idx.long()]).float() * scale[:, g_idx.long()]
    m.pack_original(dense, scale, zero.float(), g_idx)
    m.qzero_format(format=2)
    return m


def tensors(name, m):
    """Returns copies of the stored tensors of a module."""
    return {f"{name}.{leaf}": getattr(m, leaf).detach().clone() for leaf in ("qweight", "qzeros", "scales", "g_idx")}


def decoded(m, t, v1):
    """Returns the weight that GPTQModel decodes when it loads the stored tensors t."""
    for leaf, value in t.items():
        setattr(m, leaf.rsplit(".", 1)[1], value.clone())
    if v1:
        m.qzero_format(format=1)
        convert_gptq_v1_to_v2_format_module(m, m.bits, torch.int32)
    m.post_init()
    m.eval()
    with torch.inference_mode():
        return m.dequantize_weight().T.contiguous()


def by_file(t, bits, version, dtype):
    """Returns the weight that GPTQModel decodes when it converts a file with the stored tensors
    t."""
    from safetensors.torch import save_file
    save_file(t, "/tmp/gptq-part.safetensors")
    made = convert_gptq_file("/tmp/gptq-part.safetensors", dtype, {"bits": bits, "checkpoint_format": version}, "cpu")
    (weight,) = made.values()
    return weight


CASES = [  # bits, group, O, I, symmetric, activation order
    (4, 32, 40, 96, True, False), (4, 32, 40, 96, False, True), (4, -1, 64, 64, False, False), (2, 16, 48, 64, False, True),
    (3, 32, 96, 64, False, False), (3, 32, 32, 96, True, True), (8, 64, 24, 128, False, False), (4, 64, 24, 96, False, False)]


def first(dtype, legacy):
    """Writes a checkpoint of version 1. The expected weights are those of a module that GPTQModel
    loads. Version 1 stores zero points minus 1, so a zero point of 0 borrows from the next packed
    field. The description of the quantization is in config.json or in a separate file."""
    stored, expected = {}, {}
    for i, (bits, group, O, I, sym, act) in enumerate(CASES[:2] if legacy else CASES):
        name, m = f"model.layers.{i}.mlp.up_proj", linear(bits, group, O, I, sym, act)
        convert_gptq_v2_to_v1_format_module(m, Bits(bits))
        t = tensors(name, m)
        stored |= t
        expected[name + ".weight"] = decoded(m, t, True).to(dtype)
    norm = torch.randn(32).to(dtype)
    quantization = {"bits": 4, "group_size": 32, "desc_act": True, "sym": False, "lm_head": False,
                    "dynamic": {"+:.*": {"bits": 2}, "-:.*down.*": {}}}
    name = "gptq_file" if legacy else "gptq_v1"
    write(name, quantization if legacy else {"quant_method": "gptq", "checkpoint_format": "gptq", **quantization},
          [stored | {"model.norm.weight": norm}], expected | {"model.norm.weight": norm}, str(dtype).split(".")[1])
    if legacy:
        path = os.path.join(HERE, name, "config.json")
        with open(path) as f:
            config = json.load(f)
        with open(os.path.join(HERE, name, "quantize_config.json"), "w") as f:
            json.dump(config.pop("quantization_config"), f, indent=2)
        with open(path, "w") as f:
            json.dump(config, f, indent=2)


def second():
    """Writes a checkpoint of version 2 in a BF16 model. The expected weights are those of
    GPTQModel's conversion of files, which computes in F32. g_idx is missing if groups are
    consecutive."""
    shards, expected = [{}, {}], {}
    for i, (bits, group, O, I, sym, act) in enumerate(CASES):
        name, m = f"model.layers.{i}.mlp.up_proj", linear(bits, group, O, I, sym, act)
        t = tensors(name, m)
        expected[name + ".weight"] = by_file(t, bits, "gptq_v2", BF16)
        if not act and bits != 3 and I != 96:
            del t[name + ".g_idx"]
        for k, (leaf, value) in enumerate(t.items()):
            shards[k % 2][leaf] = value
    write("gptq_v2", {"quant_method": "gptq", "checkpoint_format": "gptq_v2", "bits": 4, "group_size": 32, "desc_act": False,
                      "sym": False, "dynamic": {"+:.*": {"bits": 2}}}, shards, expected)


def main():
    torch.manual_seed(SEED)
    first(torch.float16, False)
    first(torch.float16, True)
    second()
    shutil.rmtree("/tmp/gptq-part.safetensors", ignore_errors=True)
    with open(os.path.join(HERE, "MANIFEST-gptq.json"), "w") as f:
        json.dump({"seed": SEED, "torch": torch.__version__.split("+")[0], "gptqmodel": gptqmodel.__version__}, f, indent=1)


if __name__ == "__main__":
    main()
