#!/usr/bin/env python3
"""gen.py - makes small quantized sources. Each directory also has the weights that transformers or
compressed-tensors decodes from the source (expected.safetensors).

    gen.py        writes a directory for each source, and MANIFEST.json, beside gen.py
"""
import json
import os

import compressed_tensors
import torch
import transformers
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

SEED = 20260711
HERE = os.path.dirname(os.path.abspath(__file__))
FP8 = torch.float8_e4m3fn
BF16 = torch.bfloat16


def codes(*shape):
    """Returns random finite codes of E4M3."""
    raw = torch.randint(0, 256, shape, dtype=torch.uint8)
    raw[(raw & 127) == 127] = 0
    return raw.view(FP8)


def write(name, quantization, shards, expected, dtype="bfloat16", **more):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "dtype": dtype, "quantization_config": quantization, **more}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    where = {}
    for i, tensors in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(folder, file))
        where.update({k: file for k in tensors})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"weight_map": where}, f, indent=1, sort_keys=True)
    save_file({k: v.contiguous() for k, v in expected.items()}, os.path.join(folder, "expected.safetensors"))


def theirs(weight, scale, dtype=BF16):
    return Fp8Dequantize(None)._dequantize_one(weight, scale, output_dtype=dtype)


def block():
    """Writes a source with scales in another shard. The last blocks of the second weight are
    smaller, as in DeepSeek V3's kv_a_proj. The expected weights follow DeepSeek's
    weight_dequant."""
    even, cut = codes(96, 64), codes(80, 40)
    s_even, s_cut = torch.rand(3, 2) * 0.02, torch.rand(3, 2) * 0.02
    grid = s_cut.repeat_interleave(32, 0)[:80].repeat_interleave(32, 1)[:, :40]
    norm = torch.randn(64).to(BF16)
    write("fp8_block", {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [32, 32]},
          [{"model.a.weight": even, "model.b.weight": cut},
           {"model.a.weight_scale_inv": s_even, "model.b.weight_scale_inv": s_cut, "model.norm.weight": norm}],
          {"model.a.weight": theirs(even, s_even), "model.b.weight": (cut.float() * grid).to(BF16),
           "model.norm.weight": norm})


def by_tensor_and_channel():
    tensor, channel, flat, half = codes(24, 40), codes(24, 40), codes(24, 40), codes(24, 40)
    s = [torch.tensor(0.0123), torch.rand(24, 1) * 0.1, torch.rand(24) * 0.1, (torch.rand(24, 1) * 0.1).to(BF16)]
    bias = torch.randn(24).to(BF16)
    write("fp8_scales", {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]},
          [{"t.weight": tensor, "t.weight_scale": s[0], "t.input_scale": torch.tensor(0.5), "t.bias": bias,
            "c.weight": channel, "c.weight_scale": s[1], "f.weight": flat, "f.weight_scale": s[2],
            "h.weight": half, "h.weight_scale_inv": s[3]}],
          {"t.weight": theirs(tensor, s[0]), "t.bias": bias, "c.weight": theirs(channel, s[1]),
           "f.weight": theirs(flat, s[2].unsqueeze(1)), "h.weight": theirs(half, s[3])})


def mxfp4():
    blocks = torch.randint(0, 256, (3, 20, 2, 16), dtype=torch.uint8)
    scales = torch.randint(110, 135, (3, 20, 2), dtype=torch.uint8)
    scales[0, 0, 0], scales[0, 1, 0] = 0, 250
    bias = torch.randn(3, 20).to(BF16)
    write("mxfp4", {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
          [{"mlp.experts.up_proj_blocks": blocks, "mlp.experts.up_proj_bias": bias},
           {"mlp.experts.up_proj_scales": scales}],
          {"mlp.experts.up_proj": convert_moe_packed_tensors(blocks, scales), "mlp.experts.up_proj_bias": bias})


def packed():
    """Writes a source whose zero points are packed along the columns, so rows are read 32 at a
    time."""
    args = QuantizationArgs(num_bits=3, type="int", strategy="group", group_size=16, symmetric=False)
    rows, columns = 77, 48
    q = torch.randint(-4, 4, (rows, columns), dtype=torch.int8)
    zero = torch.randint(-4, 4, (rows, columns // 16), dtype=torch.int8)
    scale = (torch.rand(rows, columns // 16) * 0.1).to(BF16)
    group = {"targets": ["Linear"], "format": "pack-quantized",
             "weights": {"num_bits": 3, "type": "int", "strategy": "group", "group_size": 16, "symmetric": False}}
    write("packed", {"quant_method": "compressed-tensors", "quantization_status": "compressed", "format": "pack-quantized",
                     "config_groups": {"group_0": group}, "ignore": []},
          [{"x.weight_packed": pack_to_int32(q, 3), "x.weight_scale": scale,
            "x.weight_zero_point": pack_to_int32(zero, 3, packed_dim=0), "x.weight_shape": torch.tensor([rows, columns])}],
          {"x.weight": dequantize(q, scale, zero, args).to(BF16)})


def powers():
    """Writes a source with scales that are powers of two, like DeepSeek V3.1's scale_fmt. The
    scales of the second weight are stored as bytes."""
    blocks, groups = codes(96, 64), codes(6, 64)
    s = torch.randint(100, 140, (3, 2), dtype=torch.uint8).view(torch.float8_e8m0fnu)
    raw = torch.randint(100, 140, (6, 2), dtype=torch.uint8)
    write("fp8_ue8m0", {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0"},
          [{"model.a.weight": blocks, "model.a.weight_scale_inv": s, "model.b.weight": groups, "model.b.weight_scale_inv": raw}],
          {"model.a.weight": theirs(blocks, s), "model.b.weight": theirs(groups, raw)})


def experts():
    """Writes a source with experts in one tensor. There is one scale per block, per expert or per
    row, or the scales are powers of two. One scale is in another shard."""
    up, down, rows, single, powers = codes(3, 64, 48), codes(3, 40, 24), codes(2, 6, 16), codes(2, 24, 40), codes(2, 32, 64)
    s = [torch.rand(3, 2, 3) * 0.02, torch.rand(3, 1, 1) * 0.02, (torch.rand(2, 6, 1) * 0.1).to(BF16), torch.rand(2) * 0.02,
         torch.randint(100, 140, (2, 1, 2), dtype=torch.uint8).view(torch.float8_e8m0fnu)]
    bias = torch.randn(3, 64).to(BF16)
    write("fp8_experts", {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 16]},
          [{"mlp.experts.gate_up_proj": up, "mlp.experts.gate_up_proj_bias": bias, "mlp.experts.down_proj": down,
            "moe.input_linear.weight": rows, "moe.input_linear.weight_scale_inv": s[2], "b.experts.down_proj": single,
            "b.experts.down_proj_scale": s[3], "c.experts.down_proj": powers, "c.experts.down_proj_scale_inv": s[4]},
           {"mlp.experts.gate_up_proj_scale_inv": s[0], "mlp.experts.down_proj_scale_inv": s[1]}],
          {"mlp.experts.gate_up_proj": theirs(up, s[0]), "mlp.experts.gate_up_proj_bias": bias,
           "mlp.experts.down_proj": theirs(down, s[1]), "moe.input_linear.weight": theirs(rows, s[2]),
           "b.experts.down_proj": theirs(single, s[3]), "c.experts.down_proj": theirs(powers, s[4])})


def apart(prefix, up, down):
    """Returns a separate tensor for each expert of the stacked tensors `up` and `down`, which are
    not transposed."""
    F = down.shape[2]
    return {f"{prefix}.experts.{e}.{leaf}.weight": w for e in range(len(up))
            for leaf, w in (("gate_proj", up[e, :F]), ("up_proj", up[e, F:]), ("down_proj", down[e]))}


def experts_apart():
    """Writes a source of a family whose experts are separate modules. Experts are stored as rows in
    layer 0, transposed in layer 1, and with one scale per expert in layer 2."""
    codes_, scales = (codes(2, 96, 32), codes(2, 32, 48)), (torch.rand(2, 6, 2) * 0.02, torch.rand(2, 2, 3) * 0.02)
    turned = [x.transpose(1, 2) for x in (codes(2, 96, 32), codes(2, 32, 48))]
    turned_scales = [torch.rand(2, 2, 6) * 0.02, torch.rand(2, 3, 2) * 0.02]
    plain, single = (codes(2, 96, 32), codes(2, 32, 48)), (torch.rand(2, 1, 1) * 0.02, torch.rand(2, 1, 1) * 0.02)
    tensors, expected = {}, {}
    for i, ((up, down), s) in enumerate(((codes_, scales), (turned, turned_scales), (plain, single))):
        prefix = f"model.layers.{i}.mlp"
        tensors |= {f"{prefix}.experts.gate_up_proj": up, f"{prefix}.experts.down_proj": down,
                    f"{prefix}.experts.gate_up_proj_scale_inv": s[0], f"{prefix}.experts.down_proj_scale_inv": s[1]}
        dense = [theirs(up, s[0]), theirs(down, s[1])]
        expected |= apart(prefix, *([x.transpose(1, 2) for x in dense] if i == 1 else dense))
    write("fp8_experts_apart", {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]},
          [tensors], expected, model_type="qwen3_moe")


def llama4():
    """Writes a source like Llama 4's release with FBGEMM. Experts are stored transposed, with one
    scale per output, in the layout of transformers' FbgemmFp8Quantize. The expected weights are the
    result of transformers, transposed back."""
    F, D, E = 48, 32, 2
    up, down, shared = codes(E, D, 2 * F), codes(E, F, D), codes(F, D)
    s = [torch.rand(E, 1, 2 * F) * 0.02, torch.rand(E, D, 1) * 0.02, torch.rand(F, 1) * 0.02]
    square = codes(E, F, 2 * F), codes(E, F, F), torch.rand(E, 1, 2 * F) * 0.02, torch.rand(E, F, 1) * 0.02
    tensors, expected = {}, {}
    for i, (u, d, su, sd) in enumerate(((up, down, *s[:2]), square)):
        prefix = f"model.layers.{i}.feed_forward"
        tensors |= {f"{prefix}.experts.gate_up_proj": u, f"{prefix}.experts.down_proj": d,
                    f"{prefix}.experts.gate_up_proj_scale": su, f"{prefix}.experts.down_proj_scale": sd}
        expected |= apart(prefix, theirs(u.transpose(1, 2).contiguous(), su.transpose(1, 2)), theirs(d.transpose(1, 2).contiguous(), sd))
    tensors |= {"model.layers.0.feed_forward.shared_expert.up_proj.weight": shared,
                "model.layers.0.feed_forward.shared_expert.up_proj.weight_scale": s[2]}
    expected["model.layers.0.feed_forward.shared_expert.up_proj.weight"] = theirs(shared, s[2])
    write("fp8_llama4", {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
          [tensors], expected, model_type="llama4_text")


FORMATS = {  # name -> format, weights, and the dtypes of its scales
    "pack": ("pack-quantized", {"num_bits": 3, "type": "int", "strategy": "group", "group_size": 16, "symmetric": False}, True),
    "int": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False}, True),
    "float": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}, True),
    "block": ("naive-quantized", {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32], "symmetric": True}, True),
    "nvfp4": ("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
                                       "scale_dtype": "torch.float8_e4m3fn"}, False),
    "mxfp4": ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
                                       "scale_dtype": "torch.uint8"}, False),
    "mxfp8": ("mxfp8-quantized", {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
                                  "scale_dtype": "torch.uint8"}, False),
}


def stored(form, w, dtype):
    """Returns the tensors of a module [24, 64]. The scales include 0, a negative and a small
    number."""
    O, I, t = 24, 64, {}
    lowest = 1 << (w["num_bits"] - 1)
    shape = {"tensor": [1], "channel": [O, 1], "block": [2, 2]}.get(w["strategy"], [O, I // w.get("group_size", I)])
    if form.startswith("nvfp4"):
        t |= {"weight_scale": codes(*shape), "weight_global_scale": torch.tensor([1234.5])}
    elif form.startswith("mx"):
        t["weight_scale"] = torch.randint(0, 255, shape, dtype=torch.uint8)
    else:
        scale = torch.rand(shape) * 0.05
        if scale.numel() > 3:
            scale.view(-1)[:3] = torch.tensor([0, -0.01, 1e-7])
        t["weight_scale"] = scale.to(dtype)
    if w["type"] == "float":
        t["weight_packed" if w["num_bits"] == 4 else "weight"] = torch.randint(0, 256, (O, I // 2), dtype=torch.uint8) if w["num_bits"] == 4 else codes(O, I)
    else:
        q = torch.randint(-lowest, lowest, (O, I), dtype=torch.int8)
        zero = torch.randint(-lowest, lowest, shape, dtype=torch.int8)
        packed_ = form.startswith("pack")
        t["weight_packed" if packed_ else "weight"] = pack_to_int32(q, w["num_bits"]) if packed_ else q
        t["weight_zero_point"] = pack_to_int32(zero, w["num_bits"], packed_dim=0) if packed_ else zero
        if packed_:
            t["weight_shape"] = torch.tensor([O, I], dtype=torch.int32 if dtype == torch.float32 else torch.int64)
    return t


def scale_dtypes(dtype):
    """Writes sources whose scales have another dtype than the model. The expected values are those
    of compressed-tensors, in the model's dtype."""
    tensors, expected, groups = {}, {}, {}
    for name, (form, w, free) in FORMATS.items():
        groups[name] = {"targets": [f"re:{name}\\..*"], "weights": w, "format": form}
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**w), format=form)
        for d in ("bfloat16", "float16", "float32")[: 3 if free else 1]:
            t = stored(form, w, getattr(torch, d))
            tensors |= {f"{name}.{d}.{leaf}": x for leaf, x in t.items()}
            made = BaseCompressor.get_value_from_registry(form).decompress(dict(t), scheme)["weight"]
            expected[f"{name}.{d}.weight"] = made.to(getattr(torch, dtype))
    write("scales_" + dtype, {"quant_method": "compressed-tensors", "quantization_status": "compressed", "format": "mixed-precision",
                              "config_groups": groups, "ignore": []}, [tensors], expected, dtype)


def deepseek_v4():
    """Makes FP8 blocks and FP4 experts with the names of DeepSeek V4's releases; both have scales
    X.scale. A tensor with the name X.scale that belongs to no weight must stay unchanged."""
    dense, s_dense = codes(64, 64), torch.randint(100, 140, (2, 2), dtype=torch.uint8).view(torch.float8_e8m0fnu)
    expert = torch.randint(-128, 128, (48, 32), dtype=torch.int8)
    s_expert = torch.randint(110, 135, (48, 2), dtype=torch.uint8).view(torch.float8_e8m0fnu)
    other = torch.randn(3)
    write("fp8_deepseek_v4", {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [32, 32]},
          [{"layers.0.attn.wq_a.weight": dense, "layers.0.ffn.experts.3.w1.weight": expert, "layers.0.x.scale": other},
           {"layers.0.attn.wq_a.scale": s_dense, "layers.0.ffn.experts.3.w1.scale": s_expert}],
          {"layers.0.attn.wq_a.weight": theirs(dense, s_dense), "layers.0.ffn.experts.3.w1.weight": theirs(expert, s_expert),
           "layers.0.x.scale": other})


def main():
    torch.manual_seed(SEED)
    block()
    by_tensor_and_channel()
    mxfp4()
    packed()
    powers()
    experts()
    experts_apart()
    llama4()
    scale_dtypes("bfloat16")
    scale_dtypes("float16")
    deepseek_v4()
    with open(os.path.join(HERE, "MANIFEST.json"), "w") as f:
        json.dump({"seed": SEED, "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__,
                   "compressed-tensors": compressed_tensors.__version__}, f, indent=1)


if __name__ == "__main__":
    main()
