#!/usr/bin/env python3
"""gen.py - writes files with the safetensors library. osh_safetensors_layout and osh_container_open
must agree with the library. Run in this directory."""
import json

import numpy
import safetensors
import torch
from safetensors.torch import save_file

META = {"format": "pt"}
DTYPES = {"i64": torch.int64, "f64": torch.float64, "f32": torch.float32, "i32": torch.int32, "bf16": torch.bfloat16,
          "f16": torch.float16, "i16": torch.int16, "fp8": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
          "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool, "u16": torch.uint16, "u32": torch.uint32,
          "u64": torch.uint64}


def counted(shape, dtype):
    """Returns a tensor with the bytes 0, 1, 2, ... modulo 251 (bool: 0 and 1), which the test
    checks."""
    n = int(numpy.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    b = torch.tensor([i % (2 if dtype == torch.bool else 251) for i in range(n)], dtype=torch.uint8)
    return b.view(dtype).reshape(shape)


every = {name: counted((3, 5), dt) for name, dt in DTYPES.items()}
every.update({name + ".odd": counted((7,), dt) for name, dt in DTYPES.items()})
names = {n: counted((2,), torch.bfloat16) for n in
         ["model.layers.10.w", "model.layers.2.w", "model.layers.1.w", "a", "A", "", "quote\"back\\slash/", "tab\tline\nreturn\r",
          "bell\x07\x08\x0b\x0c\x1f\x7f", "größe", "語", "😀", "~", "z" * 300]}
shapes = {"scalar": counted((), torch.float32), "empty": counted((0,), torch.float32),
          "empty3": counted((3, 0, 2), torch.int64), "eight": counted((1, 2, 1, 2, 1, 2, 1, 2), torch.uint8)}
packed = {}
for i in (0, 2, 10):
    for m in ("mlp.down_proj", "self_attn.q_proj"):
        p = f"model.layers.{i}.{m}."
        packed[p + "weight_packed"] = counted((8, 2), torch.int32)
        packed[p + "weight_scale"] = counted((8, 1), torch.bfloat16)
        packed[p + "weight_shape"] = counted((2,), torch.int64)
for topic, tensors in (("every_dtype", every), ("names", names), ("shapes", shapes), ("packed", packed), ("none", {})):
    save_file(tensors, topic + ".safetensors", metadata=META)
for k in range(8):  # writes files with every length of padding
    save_file({"n" * (k + 1): counted((1,), torch.uint8)}, f"pad{k}.safetensors", metadata=META)
with open("MANIFEST.json", "w") as f:
    json.dump({"safetensors": safetensors.__version__, "torch": torch.__version__.split("+")[0]}, f, indent=2)
    f.write("\n")
