"""gen_docs.py - runs AdaRound and AdaQuant of the layers of examples/docs-llama-3m in F32, like
gen.py. The scheme is W4 in groups of 128. There are 40 steps, each with 4 of 16 samples. A sample
has 64 tokens of the model's calibration text. A layer reads the outputs of the earlier layers after
rounding to nearest, so its problem does not depend on their learned codes. Its target is the output
of the original layer for the original input.

docs.json has the tokens, and the loss of every step of each kind and layer. docs.bin has the codes
of every 64th row: layer by layer, kind after kind. A byte has two codes, the first in the low bits,
and each code is stored plus 8.

Run: python gen_docs.py (torch, transformers, numpy). With the argument chain, a layer reads the
outputs of the earlier layers with their learned codes, in F32 and in F64. The script then prints
the percentage of codes that are the same in F32 and F64. A code that differs changes the inputs of
all later layers."""
import importlib.util
import json
import pathlib
import sys

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("block_gen", HERE / "gen.py")
block = importlib.util.module_from_spec(spec)
spec.loader.exec_module(block)

DIR = HERE.parents[2] / "examples" / "docs-llama-3m"
SAMPLES, TOKENS, TAKE, GROUP, ROWS = 16, 64, 4, 128, 64
# learning rates of codes and of scales
KINDS = {"round": ("round", (0.1, 0)), "quant": ("quant", (5e-5, 1e-3))}


def texts():
    tokenizer = transformers.AutoTokenizer.from_pretrained(DIR)
    rows = (tokenizer(json.loads(line)["text"])["input_ids"] for line in open(DIR / "data" / "calibration.jsonl"))
    return [r[:TOKENS] for r in rows if len(r) >= TOKENS][:SAMPLES]


def model_of(dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(DIR, dtype=dtype, attn_implementation="eager")
    for p in model.parameters():
        p.requires_grad_(False)
    return model


def put(layer, codes):  # replaces weights by the dequantized codes
    for n, q in zip(block.LINEARS, codes):
        w = layer.get_submodule(n).weight
        c = block.Codes(w.clone(), "round", GROUP)
        w.copy_(torch.from_numpy(q).to(w.dtype) * block.wide(c.s0, GROUP))


def nearest(layer):
    out = []
    for n in block.LINEARS:
        c = block.Codes(layer.get_submodule(n).weight.clone(), "round", GROUP)
        out.append((c.w / block.wide(c.s0, GROUP)).round().clamp(block.LO, block.HI).to(torch.int8).numpy())
    return out


def layers(model, ids, kinds, chained):  # returns curves, and codes Linear by Linear, of each layer
    x = x0 = [model.model.embed_tokens(torch.tensor(i)) for i in ids]
    for layer in model.model.layers:
        run = block.runner(model, layer)
        curves, codes, _ = block.learn_layer(run, layer, x, x0, kinds, TAKE, GROUP)
        x0 = [run(a, {}) for a in x0]
        put(layer, codes if chained else nearest(layer))
        x = [run(a, {}) for a in x]
        yield curves, codes


def packed(codes):
    rows = np.concatenate([(q[::ROWS] + 8).astype(np.uint8).ravel() for q in codes])
    return (rows[0::2] | rows[1::2] << 4).tobytes()


def chain(ids):
    for kind in KINDS:
        both = [[c for _, c in layers(model_of(d), ids, {kind: KINDS[kind]}, True)] for d in (torch.float32, torch.float64)]
        for n, (a, b) in enumerate(zip(*both)):
            same = np.concatenate([(p == q).ravel() for p, q in zip(a, b)]).mean()
            print(f"{kind}, layer {n}: {100 * same:.2f} % of the codes are the same in F32 and in F64", flush=True)


def main():
    ids = texts()
    if sys.argv[1:] == ["chain"]:
        return chain(ids)
    curves, data = [], b""
    for of, codes in layers(model_of(torch.float32), ids, KINDS, False):
        curves.append(of)
        data += packed(codes)
    (HERE / "docs.json").write_text(json.dumps({"ids": ids, "layers": curves}) + "\n")
    (HERE / "docs.bin").write_bytes(data)


if __name__ == "__main__":
    main()
