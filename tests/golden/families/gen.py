"""gen.py - writes, for families without a template, the module of transformers' model to which each
tensor of a tiny checkpoint belongs.

usage: python gen.py      (in an environment with safetensors, torch, transformers)

families.json has two members for each family: "config" has the members of config.json that the
program reads; "tensors" maps the name of a tensor in the file to [class of the module that has the
parameter, sizes].

Before the model is saved, every parameter is filled with a different number. The number in a stored
tensor then identifies its parameter, even if save_pretrained renames, splits or transposes the
tensor. """
import importlib.metadata
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors import safe_open

HERE = pathlib.Path(__file__).parent
TINY = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, vocab_size=64, max_position_embeddings=64, pad_token_id=0)
MOE = dict(num_experts=2, num_local_experts=2, n_routed_experts=2, num_experts_per_tok=1, moe_intermediate_size=32,
           shared_expert_intermediate_size=32, first_k_dense_replace=1, n_group=1, topk_group=1)
TWO = dict(TINY, num_hidden_layers=2)
MLA = dict(q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8)
OLD = dict(n_embd=32, n_layer=1, n_head=4, n_positions=64, vocab_size=64)
DELTA = dict(layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=8, linear_value_head_dim=8)
SSM = dict(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_expand=2, mamba_n_groups=1)
TOWER = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, image_size=8, patch_size=4)
FAMILIES = {
    "mixtral": dict(TINY, **MOE),
    "qwen2_moe": dict(TINY, **MOE),
    "qwen3_next": dict(TWO, **MOE, **DELTA),
    "qwen3_5_moe_text": dict(TWO, **MOE, **DELTA),
    "deepseek_v2": dict(TWO, **MOE, **MLA),
    "deepseek_v3": dict(TWO, **MOE, **MLA),
    "glm4": TINY,
    "glm4_moe": dict(TWO, **MOE),
    "minimax": dict(TWO, **MOE, layer_types=["full_attention", "linear_attention"]),
    "minimax_m2": dict(TINY, **MOE),
    "gpt_oss": dict(TINY, **MOE),
    "llama4": dict(text_config=dict(TWO, **MOE, intermediate_size_mlp=64, interleave_moe_layer_step=2),
                   vision_config=dict(TOWER, vision_output_dim=32, projector_input_dim=32, projector_output_dim=32)),
    "llava": dict(text_config=dict(TINY, model_type="llama"), vision_config=dict(TOWER, model_type="clip_vision_model")),
    "phimoe": dict(TINY, **MOE),
    "granitemoehybrid": dict(TWO, **MOE, **SSM, layer_types=["mamba", "attention"], shared_intermediate_size=64),
    "jamba": dict(TWO, **MOE, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
                  use_mamba_kernels=False, mamba_d_state=8, mamba_dt_rank=4),
    "hunyuan_v1_moe": dict(TINY, **MOE, moe_topk=1),
    "lfm2": dict(TWO, layer_types=["conv", "full_attention"]),
    "opt": dict(TINY, ffn_dim=64, word_embed_proj_dim=16),
    "gpt_neox": TINY,
    "gpt_neo": dict(TINY, num_layers=1, num_heads=4, attention_types=[[["global"], 1]]),
    "gptj": dict(OLD, rotary_dim=4),
    "gpt2": OLD,
    "gpt_bigcode": OLD,
    "openai-gpt": OLD,
    "falcon": {k: v for k, v in TINY.items() if k != "head_dim"},
    "phi": TINY,
    "phi3": TINY,
    "stablelm": dict(TINY, qk_layernorm=True),
    "cohere": dict(TINY, use_qk_norm=True),
    "gemma2": TINY,
    "gemma3_text": TINY,
    "gemma3n_text": dict(TWO, hidden_size_per_layer_input=8, vocab_size_per_layer_input=64, laurel_rank=8,
                         num_kv_shared_layers=0, layer_types=["sliding_attention", "full_attention"],
                         activation_sparsity_pattern=[0.0, 0.0]),
    "bloom": dict(OLD, hidden_size=32),
    "mpt": dict(d_model=32, n_heads=4, n_layers=1, vocab_size=64, max_seq_len=64, expansion_ratio=2),
    "mamba": dict(hidden_size=32, num_hidden_layers=1, vocab_size=64, state_size=8),
    "mamba2": dict(hidden_size=32, num_hidden_layers=1, vocab_size=64, state_size=8, num_heads=8, head_dim=8, n_groups=1),
    "rwkv": dict(hidden_size=32, num_hidden_layers=2, vocab_size=64, attention_hidden_size=32, intermediate_size=64),
    "t5": dict(d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, vocab_size=64),
    "bert": TINY,
    "distilbert": dict(dim=32, hidden_dim=64, n_layers=1, n_heads=4, vocab_size=64, max_position_embeddings=64),
}
READ = ("model_type", "architectures", "num_hidden_layers", "n_layer", "n_layers", "num_layers", "tie_word_embeddings",
        "is_encoder_decoder", "dtype")
AUTO = (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText,
        transformers.AutoModelForMaskedLM, transformers.AutoModelForSeq2SeqLM)


def build(family, members):
    config = transformers.AutoConfig.for_model(family, **members)
    for auto in AUTO:
        if type(config) in auto._model_mapping:
            return auto.from_config(config, dtype=torch.float32)
    raise KeyError(family)


def read(config):
    out = {k: config[k] for k in READ if k in config}
    if "text_config" in config:
        out["text_config"] = read(config["text_config"])
    return out


def look(family, members):
    model = build(family, members)
    owner = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            owner[len(owner) + 1] = type(model.get_submodule(name.rpartition(".")[0])).__name__
            p.fill_(len(owner))
    tensors = {}
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        config = read(json.loads((pathlib.Path(d) / "config.json").read_text()))
        with safe_open(pathlib.Path(d) / "model.safetensors", "pt") as f:
            for name in f.keys():
                t = f.get_tensor(name)
                classes = {owner.get(int(v), "buffer") for v in t.unique()}
                assert len(classes) == 1 or "buffer" in classes, (name, classes)
                tensors[name] = ["buffer" if len(classes) > 1 else classes.pop(), *t.shape]
    return {"config": config, "tensors": tensors}


def main():
    transformers.logging.set_verbosity_error()
    out = {family: look(family, members) for family, members in FAMILIES.items()}
    lines = []
    for family, f in out.items():
        rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(v, separators=(',', ':'))}" for n, v in f["tensors"].items())
        lines.append(f'{json.dumps(family)}: {{"config": {json.dumps(f["config"])}, "tensors": {{\n{rows}}}}}')
    (HERE / "families.json").write_text("{" + ",\n".join(lines) + "}\n")
    versions = {p: importlib.metadata.version(p) for p in ("torch", "transformers")}
    (HERE / "MANIFEST.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
