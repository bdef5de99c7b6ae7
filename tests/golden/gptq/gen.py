"""gen.py - writes the codes of LLM Compressor's quantize_weight. This script and
test_gptq_golden.c make the same weights and Hessians from a counter RNG.

usage: python gen.py      (in an environment with compressed-tensors 0.20 or later, llmcompressor,
                          safetensors, torch)

codes.safetensors  <case>.codes: as stored: packed integers, FP8 bytes, or one byte for each FP4 or
                   FP6 code
                   <case>.scale, and <case>.zero if the scheme is asymmetric
cases.json         <case>: shape, dtype, tokens, samples, dead, the recipe for the same job in
                   oneshot, and changed_by_saving, the number of codes that change when LLM
                   Compressor saves, because it quantizes a second time

    w[o, i] = u u' / 4      u, u' uniform in [-1, 1); rounded to the dtype
    x[t, i] = (c[t] m[i] + e[t, i]) g[i] b
              c and e are whole numbers in [-15, 15], m in [0, 3], g in [1, 2]; g is 0 in dead
              columns (i mod 37 = 5); b = floor(sqrt(512 / tokens))
              So X^T X is exact in f32 for any order of its sums
    XX      = X^T X, in which each live diagonal element is raised to the next multiple of 256, plus
              i, so that no two are equal
    H       = 2 / samples * XX, also exact, because `samples` is a power of two
"""
import importlib.metadata
import json
import math
import pathlib
import sys

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.lifecycle.forward import quantize
from llmcompressor.modifiers.gptq.gptq_quantize import quantize_weight
from llmcompressor.observers import Observer
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym, rng_u64  # noqa: E402
SEED = 20261122
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
U64 = np.uint64


def whole(stream, n, below):
    return (rng_u64(SEED, stream, n) % U64(below)).astype(np.int64)


def make_weight(c):
    n = c["O"] * c["I"]
    w = rng_sym(SEED, c["stream"], n) * rng_sym(SEED, c["stream"] + 1, n) * np.float32(0.25)
    return torch.from_numpy(w.reshape(c["O"], c["I"])).to(DTYPES[c["dtype"]])


def make_hessian(c):
    """Returns X^T X, computed exactly."""
    tokens, columns, s = c["tokens"], c["I"], c["stream"]
    common = whole(s + 2, tokens, 31) - 15
    noise = whole(s + 3, tokens * columns, 31).reshape(tokens, columns) - 15
    mix, gain = whole(s + 4, columns, 4), (whole(s + 5, columns, 2) + 1) * math.isqrt(512 // tokens)
    i = np.arange(columns)
    if c["dead"]:
        gain[i % 37 == 5] = 0
    x = (common[:, None] * mix + noise) * gain
    h = x.T @ x
    h[i, i] = np.where(gain == 0, 0, (h[i, i] // 256 + 1) * 256 + i)
    assert np.abs(h).max() < 1 << 24 and columns <= 256
    return torch.from_numpy(h.astype(np.float32))


def preset(name):
    a = preset_name_to_scheme(name, ["Linear"]).weights
    return dict(num_bits=a.num_bits, type="float", strategy=str(getattr(a.strategy, "value", a.strategy)), symmetric=True,
                group_size=a.group_size, scale_dtype=str(a.scale_dtype), zp_dtype=str(a.zp_dtype))


def ints(bits, strategy, symmetric=True, group=None):
    return dict(num_bits=bits, type="int", strategy=strategy, symmetric=symmetric, group_size=group)


# Maps the name of a case to its members: O, I, dtype, number of tokens, whether channels are dead,
# arguments of the weights, actorder, and other arguments of the modifier.
CASES = {
    "g64_sym_static": (48, 256, "BF16", 512, False, ints(4, "group", True, 64), "static", {}),
    "g64_asym_none": (40, 256, "BF16", 512, False, ints(4, "group", False, 64), None, {}),
    "g32_asym_static_f16": (32, 256, "F16", 512, False, ints(4, "group", False, 32), "static", {}),
    "channel_int8_static": (16, 256, "BF16", 512, False, ints(8, "channel"), "static", {}),
    "channel_asym_int5_f32": (24, 256, "F32", 512, False, ints(5, "channel", False), None, {}),
    "tensor_int6_weight": (24, 256, "BF16", 512, False, ints(6, "tensor"), "weight", {}),
    "tensor_asym_int4": (32, 256, "BF16", 512, False, ints(4, "tensor", False), None, {}),
    "dead_g32_int3_static": (48, 256, "BF16", 512, True, ints(3, "group", True, 32), "static", {}),
    "dead_g128_asym_none": (32, 256, "BF16", 512, True, ints(4, "group", False, 128), None, {}),
    "singular_g128_static": (32, 256, "BF16", 64, False, ints(4, "group", True, 128), "static", {}),
    "singular_dead_channel": (32, 256, "BF16", 16, True, ints(4, "channel"), "static", {"dampening_frac": 0.1}),
    "int2_block64_i192": (64, 192, "BF16", 512, False, ints(2, "group", False, 64), "static",
                          {"block_size": 64, "dampening_frac": 0.05}),
    "one_token_int7": (16, 256, "BF16", 1, False, ints(7, "group", True, 64), "static", {}),
    "fp8_channel_static": (12, 256, "BF16", 512, False,
                           dict(num_bits=8, type="float", strategy="channel", symmetric=True, group_size=None),
                           "static", {}),
    "mse_g64_asym_static": (48, 256, "BF16", 512, False, ints(4, "group", False, 64) | {"observer": "memoryless_mse"},
                            "static", {}),
    "nvfp4_static": (32, 256, "BF16", 512, False, preset("NVFP4A16"), "static", {}),
    "nvfp4_dead_none_f16": (32, 256, "F16", 512, True, preset("NVFP4A16"), None, {}),
    "mxfp4_static": (32, 256, "BF16", 512, False, preset("MXFP4A16"), "static", {}),
    "mxfp4_none_f32": (24, 256, "F32", 512, False, preset("MXFP4A16"), None, {"block_size": 64}),
    "mxfp8_static": (12, 256, "BF16", 512, True, preset("MXFP8A16"), "static", {}),
    "mxfp6_static": (16, 256, "BF16", 512, True, preset("MXFP6A16"), "static", {}),
    "mxfp6_none_f32": (16, 256, "F32", 512, False, preset("MXFP6A16"), None, {}),
}
SAMPLES = 32


def solved_codes(q, scale, zero, args):
    """Returns the codes that the solver chose. To save a weight, LLM Compressor quantizes the
    dequantized weight again, in its dtype. With 7 or 8 bits in BF16 this changes some codes
    (changed_by_saving), because (q - zero) scale is rounded to 8 significant bits."""
    s, z = scale.double(), zero.double()
    if args.strategy in ("group", "tensor_group"):
        s, z = (t.repeat_interleave(args.group_size, dim=1) for t in (s, z))
    x = q.double() / s
    if args.type == "float" and args.num_bits < 8:
        values = [0, 0.5, 1, 1.5, 2, 3, 4, 6] if args.num_bits == 4 else [
            (m / 8 if e == 0 else 1 + m / 8) * 2 ** max(e - 1, 0) for e in range(4) for m in range(8)]
        distance, code = (x.abs()[..., None] - torch.tensor(values, dtype=torch.float64)).abs().min(dim=-1)
        assert distance.max() < 0.1 * values[1] * 2
        return (code + len(values) * torch.signbit(q)).to(torch.uint8)
    if args.type == "float":
        return x.to(torch.float8_e4m3fn)
    codes = torch.round(x) + z
    assert (x + z - codes).abs().max() < 0.3
    return codes.to(torch.int8)


def run(c, weights, actorder, modifier):
    w, h = make_weight(c), make_hessian(c)
    dtypes = {k: getattr(torch, v.removeprefix("torch.")) for k, v in weights.items() if k.endswith("_dtype")}
    args = QuantizationArgs(**{**weights, **dtypes}, actorder=actorder)
    observer = Observer.load_from_registry(args.observer or "memoryless_minmax", base_name="weight", args=args)
    observer(w)
    p = observer.get_qparams()
    scale, zero, glob = p["scale"], p["zero_point"], p["global_scale"]
    q, _, fallback = quantize_weight(
        w.to(torch.float32)[None], (h * (2 / SAMPLES))[None], scale[None], zero[None], glob, args,
        blocksize=modifier.get("block_size", 128), percdamp=modifier.get("dampening_frac", 0.01))
    assert not fallback.any()
    if glob is not None:
        codes = solved_codes(q[0], scale / glob, zero, args)
        c["changed_by_saving"] = None
        return {"codes": codes.contiguous(), "scale": scale.to(torch.float8_e4m3fn).contiguous(), "global": glob}
    scale = scale.to(w.dtype)
    codes = solved_codes(q[0], scale, zero, args)
    if args.scale_dtype is not None:
        c["changed_by_saving"] = None
        return {"codes": codes.view(torch.uint8).contiguous(), "scale": scale.contiguous()}
    resaved = quantize(q[0].to(w.dtype), scale, zero, args, dtype=codes.dtype)
    c["changed_by_saving"] = int((codes.view(torch.uint8) != resaved.view(torch.uint8)).sum())
    if weights["type"] == "float":
        codes = codes.view(torch.uint8)
    else:
        codes = pack_to_int32(codes, weights["num_bits"])
    out = {"codes": codes.contiguous(), "scale": scale.contiguous()}
    if not weights["symmetric"]:
        out["zero"] = zero.to(torch.int8).contiguous()
    return out


def main():
    torch.set_num_threads(1)
    tensors, cases = {}, {}
    for k, (name, row) in enumerate(CASES.items()):
        o, i, dtype, tokens, dead, weights, actorder, modifier = row
        c = {"O": o, "I": i, "dtype": dtype, "tokens": tokens, "samples": SAMPLES, "dead": dead, "stream": 10 * k}
        for leaf, t in run(c, weights, actorder, modifier).items():
            tensors[f"{name}.{leaf}"] = t
        group = {"targets": ["Linear"], "weights": {**weights, "actorder": actorder}}
        own = {**modifier, **({} if actorder else {"actorder": None})}
        cases[name] = {**c, "recipe": json.dumps(
            {"s_stage": {"q_modifiers": {"GPTQModifier": {"config_groups": {"g": group}, **own}}}})}
    save_file(tensors, HERE / "codes.safetensors")
    (HERE / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    versions = {p: importlib.metadata.version(p) for p in ("torch", "compressed-tensors", "llmcompressor", "numpy")}
    (HERE / "MANIFEST.json").write_text(json.dumps({"seed": SEED, **versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
