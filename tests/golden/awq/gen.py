"""gen.py - writes the factors that LLM Compressor's AWQModifier finds. This script and test_awq.c
make the same inputs and weights from a counter RNG. The parent module of the two Linears returns
the concatenation of their outputs. So the loss of the parent is the sum of the losses of the
Linears.

usage: python gen.py      (in an environment with compressed-tensors, llmcompressor, safetensors,
                          torch)

factors.safetensors  <case>: F32 [N], the best factors
cases.json           <case>: dtype, scheme, duo (true, false, both), n_grid, stream, the best ratio,
and margin: the second best loss divided by the best loss

N is 64, T is 96 tokens, and the Linears have 32 and 16 rows. u, v and v' are uniform in [-1, 1):

    x[t, c]    = u[t, c] (1 + 15 v[c]^4)           rounded to the dtype
    w_k[r, c]  = u[r, c] / (1 + 7 v'[c]^2)         rounded to the dtype
"""
import importlib.metadata
import json
import pathlib
import sys

import torch
from compressed_tensors.quantization import QuantizationScheme, initialize_module_for_quantization
from llmcompressor.modifiers.quantization.calibration import initialize_observer
from llmcompressor.modifiers.transform.awq.base import AWQModifier, ResolvedMapping
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym  # noqa: E402
SEED, N, T, ROWS = 20261122, 64, 96, (32, 16)
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
SCHEMES = {
    "int4_g32": dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32),
    "int3_asym_g16": dict(num_bits=3, type="int", symmetric=False, strategy="group", group_size=16),
    "int4_channel": dict(num_bits=4, type="int", symmetric=True, strategy="channel"),
    "fp8_block": dict(num_bits=8, type="float", symmetric=True, strategy="block", block_structure=[16, 16]),
    "nvfp4": dict(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16,
                  scale_dtype="torch.float8_e4m3fn", zp_dtype="torch.float8_e4m3fn"),
}


def numbers(stream, n):
    return torch.from_numpy(rng_sym(SEED, stream, n))


class Both(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.a, self.b = layers

    def forward(self, x):
        return torch.cat([torch.nn.functional.linear(x, m.weight.to(x.dtype)) for m in (self.a, self.b)], -1)


class Search(AWQModifier):
    def _run_samples(self, module):
        return [module(self._x)]

    def _compute_loss(self, a, b):
        loss = super()._compute_loss(a, b)
        self._losses.append(loss)
        return loss


def run(c):
    dtype, s = DTYPES[c["dtype"]], c["stream"]
    v = numbers(s + 1, N)
    x = (numbers(s, T * N).reshape(T, N) * (1 + 15 * v * v * v * v)).to(dtype)
    scheme = QuantizationScheme(targets=["Linear"], weights=SCHEMES[c["scheme"]])
    layers = []
    for k, rows in enumerate(ROWS):
        v = numbers(s + 3 + 2 * k, N)
        layer = torch.nn.Linear(N, rows, bias=False, dtype=dtype)
        layer.weight.data = (numbers(s + 2 + 2 * k, rows * N).reshape(rows, N) / (1 + 7 * v * v)).to(dtype)
        initialize_module_for_quantization(layer, scheme)
        initialize_observer(layer, "weight")
        layers.append(layer)
    parent = Both(layers)
    m = Search(duo_scaling={"true": True, "false": False, "both": "both"}[c["duo"]], n_grid=c["n_grid"])
    object.__setattr__(m, "_losses", [])
    object.__setattr__(m, "_x", x)
    m._smooth_activation_stats["s"] = [x.abs().float().sum(0), torch.tensor(T)]
    mapping = ResolvedMapping("s", None, layers, balance_names=["a", "b"], parent=parent, parent_name="p",
                              activation_hook_target=None)
    with torch.no_grad():
        best = m._compute_best_scale(mapping, [parent(x)], {k: k.weight.clone() for k in layers})
    losses = sorted(m._losses)
    c["ratio"] = m._get_grid_search_params()[m._losses.index(losses[0])][0]
    c["margin"] = round(losses[1] / losses[0] - 1, 4)
    assert c["margin"] > 0.01, c
    return best.float()


def main():
    torch.set_num_threads(1)
    tensors, cases = {}, {}
    for i, scheme in enumerate(SCHEMES):
        for k, dtype in enumerate(DTYPES):
            duo = ("true", "false", "both")[(i + k) % 3]
            for stream in range(1000 * len(cases), 1000 * len(cases) + 1000, 10):
                c = {"dtype": dtype, "scheme": scheme, "duo": duo, "n_grid": 8, "stream": stream}
                try:
                    tensors[f"{scheme}_{dtype}"] = run(c).contiguous()
                except AssertionError:  # two points of the grid have nearly equal losses
                    continue
                cases[f"{scheme}_{dtype}"] = c
                break
    save_file(tensors, HERE / "factors.safetensors")
    (HERE / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    versions = {p: importlib.metadata.version(p) for p in ("torch", "compressed-tensors", "llmcompressor", "numpy")}
    (HERE / "MANIFEST.json").write_text(json.dumps({"seed": SEED, **versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
