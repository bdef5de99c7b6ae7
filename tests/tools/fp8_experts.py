"""fp8_experts.py - makes two models: a tiny model whose experts are in one FP8 tensor, and a dense
model with the same values.

usage: fp8_experts.py DENSE PACKED      DENSE: a model with experts in BF16, whose values are
                                        replaced; PACKED: the model that is written

Codes are F8_E4M3 in the layout of the dense tensor. Scales are F32, one per block of an expert, in
X_scale_inv or X.weight_scale_inv. Scales and codes have four significant bits each, so their
products are exact in BF16."""
import json
import pathlib
import random
import shutil
import struct
import sys

from tensors import read, to_bf16, write

BLOCK = 8


def value(code):
    e, m = code >> 3 & 15, code & 7
    return (-1 if code & 128 else 1) * (m / 8 * 2**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7))


def main():
    dense, packed = map(pathlib.Path, sys.argv[1:])
    shutil.copytree(dense, packed)
    tensors = read(dense / "model.safetensors")
    made, rng, n_stacks = {}, random.Random(1), 0
    table = [value(c) for c in range(256)]
    for name, (dtype, shape, raw) in list(tensors.items()):
        if len(shape) != 3 or "conv" in name:
            made[name] = (dtype, shape, raw)
            continue
        n_stacks += 1
        rows, columns = shape[0] * shape[1], shape[2]
        codes = [rng.choice((0, 128)) + rng.randrange(0, 96) for _ in range(rows * columns)]
        scales = [rng.randrange(8, 16) * 2.0**-9 for _ in range(rows // BLOCK * columns // BLOCK)]
        values = [table[c] * scales[i // columns // BLOCK * (columns // BLOCK) + i % columns // BLOCK] for i, c in enumerate(codes)]
        tensors[name] = (dtype, shape, to_bf16(values))
        made[name] = ("F8_E4M3", shape, bytes(codes))
        made[name + "_scale_inv"] = ("F32", [shape[0], shape[1] // BLOCK, columns // BLOCK], struct.pack(f"<{len(scales)}f", *scales))
    assert n_stacks, "no experts in one tensor"
    write(dense / "model.safetensors", tensors)
    write(packed / "model.safetensors", made)
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}
    (packed / "config.json").write_text(json.dumps(config, indent=2))


main()
