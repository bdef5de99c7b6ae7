#!/usr/bin/env python3
"""make-model.py - makes a checkpoint of random weights, to try a machine. The model is a Llama, or
with --experts a Mixtral. The tokenizer is that of docs-llama-3m. Needs only Python. Usage:
make-model.py DIR [--layers 4] [--hidden 256] [--intermediate 512] [--experts 0] [--seed 1]
"""
import argparse
import json
import pathlib
import random
import shutil
import struct

SMALL = pathlib.Path(__file__).resolve().parent / "docs-llama-3m"
VOCAB, HEAD = 4096, 64
# For each random byte, the high byte of a BF16 from 0.008 to 0.06 with a random sign. The low byte
# is random.
HIGH = bytes(0x3C | (b & 0x80) for b in range(256))
ONE = struct.pack("<H", 0x3F80)


def shapes(a):
    """Returns name and shape of each tensor."""
    d, f, kv = a.hidden, a.intermediate, max(a.hidden // HEAD // 2, 1) * HEAD
    yield "model.embed_tokens.weight", (VOCAB, d)
    for i in range(a.layers):
        at = f"model.layers.{i}."
        for name, shape in (("q_proj", (d, d)), ("k_proj", (kv, d)), ("v_proj", (kv, d)), ("o_proj", (d, d))):
            yield f"{at}self_attn.{name}.weight", shape
        if a.experts:
            yield f"{at}block_sparse_moe.gate.weight", (a.experts, d)
        for e in range(a.experts):
            for name, shape in (("w1", (f, d)), ("w2", (d, f)), ("w3", (f, d))):
                yield f"{at}block_sparse_moe.experts.{e}.{name}.weight", shape
        if not a.experts:
            for name, shape in (("gate_proj", (f, d)), ("up_proj", (f, d)), ("down_proj", (d, f))):
                yield f"{at}mlp.{name}.weight", shape
        yield f"{at}input_layernorm.weight", (d,)
        yield f"{at}post_attention_layernorm.weight", (d,)
    yield "model.norm.weight", (d,)
    yield "lm_head.weight", (VOCAB, d)


def config(a):
    c = {"architectures": ["MixtralForCausalLM" if a.experts else "LlamaForCausalLM"],
         "model_type": "mixtral" if a.experts else "llama", "dtype": "bfloat16", "vocab_size": VOCAB,
         "hidden_size": a.hidden, "intermediate_size": a.intermediate, "num_hidden_layers": a.layers,
         "num_attention_heads": a.hidden // HEAD, "num_key_value_heads": max(a.hidden // HEAD // 2, 1), "head_dim": HEAD,
         "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 1024,
         "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0}
    return {**c, "num_local_experts": a.experts, "num_experts_per_tok": 2, "sliding_window": None} if a.experts else c


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=pathlib.Path)
    for name, value in (("layers", 4), ("hidden", 256), ("intermediate", 512), ("experts", 0), ("seed", 1)):
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    if a.hidden % HEAD:
        p.error(f"--hidden {a.hidden}: want a multiple of {HEAD}, the size of a head")
    a.dir.mkdir(parents=True, exist_ok=True)
    header, end = {}, 0
    for name, shape in shapes(a):
        n = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + n]}
        end += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(a.seed)
    block = bytearray(rng.randbytes(4 << 20))
    block[1::2] = bytes(block[1::2]).translate(HIGH)
    with open(a.dir / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, row in header.items():
            left = row["data_offsets"][1] - row["data_offsets"][0]
            while left and "norm" in name:
                left -= f.write(ONE * (left // 2))
            while left:  # writes from another offset of the block each time
                start = 2 * rng.randrange(len(block) // 4)
                left -= f.write(memoryview(block)[start:start + left])
    (a.dir / "config.json").write_text(json.dumps(config(a), indent=2))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SMALL / name, a.dir / name)
    print(f"{a.dir}: {end} bytes of weights")


if __name__ == "__main__":
    main()
