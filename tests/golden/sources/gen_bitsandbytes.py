#!/usr/bin/env python3
"""gen_bitsandbytes.py - makes checkpoints of bitsandbytes. Each directory also has the weights that
bitsandbytes decodes (expected.safetensors).

    gen_bitsandbytes.py        writes the directories bnb_* and MANIFEST-bitsandbytes.json beside
                               the script

Needs bitsandbytes and the libraries of gen.py. The CPU kernel of bitsandbytes is wrong if a row is
not a whole number of blocks. So the expected weights are those of its default backend, which agrees
with the CUDA kernel. If a row is a whole number of blocks, the CPU kernel and the default backend
must agree."""
import json
import os

import bitsandbytes as bnb
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from bitsandbytes.backends.utils import _get_4bit_code
from gen import BF16, HERE, SEED, write

SHAPES = ((48, 64), (136, 128), (40, 96), (24, 80), (7, 30))


def four(name, kind, dtype, double, block, config):
    stored, expected = {}, {}
    for i, (O, I) in enumerate(SHAPES):
        w = (torch.randn(O, I) * 0.05).to(dtype)
        q, state = bnb.functional.quantize_4bit(w, blocksize=block, quant_type=kind, compress_statistics=double)
        key = f"model.layers.{i}.mlp.up_proj.weight"
        stored[key] = q
        stored |= {f"{key}.{leaf}": t for leaf, t in state.as_dict(packed=True).items()}
        absmax = state.absmax
        if state.nested:
            absmax = bnb.functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
        made = _dequantize_4bit_compute(q.reshape(-1), absmax, _get_4bit_code(kind, q.device), block, w.shape, dtype)
        assert I % block or torch.equal(made, bnb.functional.dequantize_4bit(q, state))
        # checks that the decoded blocks are near the original weights
        assert (made - w).abs().max() < 0.06
        expected[key] = made.to(config)
    write(name, {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind,
                 "bnb_4bit_use_double_quant": double}, [stored], expected, str(config).split(".")[1])


def eight():
    stored, expected = {}, {}
    for i, (O, I) in enumerate(SHAPES):
        q, scb, _ = bnb.functional.int8_vectorwise_quant((torch.randn(O, I) * 0.05).half())
        key = f"model.layers.{i}.mlp.up_proj"
        stored |= {key + ".weight": q, key + ".SCB": scb, key + ".weight_format": torch.tensor(0, dtype=torch.uint8)}
        expected[key + ".weight"] = bnb.functional.int8_vectorwise_dequant(q, scb).half()
    write("bnb_int8", {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True}, [stored], expected, "float16")


def main():
    torch.manual_seed(SEED)
    four("bnb_nf4", "nf4", BF16, False, 64, BF16)
    four("bnb_nf4_nested", "nf4", torch.float16, True, 64, BF16)
    four("bnb_fp4", "fp4", torch.float16, True, 128, torch.float16)
    eight()
    with open(os.path.join(HERE, "MANIFEST-bitsandbytes.json"), "w") as f:
        json.dump({"seed": SEED, "torch": torch.__version__.split("+")[0], "bitsandbytes": bnb.__version__}, f, indent=1)


if __name__ == "__main__":
    main()
