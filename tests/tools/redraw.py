"""redraw.py - replaces the weights of all Linears of a model by random numbers with the variance
1 / I, or changes a pruned output.

usage: redraw.py MODEL normal|student       new weights; student: 3 degrees of freedom
       redraw.py MODEL swap|zero|shift A B  swaps the weights (codes and scales) of the modules A
                                            and B, sets the codes of A to 0, or shifts the rows of
                                            A by one"""
import pathlib
import random
import struct
import sys

from tensors import read, write

model, how = pathlib.Path(sys.argv[1]), sys.argv[2]
rng = random.Random(7)


def draw(deviation):
    x = rng.gauss(0, deviation)
    return x if how == "normal" else x / (rng.gammavariate(1.5, 2) or 1) ** 0.5


def redraw(tensors):
    for name, (dtype, shape, raw) in tensors.items():
        if name.endswith("_proj.weight"):
            values = struct.pack(f"<{len(raw) // 2}f", *(draw(shape[1] ** -0.5) for _ in range(len(raw) // 2)))
            tensors[name] = (dtype, shape, b"".join(values[i + 2 : i + 4] for i in range(0, len(values), 4)))


def damage(tensors, a, b):
    packed = a + ".weight_packed"
    dtype, shape, raw = tensors[packed]
    row = len(raw) // shape[0]
    if how == "zero":
        tensors[packed] = (dtype, shape, b"\x88" * len(raw))
    elif how == "shift":
        tensors[packed] = (dtype, shape, raw[row:] + raw[:row])
    else:
        for leaf in (".weight_packed", ".weight_scale"):
            tensors[a + leaf], tensors[b + leaf] = tensors[b + leaf], tensors[a + leaf]


for path in sorted(model.glob("*.safetensors")):
    found = read(path)
    redraw(found) if how in ("normal", "student") else damage(found, *sys.argv[3:5])
    write(path, found)
