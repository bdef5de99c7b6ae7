"""adapter.py - makes a LoRA adapter in the format of PEFT for some Linears of a BF16 model, and a
copy of the model into which the adapter is merged.

usage: adapter.py MODEL ADAPTER MERGED MODULE...

The elements of the adapter are multiples of 1/64 and the scaling is 1.5, so sums do not depend on
the order of additions."""
import array
import json
import pathlib
import random
import shutil
import struct
import sys

from tensors import bf16, read, write

RANK, ALPHA = 2, 3


def rounded(values):
    """Returns BF16 bytes of floats, rounded to nearest, ties to even."""
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return array.array("H", ((w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words)).tobytes()


def main():
    model, adapter, merged = map(pathlib.Path, sys.argv[1:4])
    tensors, update, rng = read(model / "model.safetensors"), {}, random.Random(1)
    for module in sys.argv[4:]:
        dtype, (O, I), raw = tensors[module + ".weight"]
        a = [[rng.randrange(-4, 5) / 64 for _ in range(I)] for _ in range(RANK)]
        b = [[rng.randrange(-4, 5) / 64 for _ in range(RANK)] for _ in range(O)]
        for leaf, rows in (("A", a), ("B", b)):
            update[f"base_model.model.{module}.lora_{leaf}.weight"] = (
                "F32", [len(rows), len(rows[0])], b"".join(array.array("f", row).tobytes() for row in rows))
        w = bf16(raw)
        tensors[module + ".weight"] = (dtype, [O, I], rounded(
            [w[o * I + i] + sum(b[o][k] * a[k][i] for k in range(RANK)) * ALPHA / RANK for o in range(O) for i in range(I)]))
    shutil.copytree(model, merged, ignore=shutil.ignore_patterns("data"))
    merged.chmod(0o755)
    (merged / "model.safetensors").unlink()
    write(merged / "model.safetensors", tensors)
    adapter.mkdir()
    write(adapter / "adapter_model.safetensors", update)
    (adapter / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": ["any"], "use_dora": False, "bias": "none"}, indent=1))


main()
