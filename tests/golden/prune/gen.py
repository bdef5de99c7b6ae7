"""gen.py - writes weights that LLM Compressor's SparseGPTModifier, WandaPruningModifier and
MagnitudePruningModifier have pruned. This script and test_prune.c make the same weights and inputs
from a counter RNG.

usage: python gen.py      (in an environment with compressed-tensors, llmcompressor, safetensors,
                          torch)

pruned.safetensors  <case>: BF16 [24, 64], the pruned weight
cases.json          <case>: the modifier and its keys, and the stream

v, v' and u are uniform in [-1, 1). Weights and inputs are BF16; the 256 tokens are in 4 samples:

    w[o, i] = v[o, i], or 0 if `zeros` is set and (o + i) mod 7 = 0
    x[t, i] = v'[t, i] (1 + (i mod 5)) + u[t], or 0 if i = 9
"""
import importlib.metadata
import json
import pathlib
import sys

import torch
from llmcompressor.modifiers.pruning.sparsegpt import sgpt_sparsify
from llmcompressor.modifiers.pruning.utils.pytorch import PruningMaskCreatorArgs, PruningMaskFactory
from llmcompressor.modifiers.pruning.wanda import wanda_sparsify
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym  # noqa: E402
SEED, O, I, T, SAMPLES = 20261122, 24, 64, 256, 4
CASES = {
    "half": {"modifier": "SparseGPTModifier", "sparsity": 0.5},
    "most": {"modifier": "SparseGPTModifier", "sparsity": 0.75, "block_size": 16, "dampening_frac": 0.1},
    "two_of_four": {"modifier": "SparseGPTModifier", "sparsity": 0.5, "mask_structure": "2:4"},
    "one_of_four": {"modifier": "SparseGPTModifier", "sparsity": 0.25, "mask_structure": "1:4", "block_size": 32},
    "kept": {"modifier": "SparseGPTModifier", "sparsity": 0.5, "preserve_sparsity_mask": True, "zeros": True},
    "kept_of_four": {"modifier": "SparseGPTModifier", "sparsity": 0.5, "mask_structure": "2:4",
                     "preserve_sparsity_mask": True, "zeros": True},
    "wanda": {"modifier": "WandaPruningModifier", "sparsity": 0.6},
    "wanda_of_four": {"modifier": "WandaPruningModifier", "sparsity": 0.5, "mask_structure": "2:4"},
    "magnitude": {"modifier": "MagnitudePruningModifier", "init_sparsity": 0.0, "final_sparsity": 0.4},
}


def numbers(stream, n):
    return torch.from_numpy(rng_sym(SEED, stream, n))


def weight(c):
    w = numbers(c["stream"], O * I).reshape(O, I)
    if c.get("zeros"):
        w[(torch.arange(O)[:, None] + torch.arange(I)) % 7 == 0] = 0
    return w.to(torch.bfloat16)


def inputs(c):
    x = numbers(c["stream"] + 1, T * I).reshape(T, I) * (1 + torch.arange(I) % 5) + numbers(c["stream"] + 2, T)[:, None]
    x[:, 9] = 0
    return x.to(torch.bfloat16).reshape(SAMPLES, T // SAMPLES, I)


def run(c):
    m = torch.nn.Linear(I, O, bias=False, dtype=torch.bfloat16)
    m.weight.data = weight(c)
    n, of = (int(x) for x in c.get("mask_structure", "0:0").split(":"))
    if c["modifier"] == "MagnitudePruningModifier":
        mask = PruningMaskFactory.create_mask_creator("unstructured")(
            PruningMaskCreatorArgs(parameter=m.weight, sparsity=c["final_sparsity"], scores=m.weight.data.abs()))
        return m.weight.data * mask
    sparsegpt = c["modifier"] == "SparseGPTModifier"
    stat = sgpt_sparsify.make_empty_hessian(m) if sparsegpt else wanda_sparsify.make_empty_row_scalars(m)
    add, samples = sgpt_sparsify.accumulate_hessian if sparsegpt else wanda_sparsify.accumulate_row_scalars, 0
    for x in inputs(c):
        stat, samples = add(x[None], m, stat, samples)
    if not sparsegpt:
        return wanda_sparsify.sparsify_weight(m, {m: stat}, c["sparsity"], n, of)
    return sgpt_sparsify.sparsify_weight(m, {m: stat}, c["sparsity"], n, of, c.get("block_size", 128),
                                         c.get("dampening_frac", 0.01), c.get("preserve_sparsity_mask", False))[1]


def main():
    torch.set_num_threads(1)
    tensors = {}
    for k, (name, c) in enumerate(CASES.items()):
        c["stream"] = 10 * k
        with torch.no_grad():
            tensors[name] = run(c).to(torch.bfloat16).contiguous()
    save_file(tensors, HERE / "pruned.safetensors")
    (HERE / "cases.json").write_text(json.dumps(CASES, indent=1) + "\n")
    versions = {p: importlib.metadata.version(p) for p in ("torch", "compressed-tensors", "llmcompressor", "numpy")}
    (HERE / "MANIFEST.json").write_text(json.dumps({"seed": SEED, **versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
