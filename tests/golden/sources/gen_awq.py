#!/usr/bin/env python3
"""gen_awq.py - makes AWQ checkpoints with AutoAWQ. Each directory also has the weights that AutoAWQ
decodes (expected.safetensors).

    gen_awq.py        writes the directories awq_* and MANIFEST-awq.json beside gen_awq.py

Needs autoawq, torch and the libraries of gen.py. AutoAWQ decodes version gemv only in CUDA kernels.
For this version, the expected weights are computed here from the codes and the scales."""
import json
import os
from importlib.metadata import version

import torch
from awq.modules.linear.gemm import WQLinear_GEMM
from awq.modules.linear.gemv import WQLinear_GEMV
from awq.utils.packing_utils import dequantize_gemm
from gen import BF16, HERE, SEED, write


def dense(O, I, group):
    """Returns a Linear whose weights are codes, the codes, zero points and scales."""
    codes, zeros = torch.randint(0, 16, (O, I)), torch.randint(0, 16, (O, I // group))
    scales = (torch.rand(O, I // group) * 0.02 + 0.001).half()
    m = torch.nn.Linear(I, O, bias=False)
    m.weight.data = (codes - zeros.repeat_interleave(group, 1)) * scales.float().repeat_interleave(group, 1)
    return m, codes, zeros, scales


def gemm(dtype, file):
    stored, expected = {}, {}
    for i, (O, I, group) in enumerate(((64, 96, 32), (32, 64, 32), (96, 128, 32))):
        m, _, zeros, scales = dense(O, I, group)
        q = WQLinear_GEMM.from_linear(m, 4, group, False, scales.T.contiguous().float(), zeros.T.contiguous())
        name = f"model.layers.{i}.mlp.up_proj"
        stored |= {f"{name}.{leaf}": getattr(q, leaf).clone() for leaf in ("qweight", "qzeros", "scales")}
        made = dequantize_gemm(q.qweight, q.qzeros, q.scales if dtype == torch.float16 else q.scales.float(), 4, group)
        expected[name + ".weight"] = made.T.to(dtype)
    name = str(dtype).split(".")[1]
    old = {"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}
    new = {"quant_method": "awq", "zero_point": True, "group_size": 32, "bits": 4, "version": "gemm"}
    folder = "awq_file" if file else "awq_gemm"
    write(folder, new, [stored], expected, name)
    if file:
        with open(os.path.join(HERE, folder, "config.json"), "w") as f:
            json.dump({"architectures": ["LlamaForCausalLM"], "dtype": name}, f)
        with open(os.path.join(HERE, folder, "quant_config.json"), "w") as f:
            json.dump(old, f)


def gemv(group):
    stored, expected = {}, {}
    for i, (O, I) in enumerate(((40, 128), (24, 384))):
        g = I if group == -1 else group
        m, codes, zeros, scales = dense(O, I, g)
        q = WQLinear_GEMV.from_linear(m, 4, g, False, scales, zeros)
        name = f"model.layers.{i}.mlp.up_proj"
        stored |= {f"{name}.{leaf}": getattr(q, leaf).clone() for leaf in ("qweight", "qzeros", "scales")}
        expected[name + ".weight"] = ((codes - zeros.repeat_interleave(g, 1)) * scales.repeat_interleave(g, 1)).half()
    write("awq_gemv" + ("_rows" if group == -1 else ""),
          {"quant_method": "awq", "zero_point": True, "group_size": group, "bits": 4, "version": "gemv"}, [stored], expected, "float16")


def main():
    torch.manual_seed(SEED)
    gemm(torch.float16, False)
    gemm(BF16, True)
    gemv(64)
    gemv(-1)
    with open(os.path.join(HERE, "MANIFEST-awq.json"), "w") as f:
        json.dump({"seed": SEED, "torch": torch.__version__.split("+")[0], "autoawq": version("autoawq")}, f, indent=1)


if __name__ == "__main__":
    main()
