"""equal_codes.py - compares the 4-bit codes of an output of the emulated GPU with those of another
output, and the GPU memory of the run with its prediction.

    equal_codes.py OUTPUT OTHER LEAST     LEAST: smallest share of equal codes
"""
import json
import struct
import sys
from pathlib import Path


def load(path):
    codes = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        raw = file.read_bytes()
        n = struct.unpack("<Q", raw[:8])[0]
        for name, e in json.loads(raw[8:8 + n]).items():
            if name.endswith("weight_packed"):
                codes[name] = raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]]
    return codes


def equal(a, b):
    assert a and a.keys() == b.keys()
    same = sum((x & 15 == y & 15) + (x >> 4 == y >> 4) for k in a for x, y in zip(a[k], b[k]))
    return same / 2 / sum(len(v) for v in a.values())


out, other, least = sys.argv[1], sys.argv[2], float(sys.argv[3])
share = equal(load(out), load(other))
d = json.loads(Path(out, "oneshot-report.json").read_text())["device"]
print(out, "equal codes", share, "peak", d["peak_bytes"], "predicted", d["predicted_peak_bytes"])
assert share >= least, (out, share)
assert d["peak_bytes"] <= d["predicted_peak_bytes"] <= 1.15 * d["peak_bytes"], d
