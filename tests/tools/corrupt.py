"""corrupt.py - makes faults in several Linears of an output, and prints the name of each Linear and
its fault.

usage: corrupt.py OUT LAYER       LAYER: such as model.layers.0, whose q, k, o, gate and down get
                                  faults

Codes and scales stay valid in the format, so only a comparison with the source shows that they are
wrong. The manifest is not changed (st_edit OUT manifest updates its checksums)."""
import json
import pathlib
import sys

from tensors import read, write

out, layer = pathlib.Path(sys.argv[1]), sys.argv[2]
path = out / "model.safetensors"
tensors = read(path)
bits = next(iter(json.loads((out / "config.json").read_text())["quantization_config"]["config_groups"].values()))["weights"]["num_bits"]


def zero(dtype, raw, row):
    """Returns a row in which each code is 0. Packed integers are stored with an offset of half
    their range."""
    byte = {2: 0xAA, 4: 0x88, 8: 0x80}[bits] if dtype == "I32" else 0
    return bytes([byte]) * len(raw)


def shuffle(dtype, raw, row):
    """Swaps the halves of the second row of codes."""
    half = row + row // 2
    return raw[:row] + raw[half : 2 * row] + raw[row:half] + raw[2 * row :]


def flip(dtype, raw, row):
    """Changes the sign of each code."""
    if dtype == "I32":
        return bytes((-b & 15) | (-(b >> 4) & 15) << 4 if bits == 4 else -b & 255 for b in raw)
    if dtype == "I8":
        return bytes(-b & 255 for b in raw)
    return bytes(b ^ (0x88 if dtype == "U8" else 0x80) for b in raw)


def double(dtype, raw, row):
    """Doubles the scales by adding 1 to the exponents."""
    step = {"BF16": 128, "F8_E4M3": 8, "U8": 1}[dtype]
    if dtype == "BF16":
        values = [int.from_bytes(raw[i : i + 2], "little") + step for i in range(0, len(raw), 2)]
        return b"".join(v.to_bytes(2, "little") for v in values)
    return bytes(b + step if b < 0x70 or dtype == "U8" else b - step for b in raw)


ways = {"self_attn.q_proj": zero, "self_attn.k_proj": shuffle, "self_attn.o_proj": flip, "mlp.down_proj": double}
for name, way in ways.items():
    module = f"{layer}.{name}"
    leaf = ".weight_scale" if way is double else ".weight_packed" if module + ".weight_packed" in tensors else ".weight"
    dtype, shape, raw = tensors[module + leaf]
    row = len(raw) // shape[0]
    made = way(dtype, raw, row)
    assert made != raw and len(made) == len(raw), module
    tensors[module + leaf] = (dtype, shape, made)
    print(module, way.__name__)
write(path, tensors)
