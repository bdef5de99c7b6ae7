"""gen.py - writes codes and scales of GPTQ on a tiny Qwen3-MoE. Works layer by layer like LLM
Compressor, and uses LLM Compressor's quantize_weight and experts.

usage: python gen.py      (in an environment with compressed-tensors, llmcompressor, safetensors,
                          torch, transformers)

codes.safetensors   calibrates all experts with all tokens
routed.safetensors  calibrates each expert with the tokens that the router sends to it, as
                    moe_calibrate_all_experts=False does

Both files have, for every Linear except lm_head, <module>.scale (F32) and <module>.codes (U8). A
byte has two codes, the first in the low bits, and each code is stored plus 8. The scheme is 4 bits
in groups of 8, symmetric, with actorder static. Weights and tokens are those of the case qwen3_moe
of tests/golden/models, in F32.

The Hessians of a layer are computed with its original weights, and with the inputs that the solved
earlier layers make. Sums are in double, so that their order has almost no effect. """
import contextlib
import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import tempfile

import torch
from compressed_tensors.quantization import QuantizationArgs
from llmcompressor.modeling.moe.context import moe_calibration_context
from llmcompressor.modeling.moe.linearize import linearize_moe
from llmcompressor.modifiers.gptq.gptq_quantize import quantize_weight
from llmcompressor.observers import Observer
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("models", HERE.parent / "models" / "gen.py")
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)

SPARSE = (0, 2)  # layers with experts
ARGS = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=8, actorder="static")


def load(config):
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "config.json").write_text(json.dumps(config))
        tensors = models.names_and_shapes(d, False)
        save_file({n: torch.from_numpy(models.weight(n, s)) for n, s in tensors}, pathlib.Path(d) / "model.safetensors")
        model = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, attn_implementation="eager").eval()
    linearize_moe(model)
    return model


def solve(linear, h, n_samples):
    w = linear.weight.detach()
    observer = Observer.load_from_registry("memoryless_minmax", base_name="weight", args=ARGS)
    observer(w)
    p = observer.get_qparams()
    q, _, fallback = quantize_weight(w.clone()[None], (h * (2 / n_samples)).float()[None], p["scale"][None],
                                     p["zero_point"][None], None, ARGS, blocksize=128, percdamp=0.01)
    assert not fallback.any()
    scale = p["scale"].float()
    codes = q[0] / scale.repeat_interleave(ARGS.group_size, dim=1)
    assert (codes - codes.round()).abs().max() < 1e-3
    linear.weight.data.copy_(q[0])
    nibbles = (codes.round() + 8).to(torch.uint8).flatten()
    return nibbles[::2] | nibbles[1::2] << 4, scale


def run(all_experts):
    config, _ = models.CASES["qwen3_moe"]
    model, samples, out = load(config), models.tokens(config["vocab_size"]), {}
    context = moe_calibration_context if all_experts else contextlib.nullcontext
    for i in range(config["num_hidden_layers"]):
        hessians, hooks, seen = {}, [], [False, False]
        for name, module in model.named_modules():
            if not name.startswith(f"model.layers.{i}.") or type(module) is not torch.nn.Linear:
                continue

            def add(_, args, name=name):
                x = args[0].reshape(-1, args[0].shape[-1]).double()
                assert x.shape[0] == length or not all_experts, (name, x.shape)
                seen[".experts." in name] |= x.shape[0] != length
                hessians[name] = hessians.get(name, 0) + x.T @ x
            hooks.append(module.register_forward_pre_hook(add))
        with torch.no_grad(), context():
            for ids in samples:
                length = len(ids)
                model(torch.from_numpy(ids)[None], use_cache=False)
        for hook in hooks:
            hook.remove()
        assert not seen[0] and (all_experts or i not in SPARSE or seen[1]), seen
        with torch.no_grad():
            for name, h in hessians.items():
                out[f"{name}.codes"], out[f"{name}.scale"] = solve(model.get_submodule(name), h, len(samples))
    return out


def main():
    torch.set_num_threads(1)
    save_file(run(True), HERE / "codes.safetensors")
    save_file(run(False), HERE / "routed.safetensors")
    versions = {p: importlib.metadata.version(p) for p in ("torch", "transformers", "compressed-tensors", "llmcompressor")}
    (HERE / "MANIFEST.json").write_text(json.dumps({"seed": models.SEED, **versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
