"""renamed_families.py - describes families without a class in transformers that differ from another
family only by the names of tensors and of keys of config.json; part of tiny_families.py.

The class of the other family, the reference, makes a checkpoint of such a family. The tensors get
the names of the family, and are joined if the family has joined tensors. reference.json in the same
directory has the config.json of the reference and a table of the tensors. With these, the class of
the reference can load the checkpoint."""
import json
import re

import torch
from safetensors.torch import load_file, save_file

N = dict(vocab_size=256, pad_token_id=0)
PLAIN = dict(N, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
BIAS = dict(attention_bias=True, mlp_bias=True)
# For models whose shared experts have no gate. The reference has a gate of 0, which halves the
# outputs of the shared experts.
QWEN_MOE = dict(PLAIN, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64, qkv_bias=False, norm_topk_prob=True)
HALVED = {"shared_expert_gate.weight": 0.0, "shared_expert.down_proj.weight": 2.0}


class Family:
    """One family.
    pairs: regular expressions and replacements, which convert a tensor's name of the reference to
        the family's name
    joined: for each joined module, the endings of the names of its parts, its name, and the number
        of groups by which rows alternate
    factors: {ending of a name: factor}; the tensor of the reference is this factor times the
        family's (0: the family lacks the tensor)
    keys: members of the family's config.json
    bare: those of `keys` that have their defaults
    drop: keys of the reference that the family lacks
    alias: other names of keys
    lora: names of adapters of rank 8 beside each weight of a base_layer"""

    def __init__(self, architecture, reference, members, keys=None, pairs=(), joined=(), factors=None, bare=(), drop=(), alias=None, lora=()):
        self.architecture, self.reference, self.members = architecture, reference, members
        self.keys, self.pairs, self.joined, self.factors = keys or {}, pairs, joined, factors or {}
        self.bare, self.drop, self.alias, self.lora = bare, drop, alias or {}, lora


def chat(text, tower=None, **more):
    """Returns members of a model with a tower and a text model."""
    size = dict(image_size=8, patch_size=4, model_type=tower) if tower else dict(image_size=[8, 8], patch_size=[4, 4])
    return dict(text_config=PLAIN | dict(model_type=text, **more), vision_config=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, **size))


# In the config of InternVL, the text model is in llm_config.
INTERNVL = dict(pairs=[(r"^vision_tower", "vision_model"), (r"^multi_modal_projector\.", "mlp1.")], alias={"text_config": "llm_config"})
INSIDE = [(r"^language_model\.model\.", "model.language_model."), (r"^language_model\.lm_head", "lm_head"), (r"^(vision_tower|multi_modal_projector)", r"model.\1")]
OVIS = dict(pairs=[(r"^vision_tower", "visual_tokenizer.vit"), (r"^multi_modal_projector\.", "vte."), (r"^language_model\.", "llm.")], alias={"text_config": "llm_config"})
LLAMA = ("attention_bias", "mlp_bias", "pretraining_tp")
RENAMED = {
    "iquestcoder": Family("IQuestCoderForCausalLM", "llama", dict(PLAIN, head_dim=16), bare=LLAMA),
    "telechat3": Family("TeleChat3ForCausalLM", "llama", dict(PLAIN, **BIAS), bare=("pretraining_tp",)),
    "internlm3": Family("InternLM3ForCausalLM", "llama", dict(PLAIN, head_dim=32, **BIAS, rope_parameters=dict(rope_type="dynamic", rope_theta=5e4, factor=6.0)),
                        dict(bias=True, qkv_bias=True), drop=LLAMA),
    "internlm3_plain": Family("InternLM3ForCausalLM", "llama", PLAIN, dict(bias=False, qkv_bias=False), drop=LLAMA, bare=("bias", "qkv_bias", "rope_parameters")),
    "mimo": Family("MiMoForCausalLM", "qwen2", PLAIN, dict(num_nextn_predict_layers=1), drop=("use_sliding_window", "max_window_layers", "layer_types")),
    "pangu_embedded": Family("PanguEmbeddedForCausalLM", "llama", dict(PLAIN, attention_bias=True), dict(bias=True), drop=LLAMA),
    "rnj1": Family("Rnj1ForCausalLM", "gemma3_text", dict(PLAIN, head_dim=16, sliding_window=8, layer_types=["sliding_attention", "full_attention"], final_logit_softcapping=30.0)),
    "exaone": Family("ExaoneForCausalLM", "llama", PLAIN, dict(activation_function="silu"), drop=LLAMA + ("hidden_act",),
                     alias={"num_hidden_layers": "num_layers", "rms_norm_eps": "layer_norm_epsilon"},
                     pairs=[(r"^model\.embed_tokens", "transformer.wte"), (r"^model\.layers", "transformer.h"), (r"^model\.norm", "transformer.ln_f"), (r"input_layernorm", "ln_1"),
                            (r"post_attention_layernorm", "ln_2"), (r"self_attn\.o_proj", "self_attn.out_proj"), (r"self_attn", "attn.attention"), (r"mlp\.gate_proj", "mlp.c_fc_0"),
                            (r"mlp\.up_proj", "mlp.c_fc_1"), (r"mlp\.down_proj", "mlp.c_proj")]),
    "internlm2": Family("InternLM2ForCausalLM", "llama", dict(PLAIN, attention_bias=True, rope_parameters=dict(rope_type="default", rope_theta=1e6)), dict(bias=True), drop=LLAMA,
                        joined=[(["q_proj", "k_proj", "v_proj"], "wqkv", 2)],
                        pairs=[(r"embed_tokens", "tok_embeddings"), (r"^lm_head", "output"), (r"input_layernorm", "attention_norm"), (r"post_attention_layernorm", "ffn_norm"),
                               (r"self_attn\.o_proj", "self_attn.wo"), (r"self_attn", "attention"), (r"mlp\.gate_proj", "mlp.w1"), (r"mlp\.up_proj", "mlp.w3"), (r"mlp\.down_proj", "mlp.w2"),
                               (r"mlp", "feed_forward")]),
    "orion": Family("OrionForCausalLM", "stablelm", dict(PLAIN, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0)), drop=("use_qkv_bias", "qk_layernorm", "use_parallel_residual"),
                    alias={"layer_norm_eps": "rms_norm_eps"}),
    "telechat2": Family("TeleChat2ForCausalLM", "llama", dict(PLAIN, num_key_value_heads=4, **BIAS), drop=LLAMA + ("hidden_act", "num_key_value_heads"),
                        alias={"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "intermediate_size": "ffn_hidden_size", "rms_norm_eps": "layer_norm_epsilon"},
                        factors={f"{m}_proj.bias": 0.0 for m in ("q", "k", "v", "gate", "up")}, joined=[(["k_proj", "v_proj"], "key_value", 4)],
                        pairs=[(r"^model\.embed_tokens", "transformer.word_embeddings"), (r"^model\.layers", "transformer.h"), (r"^model\.norm", "transformer.ln_f"),
                               (r"self_attn\.q_proj", "self_attn.query"), (r"self_attn\.o_proj", "self_attn.dense"), (r"self_attn", "self_attention")]),
    "teleflm": Family("TeleFLMForCausalLM", "granite", dict(PLAIN, embedding_multiplier=2.0, residual_multiplier=1.0, attention_multiplier=0.25, logits_scaling=4.0),
                      dict(use_mup=True, input_mult=2.0, output_mult=0.5, mup_scale_factor=2.0),
                      drop=LLAMA + ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")),
    "minicpm": Family("MiniCPMForCausalLM", "granite", dict(PLAIN, embedding_multiplier=12.0, residual_multiplier=1.4 / 2 ** 0.5, attention_multiplier=0.25, logits_scaling=4.0),
                      dict(scale_emb=12, scale_depth=1.4, dim_model_base=16), drop=LLAMA + ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")),
    "chatglm": Family("ChatGLMModel", "glm", dict(PLAIN, head_dim=16, rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=5e5, partial_rotary_factor=0.5)),
                      dict(add_qkv_bias=True, add_bias_linear=False, multi_query_attention=True, rope_ratio=50, rmsnorm=True, post_layer_norm=True, original_rope=True,
                           apply_residual_connection_post_layernorm=False, interleaved_qkv=False),
                      drop=("rope_parameters", "attention_bias", "hidden_act"), joined=[(["q_proj", "k_proj", "v_proj"], "query_key_value", 1)],
                      alias={"num_hidden_layers": "num_layers", "intermediate_size": "ffn_hidden_size", "rms_norm_eps": "layernorm_epsilon", "vocab_size": "padded_vocab_size", "head_dim": "kv_channels",
                             "num_key_value_heads": "multi_query_group_num", "max_position_embeddings": "seq_length"},
                      pairs=[(r"^model\.embed_tokens", "transformer.embedding.word_embeddings"), (r"^model\.layers", "transformer.encoder.layers"), (r"^model\.norm", "transformer.encoder.final_layernorm"),
                             (r"^lm_head", "transformer.output_layer"), (r"self_attn\.o_proj", "self_attn.dense"), (r"self_attn", "self_attention"), (r"gate_up_proj", "dense_h_to_4h"),
                             (r"mlp\.down_proj", "mlp.dense_4h_to_h")], bare=("original_rope", "interleaved_qkv", "rmsnorm", "post_layer_norm", "add_bias_linear")),
    "deepseek": Family("DeepseekForCausalLM", "qwen2_moe", dict(QWEN_MOE, mlp_only_layers=[0]), dict(n_routed_experts=4, n_shared_experts=1, first_k_dense_replace=1, moe_layer_freq=1, scoring_func="softmax"),
                       factors=HALVED, drop=("num_experts", "shared_expert_intermediate_size", "mlp_only_layers", "qkv_bias", "decoder_sparse_step", "use_sliding_window", "max_window_layers", "layer_types"),
                       pairs=[(r"shared_expert\.", "shared_experts.")]),
    "bailing_moe": Family("BailingMoeForCausalLM", "qwen2_moe", dict(QWEN_MOE, shared_expert_intermediate_size=128), dict(num_shared_experts=2, first_k_dense_replace=0, use_bias=False, use_qkv_bias=False, norm_head=False),
                          factors=HALVED, drop=("shared_expert_intermediate_size", "mlp_only_layers", "qkv_bias", "decoder_sparse_step", "use_sliding_window", "max_window_layers", "layer_types"),
                          joined=[(["q_proj", "k_proj", "v_proj"], "query_key_value", 1)], bare=("use_qkv_bias", "norm_head"),
                          pairs=[(r"shared_expert\.", "shared_experts."), (r"embed_tokens", "word_embeddings"), (r"self_attn\.o_proj", "self_attn.dense"), (r"self_attn", "attention")]),
    "bailing_moe_v2": Family("BailingMoeV2ForCausalLM", "glm4_moe",
                             dict(PLAIN, head_dim=16, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=64, n_group=4, topk_group=2, first_k_dense_replace=1, use_qk_norm=True,
                                  routed_scaling_factor=2.5, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)),
                             dict(num_experts=8, num_shared_experts=1, use_bias=False, use_qkv_bias=False, score_function="sigmoid", moe_router_enable_expert_bias=True, router_dtype="fp32"),
                             drop=("n_routed_experts", "n_shared_experts", "attention_bias"), joined=[(["q_proj", "k_proj", "v_proj"], "query_key_value", 1)],
                             pairs=[(r"embed_tokens", "word_embeddings"), (r"self_attn\.o_proj", "self_attn.dense"), (r"q_norm", "query_layernorm"), (r"k_norm", "key_layernorm"), (r"self_attn", "attention"),
                                    (r"e_score_correction_bias", "expert_bias")]),
    "internvl_chat": Family("InternVLChatModel", "internvl", chat("qwen2"), **INTERNVL), "skywork_chat": Family("SkyworkR1VChatModel", "internvl", chat("qwen2"), **INTERNVL),
    "h2ovl_chat": Family("H2OVLChatModel", "internvl", chat("mistral"), **INTERNVL), "nvlm_d": Family("NVLM_D", "internvl", chat("qwen2"), **INTERNVL),
    "kimi_vl": Family("KimiVLForConditionalGeneration", "llava", chat("deepseek_v3", "clip_vision_model", num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, n_shared_experts=1,
                      first_k_dense_replace=1, n_group=1, topk_group=1, q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16)),
    "opencua": Family("OpenCUAForConditionalGeneration", "llava", chat("qwen2", "clip_vision_model")),
    "ovis": Family("Ovis", "internvl", chat("qwen2"), **OVIS), "ovis2_5": Family("Ovis2_5", "internvl", chat("qwen3", head_dim=16), **OVIS),
    "eagle_2_5_vl": Family("Eagle2_5_VLForConditionalGeneration", "internvl", chat("qwen2"), pairs=INTERNVL["pairs"]),
    "interns1": Family("InternS1ForConditionalGeneration", "internvl", chat("qwen3", head_dim=16), pairs=INSIDE), "r": Family("RForConditionalGeneration", "internvl", chat("qwen3", head_dim=16), pairs=INSIDE),
    "bee": Family("BeeForConditionalGeneration", "internvl", chat("qwen3", head_dim=16), pairs=INSIDE),
    "dots_ocr": Family("DotsOCRForCausalLM", "qwen2", PLAIN), "keye": Family("KeyeForConditionalGeneration", "qwen3", dict(PLAIN, head_dim=16)),
    "keye_1_5": Family("KeyeVL1_5ForConditionalGeneration", "qwen3", dict(PLAIN, head_dim=16)), "phi3_v": Family("Phi3VForCausalLM", "phi3", PLAIN),
    "phi4mm": Family("Phi4MMForCausalLM", "phi3", dict(PLAIN, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.75)),
                     pairs=[(r"(qkv_proj|o_proj|gate_up_proj|down_proj)\.weight", r"\1.base_layer.weight")], lora=("speech", "vision")),
}
RENAMED["chatglm_generation"] = Family("ChatGLMForConditionalGeneration", *(vars(RENAMED["chatglm"])[k] for k in ("reference", "members", "keys", "pairs", "joined", "factors", "bare", "drop", "alias")))


def way(family, shapes):
    """Returns {tensor of the reference: [the family's name, groups, first row in a group, rows in a
    group, factor]}. For a tensor that the family lacks, the name is None, and the last item is the
    shape instead of the factor."""
    out, rows = {}, {}
    for ref in sorted(shapes, key=lambda n: [n.replace(p, f"{i}") for i, p in enumerate(("q_proj", "k_proj", "v_proj")) if p in n] or [n]):
        factor = next((f for end, f in family.factors.items() if ref.endswith(end)), 1.0)
        name, groups = ref, 1
        for ends, whole, n in family.joined:
            for end in ends:
                if f".{end}." in name:
                    name, groups = name.replace(f".{end}.", f".{whole}."), n
        for old, new in family.pairs:
            name = re.sub(old, new, name)
        if not factor:
            out[ref] = [None, 1, 0, shapes[ref][0], shapes[ref]]
            continue
        each = shapes[ref][0] // groups
        out[ref] = [name, groups, rows.get(name, 0), each, factor]
        rows[name] = rows.get(name, 0) + each
    return out


def release(folder, family):
    """Turns a checkpoint of the reference into one of the family."""
    made = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    table = way(family, {n: list(t.shape) for n, t in made.items()})
    parts = {}
    for ref, (name, groups, first, _, factor) in table.items():
        if name:
            parts.setdefault(name, []).append((first, groups, made[ref] / factor))
    out = {}
    for name, found in parts.items():
        ordered = [t.unflatten(0, (groups, -1)) for _, groups, t in sorted(found, key=lambda x: x[0])]
        out[name] = torch.cat(ordered, 1).flatten(0, 1).contiguous()
    for name in [n for n in out if n.endswith(".base_layer.weight")]:
        for adapter in family.lora:
            part = name.replace("base_layer", "lora_{}." + adapter)
            out |= {part.format("A"): torch.randn(8, out[name].shape[1], dtype=out[name].dtype), part.format("B"): torch.randn(out[name].shape[0], 8, dtype=out[name].dtype)}
    own = {family.alias.get(k, k): v for k, v in config.items() if k not in family.drop} | family.keys
    save_file(out, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(own | {"architectures": [family.architecture], "model_type": model_type(family)}))
    (folder / "reference.json").write_text(json.dumps({"config": config, "way": table}))


def model_type(family):
    return {"ChatGLMModel": "chatglm", "ChatGLMForConditionalGeneration": "chatglm", "TeleFLMForCausalLM": "TeleFLM", "BailingMoeV2ForCausalLM": "bailing_moe", "BailingMoeForCausalLM": "bailing_moe",
            "PanguEmbeddedForCausalLM": "PanguEmbedded", "NVLM_D": "NVLM_D", "KeyeForConditionalGeneration": "Keye", "KeyeVL1_5ForConditionalGeneration": "KeyeVL1_5", "InternLM3ForCausalLM": "internlm3"}.get(family.architecture) or next(k for k, f in RENAMED.items() if f is family)


def restore(folder, out):
    """Converts a checkpoint of a family back to a checkpoint of the reference, in `out`. Returns
    `out`."""
    kept = json.loads((folder / "reference.json").read_text())
    stored = load_file(folder / "model.safetensors")
    made = {}
    for ref, (name, groups, first, each, factor) in kept["way"].items():
        if name:
            made[ref] = (stored[name].unflatten(0, (groups, -1))[:, first:first + each].flatten(0, 1) * factor).contiguous()
        else:
            made[ref] = torch.zeros(factor, dtype=next(iter(stored.values())).dtype)
    out.mkdir(exist_ok=True)
    (out / "config.json").write_text(json.dumps(kept["config"]))
    save_file(made, out / "model.safetensors", {"format": "pt"})
    return out
