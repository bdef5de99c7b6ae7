"""gen.py - writes weights that LLM Compressor's SpinQuantModifier has rotated by R1 and R2, with
Hadamard matrices in blocks of 16, because the hidden size of the model is 48.

usage: python gen.py      (in an environment with compressed-tensors, llmcompressor, safetensors,
                          torch, transformers)

The model is qwen2 of ../models, with weights from the counter RNG. Its head is tied, and its
Linears q, k and v have biases. weights.safetensors has for BF16 and for F32:

    <dtype>/<tensor>    tensors of one layer, embedding, norms and head, of a run without centred
                        embeddings; for F32 only some of these tensors
    <dtype>/centred     the embedding of a run with centred embeddings
"""
import importlib.metadata
import json
import pathlib
import sys
import tempfile

import torch
from llmcompressor.modifiers.transform import SpinQuantModifier
from llmcompressor import oneshot
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "models"), str(HERE.parent)]
from gen import weight  # noqa: E402

MODEL = "qwen2"
WANTED = {"BF16": ("layers.0.", "embed_tokens", "model.norm", "lm_head"),
          "F32": ("layers.0.self_attn.v_proj", "layers.0.self_attn.o_proj", "lm_head")}


def rotated(dtype, centred):
    case = json.loads((HERE.parent / "models" / f"{MODEL}.json").read_text())
    with tempfile.TemporaryDirectory() as d:
        d = pathlib.Path(d)
        (d / "config.json").write_text(json.dumps(case["config"]))
        tensors = {name: torch.from_numpy(weight(name, tuple(shape))).to(dtype) for name, shape in case["tensors"]}
        save_file(tensors, d / "model.safetensors", metadata={"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(d, dtype=dtype)
        modifier = SpinQuantModifier(rotations=["R1", "R2"], transform_type="hadamard",
                                     transform_block_size=16)
        if not centred:
            SpinQuantModifier._center_embeddings = lambda self, model: None
        oneshot(model=model, recipe=[modifier], pipeline="datafree")
        return {k: v.clone() for k, v in model.state_dict().items()}


def main():
    torch.set_num_threads(1)
    out = {}
    kept = SpinQuantModifier._center_embeddings
    for name, dtype in (("BF16", torch.bfloat16), ("F32", torch.float32)):
        for k, t in rotated(dtype, False).items():
            if any(part in k for part in WANTED[name]):
                out[f"{name}/{k}"] = t.contiguous()
        SpinQuantModifier._center_embeddings = kept
        out[f"{name}/centred"] = rotated(dtype, True)["model.embed_tokens.weight"].contiguous()
    save_file(out, HERE / "weights.safetensors")
    versions = {p: importlib.metadata.version(p)
                for p in ("torch", "transformers", "compressed-tensors", "llmcompressor", "numpy")}
    (HERE / "MANIFEST.json").write_text(json.dumps({"model": MODEL, **versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
