"""noise.py TEST_MODELS DRAWS CASE... - compares rounding errors of this program and of transformers
for several random draws of the weights. An error is the distance of a BF16 or F16 result from the
f32 result.

The ratio of two mean errors over 288 tokens varies by 3 to 20 % with the weights, so one draw is
not enough. The script prints the sum of our errors divided by the sum of transformers' errors, and
its standard error, by leaving out one draw at a time (jackknife). TEST_MODELS is
build/release/tests/test_models. Draws are stored in the directory noise-draws, and are made if they
are missing.
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import gen
import numpy as np
import torch


def draw(case, seed, directory):
    if (directory / f"{case}.nll.npy").exists():
        return
    gen.SEED = seed
    config, _ = gen.CASES[case]
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "config.json").write_text(json.dumps(config))
        tensors = gen.names_and_shapes(d, case.endswith("_stacked"))
    samples = gen.tokens(config.get("text_config", config)["vocab_size"])
    rows = gen.half_rows(config, tensors, samples)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{case}.json").write_text(json.dumps(
        {"config": config, "lens": gen.LENS, "logit_samples": gen.LOGIT_SAMPLES, "tensors": tensors, "seed": seed}))
    np.save(directory / f"{case}.nll.npy", np.stack(rows))


def pooled(pairs):
    n, ours, theirs = len(pairs), sum(a for a, _ in pairs), sum(b for _, b in pairs)
    left = [(ours - a) / (theirs - b) for a, b in pairs]
    mean = sum(left) / n
    return ours / theirs, math.sqrt((n - 1) / n * sum((x - mean) ** 2 for x in left))


if __name__ == "__main__":
    torch.set_num_threads(1)
    test, draws, cases = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    for case in cases:
        found = {"bf16": [], "f16": []}
        for seed in range(101, 101 + draws):
            directory = pathlib.Path("noise-draws") / str(seed)
            draw(case, seed, directory)
            out = subprocess.run([test, str(directory), case], capture_output=True, text=True, check=True).stdout
            for dtype, ours, theirs in re.findall(r"(b?f16)\s+mean \|NLL diff\| (\S+), transformers (\S+),", out):
                found[dtype].append((float(ours), float(theirs)))
        for dtype, pairs in found.items():
            ratio, error = pooled(pairs)
            each = [a / b for a, b in pairs]
            print(f"{case:24s} {dtype:4s} {len(pairs)} draws: pooled {ratio:.3f} +- {error:.3f}, one {min(each):.2f} to {max(each):.2f}", flush=True)
