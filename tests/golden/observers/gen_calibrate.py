"""gen_calibrate.py - computes with NumPy the ranges of observers that count values in bins.

usage: python gen_calibrate.py      (in an environment with numpy)

calibrate.json  <case>: observer, kwargs, type, symmetric, number of values of each sample, and the
                range, as F32 bits

A value is u u' u'' scale, where u, u' and u'' are uniform numbers in [-1, 1) of the counter RNG. If
the case is one-sided, the absolute value is used.
"""
import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym  # noqa: E402

SEED = 20261124
# Members of a case: observer, kwargs, type, symmetric, one-sided, and (number of values, scale) of
# each sample. GROWING has four samples.
GROWING = [(3000, 1.0), (2000, 0.0), (4000, 2.7), (1000, 0.4)]
CASES = [
    ("percentile", {}, "int", True, False, GROWING),
    ("percentile", {"percentile": 99.0, "bins": 512}, "int", True, False, GROWING),
    ("percentile", {"percentile": 98.0}, "int", False, False, GROWING),
    ("percentile", {"percentile": 99.5}, "float", True, True, GROWING),
    # the second sample has values that do not fit into the bins of the first sample
    ("percentile", {"percentile": 90.0, "bins": 16}, "int", True, False, [(500, 0.01), (500, 300.0)]),
    ("layerwise_percentile", {}, "int", True, False, GROWING),
    ("layerwise_percentile", {"first": 90, "second": 99, "third": 99.9, "mse": True}, "int", True, False, GROWING),
    ("layerwise_percentile", {"first": 80, "second": 97, "third": 99}, "float", True, False, GROWING),
    ("min_mse", {}, "int", True, False, GROWING),
    ("min_mse", {"grid": 40, "maxshrink": 0.5}, "int", False, True, GROWING),
    ("min_mse", {}, "float", True, False, GROWING),
    ("min_mse", {"power_of_two": True}, "int", True, False, GROWING),
    ("entropy", {"bins": 512, "levels": 32}, "int", True, False, GROWING),
    ("entropy", {"bins": 256}, "float", True, True, GROWING),
    ("entropy", {"bins": 64, "levels": 16}, "int", True, False, [(2000, 0.5), (2000, 7.0)]),
    ("distribution", {}, "float", True, False, GROWING),
    ("distribution", {"bins": 512}, "int", True, False, GROWING),
    ("layerwise_percentile", {"first": 90, "second": 99, "third": 99.9, "bins": 64, "exact": True}, "int", True, False,
     GROWING),
    ("layerwise_percentile", {"first": 80, "second": 97, "third": 99, "mse": True, "exact": True}, "int", False, False,
     GROWING),
    ("layerwise_percentile", {"first": 95, "second": 90, "third": 99, "exact": True}, "float", True, False, GROWING),
    ("min_mse", {"bins": 32, "exact": True}, "int", True, False, GROWING),
    ("min_mse", {"grid": 40, "exact": True}, "int", False, True, [(500, 0.01), (500, 300.0)]),
    ("min_mse", {"power_of_two": True, "exact": True}, "int", True, False, GROWING),
]
E4M3 = []
for code in range(127):
    e, m = code >> 3, code & 7
    E4M3.append((m / 8) * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7))
E4M3 = np.array(E4M3)


def sample(stream, n, scale, one_sided):
    x = rng_sym(SEED, stream, n) * rng_sym(SEED, stream + 1, n) * rng_sym(SEED, stream + 2, n) * np.float32(scale)
    return np.abs(x) if one_sided else x


def histogram(samples, bins, grow=8):
    """Returns the width of the bins, the counts of the bins of [-n width, n width), the smallest
    value, and the largest value."""
    width, n, up, down = 0.0, 0, None, None
    zeros = 0
    for x in samples:
        x = x.astype(np.float64)
        most = np.abs(x).max()
        if width == 0 and most > 0:
            width, n = most / bins, bins
            up, down = np.zeros(n, np.int64), np.zeros(n, np.int64)
            up[0] = zeros
        while width and most > width * n:
            more = int(np.floor((most - width * n) / width)) + 1
            if n + more <= bins * grow:
                n += more
                up, down = (np.append(h, np.zeros(more, np.int64)) for h in (up, down))
            else:
                up, down = (np.append(h, np.zeros(n % 2, np.int64)).reshape(-1, 2).sum(1) for h in (up, down))
                width, n = 2 * width, (n + 1) // 2
        if not width:
            zeros += len(x)
            continue
        at = np.minimum((np.abs(x) / width).astype(np.int64), n - 1)
        up += np.bincount(at[x >= 0], minlength=n)
        down += np.bincount(at[x < 0], minlength=n)
    every = np.concatenate(samples).astype(np.float64)
    return width, np.append(down[::-1], up), every.min(), every.max()


def edge(counts, share, first, width):
    reached = np.cumsum(counts) >= share * counts.sum()
    return (first + min(int(np.argmax(reached)), len(counts) - 1)) * width


def percentile(h, symmetric, p):
    width, counts, low, high = h
    n = len(counts) // 2
    if symmetric:
        hi = max(edge(counts[n:] + counts[:n][::-1], p / 100, 0, width), width)
        lo = -hi
    else:
        cut = (100 - p) / 200
        lo, hi = edge(counts, cut, -n, width), edge(counts, 1 - cut, -n, width)
    return max(lo, low), min(hi, high)


def loss(h, kind, symmetric, lo, hi, power):
    width, counts, _, _ = h
    n = len(counts) // 2
    c = ((np.arange(-n, n) + 0.5) * width).astype(np.float32)
    return (counts * errors(c, kind, symmetric, lo, hi)**power).sum()


def exact(samples, kind, symmetric, lo, hi, power):
    return sum((errors(x.astype(np.float32), kind, symmetric, lo, hi)**power).mean() for x in samples)


def errors(c, kind, symmetric, lo, hi):
    lo, hi = min(np.float32(lo), np.float32(0)), max(np.float32(hi), np.float32(0))
    if kind == "float":
        scale = np.float32(max(-lo, hi)) / np.float32(448)
        a = np.minimum(np.abs(c / scale), np.float32(448)).astype(np.float64)
        at = np.clip(np.searchsorted(E4M3, a), 1, 126)
        below, above = a - E4M3[at - 1], E4M3[at] - a
        down = (below < above) | ((below == above) & (at % 2 == 1))  # ties go to the even code
        y = np.sign(c) * np.where(down, E4M3[at - 1], E4M3[at]).astype(np.float32) * scale
    else:
        if symmetric:
            scale, zero = np.float32(max(-lo, hi)) / np.float32(127.5), np.float32(0)
        else:
            scale = np.float32(hi - lo) / np.float32(255)
            zero = np.clip(np.round(np.float32(-128) - lo / scale), -128, 127).astype(np.float32)
        y = (np.clip(np.round(c / scale + zero), -128, 127) - zero).astype(np.float32) * scale
    return np.abs(c.astype(np.float64) - y.astype(np.float64))


def entropy(h, bins, levels):
    width, counts, low, high = h
    n = len(counts) // 2
    best, least = n, np.inf
    for i in range(levels // 2, n + 1, -(-n // bins)):
        inside = counts[n - i:n + i].astype(np.float64)
        p, q = inside.copy(), np.zeros(2 * i)
        p[0] += counts[:n - i].sum()
        p[-1] += counts[n + i:].sum()
        run = 2 * i // levels
        for k in range(levels):
            part = slice(k * run, 2 * i if k == levels - 1 else (k + 1) * run)
            some = p[part] > 0
            if some.any():
                q[part] = some * (inside[part].sum() / some.sum())
        if not q.sum() > 0:
            continue
        both = []
        for d in (p, q):
            none = (d == 0).sum()
            smooth = np.where(d > 0, np.maximum(d - 1e-4 * none / max(len(d) - none, 1), 1e-4), 1e-4)
            both.append(smooth / d.sum())
        kl = (both[0] * np.log(both[0] / both[1])).sum()
        if kl < least:
            best, least = i, kl
    return max(-best * width, low), min(best * width, high)


def find(observer, kwargs, kind, symmetric, samples):
    whole = observer in ("entropy", "distribution") or not symmetric
    bins = kwargs.get("bins", 2048) // (2 if whole else 1)
    h = histogram(samples, bins)
    width, counts, low, high = h
    n = len(counts) // 2

    def lost(r, power):
        return exact(samples, kind, symmetric, *r, power) if kwargs.get("exact") else loss(h, kind, symmetric, *r, power)

    if observer == "percentile":
        return percentile(h, symmetric, kwargs.get("percentile", 99.999))
    if observer == "layerwise_percentile":
        of = [kwargs.get(k, d) for k, d in (("first", 99.99), ("second", 99.999), ("third", 99.99999))]
        ranges = [percentile(h, symmetric, p) for p in of]
        losses = [lost(r, 2 if kwargs.get("mse") else 1) for r in ranges]
        return ranges[int(np.argmin(losses))]
    if observer == "min_mse":
        grid, top = kwargs.get("grid", 100), 448 if kind == "float" else 127.5
        if kwargs.get("power_of_two"):
            e = int(np.ceil(np.log2(max(-low, high) / top)))
            ranges = [(-top * 2.0 ** (e + 1 - i), top * 2.0 ** (e + 1 - i)) for i in range(5)]
        else:
            ranges = [(low * (1 - i / grid), high * (1 - i / grid)) for i in range(int(kwargs.get("maxshrink", 0.8) * grid))]
        return ranges[int(np.argmin([lost(r, 2) for r in ranges]))]
    if observer == "entropy":
        return entropy(h, bins, kwargs.get("levels", 128))
    most = max(-low, high)
    if kind == "float":
        c = (np.arange(-n, n) + 0.5) * width
        mean = (counts * c).sum() / counts.sum()
        deviation = np.sqrt((counts * c * c).sum() / counts.sum() - mean * mean)
        most = 448 * deviation / np.sqrt(np.append(E4M3, -E4M3).astype(np.float64).__pow__(2).mean())
    return -most, most


def main():
    out = {}
    for number, (observer, kwargs, kind, symmetric, one_sided, sizes) in enumerate(CASES):
        samples = [sample(10 * number + 100 * k, n, scale, one_sided) for k, (n, scale) in enumerate(sizes)]
        lo, hi = find(observer, kwargs, kind, symmetric, samples)
        given = ", ".join(f"{k}: {str(v).lower()}" for k, v in kwargs.items())
        out[f"{number:02d}-{observer}"] = {
            "args": f"{{num_bits: 8, type: {kind}, strategy: tensor, symmetric: {str(symmetric).lower()}, "
                    f"observer: {observer}, observer_kwargs: {{{given}}}}}",
            "one_sided": one_sided, "samples": sizes, "lo": float(np.float32(lo)), "hi": float(np.float32(hi))}
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()]
    (HERE / "calibrate.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
