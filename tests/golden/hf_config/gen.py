#!/usr/bin/env python3
"""gen.py - writes config.json files, and the values that transformers reads from them. Run in this
directory."""
import json
import tempfile

import transformers
from transformers import AutoConfig

DIMS = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 32, "head_dim": 16}
L3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def c(model_type, **keys):
    return {"model_type": model_type, **DIMS, **keys}


CASES = [
    c("llama"), c("mistral"), c("qwen2"), c("qwen3"),
    c("llama", rope_theta=500000.0, max_position_embeddings=512, torch_dtype="bfloat16", tie_word_embeddings=True),
    c("llama", rope_theta=500000, rope_scaling=None, dtype="float16"),
    c("llama", torch_dtype="float16", dtype="float32"),
    c("llama", torch_dtype=None, dtype="bfloat16"),
    c("llama", rope_scaling={}, rope_parameters={"rope_type": "default", "rope_theta": 77.0}),
    c("llama", rope_parameters={"rope_type": "default", "rope_theta": 12345.5}),
    c("llama", rope_parameters={"rope_type": "default"}, rope_theta=99.0),
    c("llama", rope_parameters={"rope_type": "default", "rope_theta": 5.0}, rope_theta=99.0),
    c("mistral", rope_scaling={"type": "linear", "factor": 2.0}, rope_theta=20000.0),
    c("mistral", rope_scaling={"rope_type": "linear", "type": "dynamic", "factor": 2.5}),
    c("qwen2", rope_scaling={"type": "dynamic", "factor": 4}, max_position_embeddings=128),
    c("qwen2", rope_scaling={"type": "linear", "factor": 2.0}, rope_parameters={"rope_type": "dynamic", "factor": 3.0}),
    c("llama", rope_scaling={"rope_type": "llama3", **L3}, max_position_embeddings=512, rope_theta=500000.0),
    c("llama", rope_parameters={"rope_type": "llama3", "rope_theta": 1e6, **L3}, max_position_embeddings=512),
    c("llama", rope_scaling={"rope_type": "llama3", **L3}, original_max_position_embeddings=32,
      max_position_embeddings=512),
    c("qwen3", rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
      max_position_embeddings=512),
    c("qwen3", rope_scaling={"rope_type": "yarn", "factor": 4.0}, max_position_embeddings=512),
    c("qwen3", rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "beta_fast": 16, "beta_slow": 2,
                                "attention_factor": 1.25, "truncate": False,
                                "original_max_position_embeddings": 128}, max_position_embeddings=512),
    c("qwen3", rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "mscale": 0.5,
                                "mscale_all_dim": 1.5, "original_max_position_embeddings": 100},
      max_position_embeddings=400, tie_word_embeddings=True),
    c("qwen3", rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                                "original_max_position_embeddings": 100, "partial_rotary_factor": 0.5},
      max_position_embeddings=400),
    c("llama", partial_rotary_factor=0.25),
    # rope_parameters has one object for each layer type, so the top-level factor has no effect
    c("gemma3_text", partial_rotary_factor=0.25, rope_theta=7e5, sliding_window=8),
    c("gemma4_text", partial_rotary_factor=0.5, sliding_window=8),
    c("olmo3", partial_rotary_factor=0.5, rope_theta=3e5, sliding_window=8),
]


def take(config):
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/config.json", "w") as f:
            json.dump(config, f)
        k = AutoConfig.from_pretrained(d)
    if "full_attention" in k.rope_parameters:
        k.rope_parameters = k.rope_parameters["full_attention"]
    elif k.rope_parameters["rope_type"] != "default":
        # The constructor of the rotary embedding also calls standardize_rope_params. Before this
        # call, top-level keys have no effect.
        k.standardize_rope_params()
    return {"tie_word_embeddings": k.tie_word_embeddings, "max_position_embeddings": k.max_position_embeddings,
            "dtype": str(k.dtype) if k.dtype is not None else None, "rope": k.rope_parameters}


with open("cases.json", "w") as f:
    json.dump([{"config": case, "want": take(case)} for case in CASES], f, indent=1)
    f.write("\n")
with open("MANIFEST.json", "w") as f:
    json.dump({"transformers": transformers.__version__}, f, indent=2)
    f.write("\n")
