"""gen.py - writes the scales and zero points that LLM Compressor's observers find. This script and
test_observers.c make the same weights and activations from a counter RNG.

usage: python gen.py      (in an environment with compressed-tensors, llmcompressor, safetensors,
                          torch)

params.safetensors  <case>.scale, and <case>.zero if the scheme is asymmetric
cases.json          <case>: rows, cols, dtype, stream, and the recipe for the same job in oneshot;
                    for an activation also the number of samples. Sample k is the weight of stream
                    `stream + 3 k` with `rows + 5 k` rows

    w[r, c]  = u u' / 4         u, u' uniform in [-1, 1); rounded to the dtype
               Five of eight rows are special. r mod 8 is 1: all elements are positive; 2: all are
               negative; 3: all are multiplied by 2^-20 (denormal in F16); 4: all are 0; 5: one
               element is 3
    E[x_c^2] = (u u)^2 of channel c, with u of stream + 2, or 0 if c mod 11 = 3; only for observers
               that use this importance of the channels

torch runs on one thread, because for strategy tensor the order of torch's sums depends on the
number of threads. """
import importlib.metadata
import json
import pathlib
import sys

import numpy as np
import torch
from compressed_tensors.quantization import QuantizationArgs
from llmcompressor.observers import Observer
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym  # noqa: E402
SEED = 20261123
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def make_weight(stream, rows, cols, dtype):
    n = rows * cols
    w = (rng_sym(SEED, stream, n) * rng_sym(SEED, stream + 1, n) * np.float32(0.25)).reshape(rows, cols)
    for r in range(rows):
        match r % 8:
            case 1: w[r] = np.abs(w[r])
            case 2: w[r] = -np.abs(w[r])
            case 3: w[r] *= np.float32(2.0**-20)
            case 4: w[r] = 0
            case 5: w[r, r % cols] = 3
    return torch.from_numpy(w).to(dtype)


def ints(bits, strategy, symmetric=True, **more):
    return dict(num_bits=bits, type="int", strategy=strategy, symmetric=symmetric, **more)


def fp8(strategy, **more):
    return dict(num_bits=8, type="float", strategy=strategy, symmetric=True, **more)


# A case has five members: number of rows and number of columns of the weight, arguments of the
# weight without the observer, and name and kwargs of the observer.
CASES = [
    (24, 256, ints(4, "group", group_size=32), "mse", {}),
    (24, 256, ints(4, "group", False, group_size=128), "memoryless_mse", {}),
    (17, 100, ints(3, "channel", False), "mse", dict(patience=1)),
    (12, 1100, ints(8, "channel"), "mse", dict(maxshrink=0.5, grid=40.0, patience=2)),
    (9, 96, ints(2, "group", group_size=48), "mse", dict(norm=2, expand=1.25)),
    (9, 96, ints(5, "group", False, group_size=24), "mse", dict(norm=3.0, patience=0)),
    (40, 130, ints(4, "tensor"), "mse", {}),
    (300, 300, ints(6, "tensor", False), "mse", dict(norm=1.5)),
    (40, 72, fp8("block", block_structure=[16, 32]), "mse", {}),
    (16, 128, fp8("channel"), "mse", dict(maxshrink=0)),
    (16, 128, fp8("tensor"), "mse", {}),
    (16, 128, dict(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, scale_dtype="torch.uint8"),
     "mse", dict(maxshrink=0.8, grid=10)),
    (16, 128, ints(4, "group", group_size=64), "static_minmax", {}),
    (16, 128, ints(4, "group", group_size=64), "nvfp4_expanded_mse", {}),
    (24, 256, ints(4, "group", group_size=64), "imatrix_mse", {}),
    (24, 96, ints(3, "channel", False), "imatrix_mse", dict(norm=2.4, grid=50, maxshrink=0.5, patience=0)),
    (24, 96, fp8("channel"), "imatrix_mse", dict(norm=2, patience=1, maxshrink=0)),
    (24, 96, ints(4, "tensor"), "imatrix_mse", {}),
]


# Cases of static input activations. A case has the number of samples, and then the same members as
# a case of CASES.
ACTIVATIONS = [
    (9, 7, 96, ints(8, "tensor"), "minmax", {}),
    (9, 7, 96, ints(8, "tensor", False), "minmax", dict(averaging_constant=0.25)),
    (9, 7, 96, ints(8, "tensor", False), "minmax", dict(averaging_constant=1)),
    (9, 7, 96, fp8("tensor"), "static_minmax", {}),
    (9, 3, 200, ints(8, "tensor"), "mse", {}),
    (4, 130, 300, ints(8, "tensor", False), "mse", dict(maxshrink=0.6, averaging_constant=0.5)),
    (9, 3, 200, ints(4, "tensor", False), "memoryless_mse", dict(norm=2.0)),
    (9, 3, 200, fp8("tensor"), "imatrix_mse", {}),
]


def recipe_of(weights, inputs=None):
    group = dict(targets=["Linear"], weights=weights, input_activations=inputs)
    return json.dumps({"s_stage": {"q_modifiers": {"QuantizationModifier": {"config_groups": {"g": group}}}}})


def add_params(tensors, name, q, p):
    tensors[name + ".scale"] = p["scale"].contiguous()
    if not q.symmetric:
        tensors[name + ".zero"] = p["zero_point"].to(torch.int8).contiguous()


def activations(tensors, cases):
    for i, (samples, rows, cols, args, observer, kwargs) in enumerate(ACTIVATIONS):
        for tag, dtype in DTYPES.items():
            name, stream = f"a{i}_{tag}", 1000 * (i + 1)
            q = QuantizationArgs(**args, dynamic=False)
            o = Observer.load_from_registry(observer, base_name="input", args=q, **kwargs)
            for k in range(samples):
                o(make_weight(stream + 3 * k, rows + 5 * k, cols, dtype).unsqueeze(0))
            add_params(tensors, name, q, o.get_qparams())
            inputs = dict(args, dynamic=False, observer=observer, observer_kwargs=kwargs)
            cases[name] = dict(samples=samples, rows=rows, cols=cols, dtype=tag, stream=stream,
                               recipe=recipe_of(ints(8, "channel") if args["type"] == "int" else fp8("channel"), inputs))


def main():
    torch.set_num_threads(1)
    tensors, cases = {}, {}
    activations(tensors, cases)
    for i, (rows, cols, args, observer, kwargs) in enumerate(CASES):
        for tag, dtype in DTYPES.items():
            if tag == "F16" and "scale_dtype" in args:
                continue  # in such a case, LLM Compressor treats denormal ranges as zeros
            name, stream = f"{i:02d}_{tag}", 10 * (i + 1)
            w = make_weight(stream, rows, cols, dtype)
            q = QuantizationArgs(**args)
            o = Observer.load_from_registry(observer, base_name="weight", args=q, **kwargs)
            if observer == "imatrix_mse":
                u = rng_sym(SEED, stream + 2, cols)
                squares = np.where(np.arange(cols) % 11 == 3, 0, (u * u) ** 2).astype(np.float32)
                o._imatrix_sum, o._imatrix_count = torch.from_numpy(squares), torch.tensor(1)
            o(w)
            add_params(tensors, name, q, o.get_qparams())
            cases[name] = dict(rows=rows, cols=cols, dtype=tag, stream=stream,
                               recipe=recipe_of(dict(args, observer=observer, observer_kwargs=kwargs)))
    save_file(tensors, HERE / "params.safetensors")
    (HERE / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    versions = {p: importlib.metadata.version(p) for p in ("torch", "compressed-tensors", "llmcompressor", "numpy")}
    (HERE / "MANIFEST.json").write_text(json.dumps({"seed": SEED, **versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
