#!/usr/bin/env python3
"""check_gpu.py - compares two W4A16 outputs for scripts/check-gpu.sh, one of the GPU and one of the
host.

Usage: check_gpu.py codes GPU HOST    prints, for each Linear of layer 0, the percentage of equal
                                      codes and the quotient of the objectives; prints fallbacks.
                                      Exits with 1 if the difference is more than rounding noise.
       check_gpu.py layers GPU HOST   prints the percentage of different codes of each layer"""
import json
import pathlib
import struct
import sys

NIBBLES = bytes((i & 15 != 0) + (i >> 4 != 0) for i in range(256))


def load(folder):
    data = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:], json.loads((pathlib.Path(folder) / "oneshot-report.json").read_text())


def differ(name, gpu, host):
    """Returns the number of different 4-bit codes of a packed weight, and of all its codes."""
    x, y = (data[slice(*header[name]["data_offsets"])] for header, data, _ in (gpu, host))
    apart = (int.from_bytes(x, "little") ^ int.from_bytes(y, "little")).to_bytes(len(x), "little").translate(NIBBLES)
    return apart.count(1) + 2 * apart.count(2), 2 * len(x)


def codes(gpu, host):
    mine, theirs = ({m["name"]: m for m in report["modules"]} for _, _, report in (gpu, host))
    bad = 0
    for name, m in mine.items():
        n, all_codes = differ(name + ".weight_packed", gpu, host)
        same = 1 - n / all_codes
        ratio = m["objective"] / theirs[name]["objective"] if theirs[name].get("objective") else float("nan")
        bad += not (same > 0.5 and 0.95 < ratio < 1.05)  # noise grows from the first Linear to the last
        print(f"{name.split('layers.0.')[1]}: {100 * same:.2f} % of the codes are equal, objective {ratio:.5f} times the host's"
              + "".join(f", {who}: {r['fallback']}" for who, r in (("GPU", m), ("host", theirs[name])) if r.get("fallback")))
    d = gpu[2]["device"]
    print(f"fallbacks of the GPU: {d['fallbacks'] or 'none'}; values: {d['values']}; seconds by the clock of the GPU: {d['seconds']}")
    return bool(bad)


def layers(gpu, host):
    sums = {}
    for name in gpu[0]:
        if name.endswith("weight_packed"):
            n, all_codes = differ(name, gpu, host)
            one = sums.setdefault(int(name.split(".")[2]), [0, 0])
            one[0] += n
            one[1] += all_codes
    print("codes that differ, layer by layer: " + ", ".join(f"{100 * n / total:.1f}" for _, (n, total) in sorted(sums.items())) + " %")
    return False


sys.exit({"codes": codes, "layers": layers}[sys.argv[1]](load(sys.argv[2]), load(sys.argv[3])))
