"""gen.py - writes results of compressed-tensors' arithmetic, packing and configuration, made by the
real libraries on a CPU.

usage: python gen.py      (in an environment with compressed-tensors, llmcompressor, safetensors,
                          torch)

weights_<dtype>.safetensors  the stored tensors of each quantized weight, <case>.<tensor>. The
                             weights before quantization come from the counter RNG of src/base/rng.h
                             (make_weight in this file and in test_quant.c)
packing.safetensors          <case>.packed and <case>.packed_dim0 of codes from the same RNG
cases.json                   description of each case, CRC-32 of the decoded weight and of
                             fake-quantized activations
presets.json                 for each preset its quantization_config as text, as in config.json
micro.safetensors, .json     NVFP4, MXFP4 and MXFP8 weights (the decoded weights are BF16), and
                             activations that are fake-quantized with these schemes
"""
import importlib.metadata
import json
import pathlib
import sys
import zlib

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.format import infer_module_format
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import calculate_qparams, compute_dynamic_scales_and_zp, generate_gparam
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.observers import Observer
from llmcompressor.observers.helpers import flatten_for_calibration
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym, rng_u64  # noqa: E402
SEED = 20261121
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
TAGS = {v: k for k, v in DTYPES.items()}
U64 = np.uint64


def make_weight(stream, N, K, dtype):
    """Returns a weight in which each of 12 consecutive rows is a different edge case. Every step is
    exact in f32; the result is rounded to dtype."""
    w = rng_sym(SEED, stream, N * K).reshape(N, K) * np.float32(0.0625)
    c = np.arange(K)
    for r in range(N):
        match r % 12:
            case 0: w[r] = 0
            case 1: w[r] = np.abs(w[r])
            case 2: w[r] = -np.abs(w[r])
            case 3: w[r, : K // 2] = 0
            case 4: w[r] *= np.float32(2.0**-20)  # denormal F16
            case 5: w[r] = -0.0
            case 6: w[r, c % 3 == 0] = -0.0
            case 7: w[r] = ((c * 7) % 31 - 15) * np.float32(0.5)  # ties
            case 8: w[r] = c % 17 - np.float32(8)
            case 9: w[r], w[r, 0] = 0, 3
            case 10: w[r] *= np.float32(2.0**-124)  # denormal BF16 and F32
            case 11: w[r] *= np.float32(2.0**12)
    return torch.from_numpy(w).to(dtype)


def crc(t):
    o = torch.empty(t.numel(), dtype=t.dtype)
    o.copy_(t.reshape(-1))
    return zlib.crc32(o.view(torch.uint8).numpy().tobytes())


def dense(t):
    o = torch.empty(t.shape, dtype=t.dtype)
    o.copy_(t)
    return o


GROUP = dict(strategy="group", group_size=32)
SCHEMES = [dict(num_bits=b, type="int", symmetric=b % 2 == 0, **GROUP) for b in range(2, 9)]
SCHEMES += [dict(num_bits=b, type="int", symmetric=b % 2 == 1, strategy="channel") for b in (3, 4, 8)]
SCHEMES += [dict(num_bits=b, type="int", symmetric=b == 8, strategy="tensor") for b in (4, 8)]
SCHEMES += [dict(num_bits=8, type="int", symmetric=False, strategy="block", block_structure=[8, 24])]
SCHEMES += [dict(num_bits=8, type="float", symmetric=True, **s) for s in
            (dict(strategy="tensor"), dict(strategy="channel"), GROUP, dict(strategy="block", block_structure=[8, 24]))]


def weight_cases():
    cases, stream = [], 0
    for tag, dtype in DTYPES.items():
        tensors = {}
        for i, args in enumerate(SCHEMES):
            stream += 1
            N, K = (25, 33) if args["strategy"] in ("channel", "tensor") and i % 2 else (13, 64)
            acts = QuantizationArgs(num_bits=8, type=args["type"], strategy="token", dynamic=True)
            scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args),
                                        input_activations=acts if i % 3 == 1 else None)
            w = make_weight(stream, N, K, dtype)
            obs = flatten_for_calibration(w, "weight", scheme.weights)
            scale, zero = calculate_qparams(torch.amin(obs, dim=(0, -1)), torch.amax(obs, dim=(0, -1)), scheme.weights)
            scheme.format = infer_module_format(torch.nn.Linear, scheme).value
            compressor = BaseCompressor.get_value_from_registry(scheme.format)
            out = compressor.compress({"weight": w, "weight_scale": scale, "weight_zero_point": zero}, scheme)
            decoded = compressor.decompress(out, scheme)["weight"]
            name = f"{tag}_{i:02d}"
            tensors |= {f"{name}.{k}": dense(v) for k, v in out.items()}
            cases.append(dict(name=name, dtype=tag, stream=stream, rows=N, cols=K, crc_decoded=crc(decoded + 0),
                              scheme=json.loads(scheme.model_dump_json())))
        save_file(tensors, HERE / f"weights_{tag}.safetensors", metadata={"format": "pt"})
    return cases


def pack_cases():
    cases, tensors = [], {}
    for bits in range(2, 9):
        for K in (5, 32, 33, 100):
            name, stream = f"b{bits}_k{K}", 1000 + bits
            codes = (rng_u64(SEED, stream, 3 * K) >> U64(64 - bits)).astype(np.int64) - (1 << (bits - 1))
            codes = torch.from_numpy(codes.astype(np.int8)).reshape(3, K)
            tensors[name + ".packed"] = dense(pack_to_int32(codes, bits))
            tensors[name + ".packed_dim0"] = dense(pack_to_int32(codes.T.contiguous(), bits, packed_dim=0))
            cases.append(dict(name=name, bits=bits, stream=stream, rows=3, cols=K))
    save_file(tensors, HERE / "packing.safetensors", metadata={"format": "pt"})
    return cases


def make_activation(stream, n, i, dtype):
    x = rng_sym(SEED, stream, n * i).reshape(n, i) * np.float32(2.0 ** (stream % 7 - 3))
    if stream % 4 == 0:  # nearly all values get one sign, so that rounding decides the zero points
        x = np.where(x < 0, x * np.float32((8 + stream // 4 % 8) / 2048), x)
    x[0] = 0
    if stream % 3 == 0:
        x = np.abs(x)
    return torch.from_numpy(x).to(dtype)


def activation_cases():
    cases, stream = [], 2000
    kinds = [dict(strategy="token", dynamic=True), dict(strategy="tensor", dynamic=True),
             dict(strategy="group", group_size=16, dynamic=True), dict(strategy="tensor", dynamic=False)]
    for tag, dtype in DTYPES.items():
        for kind in kinds:
            for bits, typ, sym in ((8, "int", True), (8, "int", False), (4, "int", True), (8, "float", True)):
                shapes = [(1, 16), (7, 144)]
                if kind == dict(strategy="tensor", dynamic=True) and not sym:
                    # compressed-tensors rounds a 0-dimensional zero point to the dtype of the
                    # values. With the random values of the streams 4016 and 4144, this rounding
                    # changes the result.
                    shapes += [(5, 48, s) for s in (4016, 4144)]
                for n, i, *given in shapes:
                    stream += 1
                    args = QuantizationArgs(num_bits=bits, type=typ, symmetric=sym, **kind)
                    of = given[0] if given else stream
                    x = make_activation(of, n, i, dtype).unsqueeze(0)
                    case = dict(dtype=tag, stream=of, rows=n, cols=i)
                    if args.dynamic:
                        scale, zero = compute_dynamic_scales_and_zp(x, args, None)
                    else:
                        scale, zero = calculate_qparams(x.min().reshape(1), x.max().reshape(1), args)
                        case |= dict(scale=float(scale), zero=float(zero))
                    y = fake_quantize(x, scale, zero, args)
                    case |= dict(crc=crc(y + 0), args=json.loads(args.model_dump_json()))  # + 0 turns -0 into 0
                    cases.append(case)
    return cases


def observer_cases():
    cases, stream = [], 3000
    for tag, dtype in DTYPES.items():
        for name in ("minmax", "static_minmax", "memoryless_minmax"):
            for bits, typ, sym in ((8, "int", True), (8, "int", False), (8, "float", True)):
                stream += 100
                args = QuantizationArgs(num_bits=bits, type=typ, symmetric=sym, strategy="tensor", dynamic=False, observer=name)
                o = Observer.load_from_registry(name, base_name="input", args=args)
                for k in range(37):
                    o(make_activation(stream + k, 3 + k % 5, 32, dtype).unsqueeze(0))
                q = o.get_qparams()
                cases.append(dict(dtype=tag, stream=stream, samples=37, cols=32,
                                  scale=float(q["scale"]), zero=float(q["zero_point"]),
                                  args=json.loads(args.model_dump_json())))
    return cases


def arguments_of(preset):
    return QuantizationModifier(scheme=preset).resolved_config.config_groups["group_0"]


def micro_weight(tensors, cases, preset, tag, stream):
    scheme, N, K = arguments_of(preset), 13, 64
    w = make_weight(stream, N, K, DTYPES[tag])
    if stream % 2:
        w = w[:6]  # drops the huge rows, with which a global scale would round the other rows to 0
    N = w.shape[0]
    state = {"weight": w}
    if preset.startswith("NVFP4"):
        state["weight_global_scale"] = generate_gparam(w.min(), w.max())
    obs = flatten_for_calibration(w, "weight", scheme.weights)
    scale, zero = calculate_qparams(torch.amin(obs, dim=(0, -1)), torch.amax(obs, dim=(0, -1)), scheme.weights,
                                    global_scale=state.get("weight_global_scale"))
    scheme.format = infer_module_format(torch.nn.Linear, scheme).value
    compressor = BaseCompressor.get_value_from_registry(scheme.format)
    out = compressor.compress(state | {"weight_scale": scale, "weight_zero_point": zero}, scheme)
    decoded = compressor.decompress(out, scheme)["weight"]
    assert decoded.dtype == torch.bfloat16
    name = f"{preset}_{tag}_{stream}"
    tensors |= {f"{name}.{k}": dense(v) for k, v in out.items()}
    cases.append(dict(name=name, dtype=tag, stream=stream, rows=N, cols=K, crc_decoded=crc(decoded + 0),
                      scheme=json.loads(scheme.model_dump_json())))


def micro_activation(preset, tag, stream, i=160):
    args, n = arguments_of(preset).input_activations, 7
    x = make_activation(stream, n, i, DTYPES[tag]).unsqueeze(0)
    case = dict(dtype=tag, stream=stream, rows=n, cols=i, args=json.loads(args.model_dump_json()))
    given = generate_gparam(x.min(), x.max()) if preset == "NVFP4" else None
    if given is not None:
        case["scale"] = float(given)
    scale, zero = compute_dynamic_scales_and_zp(x, args, None, global_scale=given)
    return case | dict(crc=crc(fake_quantize(x, scale, zero, args, global_scale=given) + 0))


def micro_cases():
    tensors, weights, activations, stream = {}, [], [], 9000
    for tag in DTYPES:
        for preset in ("NVFP4A16", "MXFP4A16", "MXFP8A16"):
            for _ in range(2):
                stream += 1
                micro_weight(tensors, weights, preset, tag, stream)
        for preset in ("NVFP4", "MXFP4", "MXFP8"):
            for _ in range(3):
                stream += 1
                activations.append(micro_activation(preset, tag, stream))
    save_file(tensors, HERE / "micro.safetensors", metadata={"format": "pt"})
    return dict(weights=weights, activations=activations)


def preset_texts():
    names = [f"W{w}A{a}" for w in range(2, 9) for a in (4, 8, 16) if (a > 4 or w <= 4) and (w, a) != (8, 8)]
    out = {}
    for name in names + ["W4A16_ASYM", "W8A8", "INT8", "FP8", "FP8_DYNAMIC", "FP8_BLOCK", "W4AFP8",
                         "NVFP4", "NVFP4A16", "MXFP4", "MXFP4A16", "MXFP8", "MXFP8A16"]:
        scheme = QuantizationModifier(scheme=name).resolved_config.config_groups["group_0"]
        scheme.format = infer_module_format(torch.nn.Linear, scheme).value
        q = dict(config_groups={"group_0": json.loads(scheme.model_dump_json())}, format=scheme.format,
                 global_compression_ratio=None, ignore=["lm_head", "model.ä"], kv_cache_scheme=None,
                 quant_method="compressed-tensors", quantization_status="compressed", sparsity_config={},
                 transform_config={}, version="0.19.0")
        text = json.dumps({"q": q}, indent=2, sort_keys=True)
        out[name] = text[len('{\n  "q": '):-len("\n}")]
    return out


def write(name, value):
    (HERE / name).write_text(json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n")


def write_manifest(name):
    versions = {p: importlib.metadata.version(p) for p in ("compressed-tensors", "llmcompressor", "safetensors", "torch")}
    write(name, dict(seed=SEED, device="cpu", **versions))


if __name__ == "__main__":
    write("cases.json", dict(seed=SEED, weights=weight_cases(), packing=pack_cases(), activations=activation_cases(),
                             observers=observer_cases()))
    write("presets.json", preset_texts())
    write("micro.json", micro_cases())
    write_manifest("MANIFEST.json")
