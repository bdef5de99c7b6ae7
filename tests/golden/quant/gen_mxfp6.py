"""gen_mxfp6.py - writes results for schemes that compressed-tensors has since 0.20: 6-bit floats,
and FP8 activations with MXFP4 weights.

usage: python gen_mxfp6.py      (as gen.py, with compressed-tensors 0.20 or later)

mxfp6.safetensors, .json     MXFP6 weights as stored, CRC-32 of the decoded weights, and
                             fake-quantized activations
mxfp6_presets.json           for each preset its quantization_config as text, without the keys that
                             0.20 omits if they are null
"""
import json

import torch
from compressed_tensors.compressors.format import infer_module_format
from safetensors.torch import save_file

import gen


def spelled_out(args, weights):
    if args is None:
        return None
    short = json.loads(args.model_dump_json())
    default = None if args.dynamic else "memoryless_minmax" if weights else "minmax"
    return dict(actorder=None, block_structure=None, observer=default, observer_kwargs={}, scale_dtype=None,
                zp_dtype=None) | short


def preset_text(name):
    scheme = gen.arguments_of(name)
    fmt = infer_module_format(torch.nn.Linear, scheme).value
    group = dict(format=fmt, targets=scheme.targets, output_activations=None, weights=spelled_out(scheme.weights, True),
                 input_activations=spelled_out(scheme.input_activations, False))
    q = dict(config_groups={"group_0": group}, format=fmt, global_compression_ratio=None, ignore=["lm_head", "model.ä"],
             kv_cache_scheme=None, quant_method="compressed-tensors", quantization_status="compressed",
             sparsity_config={}, transform_config={}, version="0.20.0" if "FP6" in name else "0.19.0")
    return json.dumps({"q": q}, indent=2, sort_keys=True)[len('{\n  "q": '):-len("\n}")]


def cases():
    tensors, weights, activations, stream = {}, [], [], 9500
    for tag in gen.DTYPES:
        for _ in range(2):
            stream += 1
            gen.micro_weight(tensors, weights, "MXFP6A16", tag, stream)
        for preset, cols in (("MXFP6A8", 160), ("MXFP4XFP8", 256)):
            for _ in range(2):
                stream += 1
                activations.append(gen.micro_activation(preset, tag, stream, cols))
    save_file(tensors, gen.HERE / "mxfp6.safetensors", metadata={"format": "pt"})
    return dict(weights=weights, activations=activations)


if __name__ == "__main__":
    gen.write("mxfp6.json", cases())
    gen.write("mxfp6_presets.json", {n: preset_text(n) for n in ("MXFP4XFP8", "MXFP6A16", "MXFP6A8")})
    gen.write_manifest("MANIFEST_mxfp6.json")
