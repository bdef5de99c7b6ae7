"""mxfp4.py - makes two models: a tiny gpt-oss whose experts are MXFP4, like the released model, and
a dense model with the same values.

usage: mxfp4.py DENSE PACKED      DENSE: a model with experts in BF16, which are rounded in place;
                                  PACKED: the model that is written

A block has 32 codes along the input. Codes are U8 [experts, rows, groups, 16], two per byte, the
first in the low bits. Scales are exponents + 127, U8 [experts, rows, groups]. The dense tensor is
[experts, input, rows]."""
import json
import pathlib
import shutil
import sys

from tensors import bf16, read, to_bf16, write

FP4 = [0.0, 0.5, 1, 1.5, 2, 3, 4, 6]


def pack(shape, raw):
    """Returns the blocks, the scales, and the dequantized values."""
    experts, inputs, rows = shape
    x, dense, blocks, scales = bf16(raw), [0.0] * (experts * inputs * rows), bytearray(), bytearray()
    for e in range(experts):
        for r in range(rows):
            for g in range(inputs // 32):
                at = [(e * inputs + 32 * g + i) * rows + r for i in range(32)]
                largest, power = max(abs(x[i]) for i in at), -20
                while 6 * 2.0**power < largest:
                    power += 1
                codes = []
                for i in at:
                    code = min(range(8), key=lambda c: abs(FP4[c] - abs(x[i]) / 2.0**power))
                    dense[i] = (-1 if x[i] < 0 else 1) * FP4[code] * 2.0**power
                    codes.append(code | 8 * (x[i] < 0))
                blocks += bytes(codes[k] | codes[k + 1] << 4 for k in range(0, 32, 2))
                scales.append(power + 127)
    return blocks, scales, to_bf16(dense)


dense, packed = map(pathlib.Path, sys.argv[1:3])
shutil.copytree(dense, packed)
there, codes = read(dense / "model.safetensors"), {}
for name, (dtype, shape, raw) in list(there.items()):
    if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
        codes[name] = there[name]
        continue
    experts, inputs, rows = shape
    blocks, scales, rounded = pack(shape, raw)
    there[name] = (dtype, shape, rounded)
    codes[name + "_blocks"] = ("U8", [experts, rows, inputs // 32, 16], blocks)
    codes[name + "_scales"] = ("U8", [experts, rows, inputs // 32], scales)
write(dense / "model.safetensors", there)
write(packed / "model.safetensors", codes)
config = json.loads((packed / "config.json").read_text())
config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
(packed / "config.json").write_text(json.dumps(config, indent=2) + "\n")
