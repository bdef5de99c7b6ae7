"""gen.py - writes factors and changed weights of LLM Compressor's SmoothQuantModifier. This script
and test_smoothquant.c make the same ranges and weights from a counter RNG.

usage: python gen.py      (in an environment with compressed-tensors, llmcompressor, safetensors,
                          torch)

factors.safetensors  <case>.s        F32 [N]: the factors of the weights
                     <case>.balance  [2, N], rounded to the dtype: the first Linear's weight times s
                     <case>.norm     [N]: the norm's weight divided by s
cases.json           <case>: dtype, strength, algorithm, stream

N is 129, and two Linears have 2 rows each. u, u', v and v' are uniform in [-1, 1). All results are
rounded to the dtype:

    lo[c], hi[c] = -16 u[c]^2, 16 u'[c]^2; both are 0 if c mod 17 = 3
    w[r, c]      = v[r, c] / 4, or 0 if c mod 13 = 5
    norm[c]      = 1 + v'[c] / 2
"""
import importlib.metadata
import json
import pathlib
import sys

import torch
from llmcompressor.modifiers.transform.smoothquant.base import MINIMUM_SMOOTHING_SCALE, SmoothQuantModifier
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym  # noqa: E402
SEED, N = 20261122, 129
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
STRENGTHS = {"0.5": 0.5, "0.8": 0.8, "0.3": 0.3, "0": 0.0, "1": 1.0}


def numbers(stream, n, dtype):
    return torch.from_numpy(rng_sym(SEED, stream, n)).to(dtype)


def squares(stream, dtype):
    x = torch.from_numpy(rng_sym(SEED, stream, N))
    return (x * x * 16).to(dtype)


def run(c):
    dtype, s = DTYPES[c["dtype"]], c["stream"]
    lo, hi = -squares(s, dtype), squares(s + 1, dtype)
    at = torch.arange(N)
    lo[at % 17 == 3], hi[at % 17 == 3] = 0, 0
    layers = [torch.nn.Linear(N, 2, bias=False, dtype=dtype) for _ in range(2)]
    for k, layer in enumerate(layers):
        w = (numbers(s + 2 + k, 2 * N, torch.float32) / 4).to(dtype).reshape(2, N)
        w[:, at % 13 == 5] = 0
        layer.weight.data = w
    norm = (1 + numbers(s + 4, N, torch.float32) / 2).to(dtype)
    m = SmoothQuantModifier(smoothing_strength=c["strength"], algorithm=c["algorithm"])
    with torch.no_grad():
        f = m._calculate_smoothing_scales(layers, hi - lo)
        f = torch.maximum(f, torch.Tensor([MINIMUM_SMOOTHING_SCALE]))
        return {"s": f.float(), "balance": (layers[0].weight * f.view(1, -1)).to(dtype), "norm": (norm / f).to(dtype)}


def main():
    torch.set_num_threads(1)
    tensors, cases = {}, {}
    for dtype in DTYPES:
        rows = [(f"smooth_{k}", v, "smoothquant") for k, v in STRENGTHS.items()] + [("log", 0.5, "log_equalization")]
        for name, strength, algorithm in rows:
            c = {"dtype": dtype, "strength": strength, "algorithm": algorithm, "stream": 10 * len(cases)}
            cases[f"{dtype}_{name}"] = c
            for leaf, t in run(c).items():
                tensors[f"{dtype}_{name}.{leaf}"] = t.contiguous()
    save_file(tensors, HERE / "factors.safetensors")
    (HERE / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    versions = {p: importlib.metadata.version(p) for p in ("torch", "compressed-tensors", "llmcompressor", "numpy")}
    (HERE / "MANIFEST.json").write_text(json.dumps({"seed": SEED, **versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
