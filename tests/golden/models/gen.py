"""gen.py - computes logits and per-token NLL of tiny random checkpoints with transformers and eager
attention.

Weights and token ids come from the counter RNG of src/base/rng.h, so that only configurations and
results are stored:
  <case>.json      config.json, names and shapes of the tensors, lengths of the samples
  <case>.npy       f32 logits [tokens of the first LOGIT_SAMPLES samples, vocab] of the F32 model
  <case>.nll.npy   f32 [4, scored tokens]. Rows: BF16 weights computed in f32; BF16 weights computed
                   in bf16; F16 weights computed in f32; F16 weights computed in f16
Run: python gen.py [CASE...] (torch, transformers, safetensors, numpy). The script asserts that each
case tests a feature that changes the logits.
"""
import copy
import json
import math
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym, rng_u64  # noqa: E402
SEED = 20240607
LENS = [96, 20, 80, 96]
LOGIT_SAMPLES = 2


def stream(name):  # returns the FNV-1a hash of a name (32 bits)
    h = 2166136261
    for b in name.encode():
        h = ((h ^ b) * 16777619) & 0xFFFFFFFF
    return h


def weight(name, shape):
    """Returns a random weight by the rule in tiny.h."""
    u = rng_sym(SEED, stream(name), math.prod(shape)).reshape(shape)
    if name.endswith("norm.weight") or (".ln_" in name and name.endswith(".weight")):
        return np.float32(1) + np.float32(0.25) * u
    if name.endswith((".bias", "_bias")):
        return np.float32(0.5) * u
    if name.endswith("embed_tokens.weight"):
        return u
    gain = 2.0 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
    if name.startswith("model.layers.") and name.endswith(".linear.weight"):
        gain = 0.05
    return np.float32(gain * 1.7320508 / math.sqrt(shape[-1] if shape else 1)) * u


def tokens(vocab):
    ids = (rng_u64(SEED, 7, sum(LENS)) % np.uint64(vocab)).astype(np.int64)
    return np.split(ids, np.cumsum(LENS)[:-1])


TYPES = {"GPTNeoX": "gpt_neox", "Gemma3": "gemma3_text", "Qwen2Moe": "qwen2_moe", "Qwen3Moe": "qwen3_moe", "Glm4Moe": "glm4_moe",
         "DeepseekV2": "deepseek_v2", "DeepseekV3": "deepseek_v3", "GptOss": "gpt_oss", "Qwen3Next": "qwen3_next",
         "Qwen3_5": "qwen3_5_text", "Qwen3_5Moe": "qwen3_5_moe_text",
         "GraniteMoeHybrid": "granitemoehybrid", "Llama4": "llama4_text", "Gemma4": "gemma4_text"}


def model_type(arch):
    name = arch.removesuffix("ForCausalLM").removesuffix("LMHeadModel")
    return TYPES.get(name, name.lower())


def four(arch, **kw):  # returns a config in the format of transformers 4
    return {"architectures": [arch], "model_type": model_type(arch), "torch_dtype": "float32", **kw}


def five(arch, **kw):  # returns a config in the format of transformers 5
    return {"architectures": [arch], "model_type": model_type(arch), "dtype": "float32", **kw}


SIZE = dict(vocab_size=48, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-5, max_position_embeddings=128, tie_word_embeddings=False, hidden_act="silu")
DH16 = dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=16)


def size(**kw):
    d = {**SIZE, **kw}
    return {k: v for k, v in d.items() if v != "absent"}


L, M, Q2, Q3, Q3M = (f"{x}ForCausalLM" for x in ("Llama", "Mistral", "Qwen2", "Qwen3", "Qwen3Moe"))
S3, GR, O2, O3, M3, ST, P3, G4, GE2, GE3, NX, OP, MX, Q2M, FA, G4M, D2, D3, GO, Q3N, Q35, Q35M = (f"{x}ForCausalLM" for x in (
    "SmolLM3", "Granite", "Olmo2", "Olmo3", "Ministral3", "StableLm", "Phi3", "Glm4", "Gemma2", "Gemma3", "GPTNeoX", "OPT", "Mixtral",
    "Qwen2Moe", "Falcon", "Glm4Moe", "DeepseekV2", "DeepseekV3", "GptOss", "Qwen3Next",
    "Qwen3_5", "Qwen3_5Moe"))
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
GROUPS = dict(n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=24, n_group=2, topk_group=1,
              first_k_dense_replace=1)
LATENT = dict(kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=12)
NO_PAD = dict(pad_token_id=None, bos_token_id=0, eos_token_id=0)
DELTA = dict(layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4, rope_parameters={
                 "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.5, 2.0, 2.5, 3.0],
        "long_factor": [1.0, 1.5, 3.0, 5.0, 8.0, 9.0], "original_max_position_embeddings": 64}


def gemma(**kw):
    d = size(**DH16, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=20, sliding_window=16, **NO_PAD)
    del d["hidden_act"]
    return {**d, **kw}


def falcon(**kw):
    return dict(vocab_size=48, hidden_size=32, ffn_hidden_size=56, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
                tie_word_embeddings=True, **NO_PAD) | kw


def opt(**kw):
    return dict(vocab_size=48, hidden_size=32, ffn_dim=56, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
                word_embed_proj_dim=32, **NO_PAD) | kw


def gpt2(**kw):
    return dict(vocab_size=48, n_embd=32, n_inner=56, n_layer=2, n_head=4, n_positions=128, tie_word_embeddings=True, **NO_PAD) | kw


LLAMA4 = dict(num_hidden_layers=4, intermediate_size_mlp=64, interleave_moe_layer_step=2, num_local_experts=4, num_experts_per_tok=1,
              attention_chunk_size=24, no_rope_layer_interval=4, floor_scale=16, attn_scale=0.5, use_qk_norm=True)
def gemma4_rope(partial):
    return {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "rope_theta": 1000.0, "partial_rotary_factor": partial}}


def gemma4(**kw):
    d = dict(gemma(), layer_types=["sliding_attention", "full_attention"] * (kw["num_hidden_layers"] // 2), vocab_size_per_layer_input=48,
             tie_word_embeddings=True, rope_parameters=gemma4_rope(0.25))
    del d["query_pre_attn_scalar"]
    return {**d, **kw}


GRH = "GraniteMoeHybridForCausalLM"
SSM = dict(num_hidden_layers=3, mamba_n_heads=8, mamba_d_state=12, mamba_expand=2, mamba_n_groups=2, shared_intermediate_size=40,
           embedding_multiplier=3.0, residual_multiplier=0.3, attention_multiplier=0.15, logits_scaling=3.0)


TOWER = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)


# returns the config of a vision model; text: config of its text model; `kw`: other members
def around(arch, kind, text, vision=TOWER, **kw):
    return {"architectures": [arch], "model_type": kind, "dtype": "float32", "text_config": text, "vision_config": vision, **kw}


def layer_norms(**kw):  # returns members for models with layer_norm_eps
    d = size(layer_norm_eps=1e-5, **NO_PAD, **kw)
    del d["rms_norm_eps"]
    return d


# A case has a config, and other values of some members of the config. With these other values the
# logits must differ.
CASES = {
    "llama_default": (five(L, **size(), rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
                      {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "llama_linear": (four(L, **size(**DH16), rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 4.0}), {"rope_scaling": None}),
    "llama_llama3": (five(L, **size(**DH16), rope_parameters={
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}), {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "llama_dynamic": (four(L, **size(**{**DH16, "max_position_embeddings": 32}), rope_theta=10000.0,
                           rope_scaling={"rope_type": "dynamic", "factor": 4.0}), {"rope_scaling": None}),
    "llama_yarn": (four(L, **size(**DH16), rope_theta=10000.0, rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}), {"rope_scaling": None}),
    "llama_yarn_mscale": (five(L, **size(**DH16), rope_parameters={
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 4.0,
        "beta_slow": 0.5, "mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False}),
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32}}),
    "llama_yarn_attention_factor": (five(L, **size(**DH16), rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.3}),
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}}),
    "llama_bias": (four(L, **size(num_key_value_heads="absent", head_dim=12, attention_bias=True, mlp_bias=True, hidden_act="gelu"),
                        rope_theta=10000.0), {"hidden_act": "silu"}),
    "llama_tied": (four(L, **size(num_key_value_heads=1, tie_word_embeddings=True, hidden_act="gelu_pytorch_tanh"), rope_theta=10000.0,
                        rope_scaling=None), {"hidden_act": "silu"}),
    "mistral_window": (five(M, **size(sliding_window=16), rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
                       {"sliding_window": None}),
    "mistral_no_window": (four(M, **size(sliding_window=None, head_dim=20, num_key_value_heads=4), rope_theta=1000000.0),
                          {"sliding_window": 16}),
    "qwen2": (four(Q2, **size(hidden_size=48, num_attention_heads=6, tie_word_embeddings=True), rope_theta=1000000.0,
                   use_sliding_window=False, sliding_window=16, max_window_layers=1), {"use_sliding_window": True}),
    "qwen2_window": (five(Q2, **size(num_hidden_layers=3), rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                          use_sliding_window=True, sliding_window=16, max_window_layers=1), {"max_window_layers": 2}),
    "qwen3": (four(Q3, **size(num_attention_heads=3, num_key_value_heads=1, head_dim=16), rope_theta=1000000.0, rope_scaling=None,
                   attention_bias=False, use_sliding_window=False, sliding_window=None, max_window_layers=2), {"rms_norm_eps": 0.1}),
    "qwen3_layer_types": (five(Q3, **size(num_hidden_layers=3, head_dim=24, attention_bias=True), use_sliding_window=True,
                               sliding_window=16, max_window_layers=3,
                               layer_types=["full_attention", "sliding_attention", "full_attention"],
                               rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                                "original_max_position_embeddings": 32}),
                          {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}),
    "qwen3_moe": (four(Q3M, **size(num_hidden_layers=3, head_dim=16), rope_theta=10000.0, num_experts=6, num_experts_per_tok=2,
                       moe_intermediate_size=24, norm_topk_prob=True, mlp_only_layers=[1], decoder_sparse_step=1,
                       use_sliding_window=False, sliding_window=16, max_window_layers=1), {"norm_topk_prob": False}),
    "qwen3_moe_step": (five(Q3M, **size(num_hidden_layers=4, head_dim=12), num_local_experts=40, num_experts_per_tok=3,
                            moe_intermediate_size=8, norm_topk_prob=False, mlp_only_layers=[], decoder_sparse_step=2,
                            use_sliding_window=True, sliding_window=16, max_window_layers=4,
                            rope_parameters={"rope_type": "default", "rope_theta": 10000.0}), {"num_experts_per_tok": 4}),
    "qwen3_moe_stacked": (five(Q3M, **size(head_dim=16), **ROPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                               norm_topk_prob=True, mlp_only_layers=[], decoder_sparse_step=1), {"norm_topk_prob": False}),
    "smollm3": (five(S3, **size(num_hidden_layers=3, no_rope_layers=[1, 0, 1]), **NO_PAD, **ROPE), {"no_rope_layers": [1, 1, 0]}),
    "granite": (four(GR, **size(**DH16), **NO_PAD, rope_theta=10000.0, embedding_multiplier=3.0, residual_multiplier=0.3,
                     attention_multiplier=0.15, logits_scaling=3.0), {"residual_multiplier": 0.4}),
    "olmo2": (five(O2, **size(num_key_value_heads=4), **NO_PAD, **ROPE), {"rms_norm_eps": 0.1}),
    "olmo3": (five(O3, **size(num_hidden_layers=4, num_key_value_heads=4, sliding_window=16), **NO_PAD, rope_parameters={
        "full_attention": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32},
        "sliding_attention": {"rope_type": "default", "rope_theta": 3000.0}}), {"sliding_window": 24}),
    "ministral3": (five(M3, **size(**DH16), **NO_PAD, sliding_window=None, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1.0,
        "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0, "llama_4_scaling_beta": 0.5}), {"rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1.0,
            "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0, "llama_4_scaling_beta": 0.1}}),
    "stablelm": (four(ST, **layer_norms(hidden_size=64, use_qkv_bias=True), rope_theta=10000.0, partial_rotary_factor=0.25),
                 {"partial_rotary_factor": 0.5}),
    "stablelm_parallel": (four(ST, **layer_norms(hidden_size=64), rope_theta=10000.0, partial_rotary_factor=0.5, use_parallel_residual=True),
                          {"partial_rotary_factor": 0.25}),
    "phi3": (four(P3, **size(hidden_size=48), **NO_PAD, rope_theta=10000.0, rope_scaling=None, sliding_window=16), {"sliding_window": None}),
    "phi3_longrope": (five(P3, **size(hidden_size=64), **NO_PAD, sliding_window=None, original_max_position_embeddings=64,
                           rope_parameters={**LONG, "partial_rotary_factor": 0.75}),
                      {"rope_parameters": {**LONG, "partial_rotary_factor": 0.75, "long_factor": LONG["short_factor"]}}),
    "glm4": (four(G4, **size(**DH16, attention_bias=True), **NO_PAD, rope_theta=10000.0, partial_rotary_factor=0.5), {"partial_rotary_factor": 1.0}),
    "gemma2": (four(GE2, **gemma(attn_logit_softcapping=5.0, final_logit_softcapping=4.0), rope_theta=10000.0), {"attn_logit_softcapping": None}),
    "gemma3": (four(GE3, **gemma(num_hidden_layers=3, sliding_window_pattern=3), rope_theta=20000.0, rope_local_base_freq=1000.0,
                    rope_scaling={"rope_type": "linear", "factor": 8.0}), {"rope_local_base_freq": 20000.0}),
    "gpt_neox": (four(NX, **{k: v for k, v in layer_norms(hidden_act="gelu").items() if k != "num_key_value_heads"}, rotary_pct=0.5,
                      rotary_emb_base=10000), {"rotary_pct": 1.0}),
    "gpt_neox_serial": (five(NX, **{k: v for k, v in layer_norms(hidden_act="relu").items() if k != "num_key_value_heads"},
                             use_parallel_residual=False, **ROPE), {"use_parallel_residual": True}),
    "opt": (four(OP, **opt(tie_word_embeddings=True)), {"activation_function": "gelu"}),
    "opt_after": (four(OP, **opt(word_embed_proj_dim=24, do_layer_norm_before=False)), {"activation_function": "gelu"}),
    "gpt2": (four("GPT2LMHeadModel", **gpt2()), {"activation_function": "relu"}),
    "mamba2": (five("Mamba2ForCausalLM", vocab_size=48, hidden_size=32, num_hidden_layers=2, state_size=12, num_heads=8, head_dim=8, n_groups=2,
                    tie_word_embeddings=False, time_step_limit=[0.0, {"__float__": "Infinity"}], **NO_PAD), {"time_step_limit": [0.1, 0.5]}),
    "mamba2_limit": (five("Mamba2ForCausalLM", vocab_size=48, hidden_size=32, num_hidden_layers=2, state_size=12, num_heads=8, head_dim=8, n_groups=1,
                          tie_word_embeddings=True, use_bias=True, time_step_limit=[0.6, 0.8], **NO_PAD), {"time_step_limit": [0.0, 1.0]}),
    "granite_hybrid": (five(GRH, **size(**SSM, num_local_experts=0, layer_types=["mamba", "attention", "mamba"]), **NO_PAD),
                       {"residual_multiplier": 0.4}),
    "granite_hybrid_moe": (five(GRH, **size(**SSM, num_local_experts=4, num_experts_per_tok=2, layer_types=["mamba", "attention", "mamba"],
                                            position_embedding_type="rope"), **NO_PAD, **ROPE), {"num_experts_per_tok": 3}),
    "llama4": (around("Llama4ForConditionalGeneration", "llama4", dict(size(**DH16, **LLAMA4), model_type="llama4_text", **NO_PAD, **ROPE),
                      dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4,
                           vision_output_dim=16, projector_input_dim=16, projector_output_dim=16), image_token_index=47),
               {"text_config": {"attention_chunk_size": 64}}),
    "llama4_two": (five("Llama4ForCausalLM", **dict(size(**DH16, **LLAMA4), num_hidden_layers=2, num_experts_per_tok=2, **NO_PAD, **ROPE)),
                   {"num_experts_per_tok": 1}),
    "gemma4": (five("Gemma4ForCausalLM", **gemma4(num_hidden_layers=4, num_kv_shared_layers=2, hidden_size_per_layer_input=8, global_head_dim=24,
                                                  use_double_wide_mlp=True, final_logit_softcapping=4.0)), {"rope_parameters": gemma4_rope(1.0)}),
    "gemma4_k_eq_v": (five("Gemma4ForCausalLM", **gemma4(num_hidden_layers=4, attention_k_eq_v=True, num_global_key_value_heads=1, global_head_dim=16,
                                                         hidden_size_per_layer_input=0)), {"sliding_window": 24}),
    "gemma4_moe": (five("Gemma4ForCausalLM", **gemma4(num_hidden_layers=2, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=24,
                                                      global_head_dim=16, hidden_size_per_layer_input=0)), {"top_k_experts": 3}),
    "gemma4_vision": (around("Gemma4ForConditionalGeneration", "gemma4", dict(gemma4(num_hidden_layers=2, hidden_size_per_layer_input=8,
        num_kv_shared_layers=0, global_head_dim=24, use_bidirectional_attention="vision"), pad_token_id=0, model_type="gemma4_text"), dict(TOWER,
        num_key_value_heads=2, head_dim=8, position_embedding_size=8), audio_config=dict(hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, output_proj_dims=16, subsampling_conv_channels=[8, 4]), tie_word_embeddings=True), {"text_config": {"sliding_window": 24}}),
    "falcon": (five(FA, **falcon(), **ROPE), {"activation": "relu"}),
    "falcon_new": (five(FA, **falcon(new_decoder_architecture=True, num_kv_heads=2, tie_word_embeddings=False), **ROPE),
                   {"activation": "relu"}),
    "falcon_old": (five(FA, **falcon(multi_query=False, parallel_attn=False), **ROPE), {"activation": "relu"}),
    "mixtral": (four(MX, **size(num_local_experts=4, num_experts_per_tok=2, sliding_window=16), **NO_PAD, rope_theta=10000.0),
                {"num_experts_per_tok": 3}),
    "qwen2_moe": (four(Q2M, **size(), **NO_PAD, rope_theta=10000.0, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                       shared_expert_intermediate_size=40, decoder_sparse_step=1, mlp_only_layers=[1], use_sliding_window=False,
                       norm_topk_prob=True), {"norm_topk_prob": False}),
    "glm4_moe": (five(G4M, **size(**DH16, attention_bias=True, use_qk_norm=True), **NO_PAD, **GROUPS, routed_scaling_factor=1.5,
                      rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
                 {"topk_group": 2}),
    "deepseek_v3": (four(D3, **size(num_key_value_heads=4, **LATENT, q_lora_rank=16), **NO_PAD, **GROUPS, rope_theta=10000.0, rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 1.0}), {"topk_group": 2}),
    "deepseek_v2": (five(D2, **size(num_key_value_heads=4, **LATENT, q_lora_rank=None), **NO_PAD, **GROUPS, topk_method="group_limited_greedy",
                         routed_scaling_factor=2.0, **ROPE), {"topk_method": "greedy"}),
    "qwen3_next": (five(Q3N, **size(**DH16), **NO_PAD, **DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                        shared_expert_intermediate_size=40, decoder_sparse_step=1, mlp_only_layers=[1], norm_topk_prob=True)
                   | dict(linear_key_head_dim=16), {"norm_topk_prob": False}),
    "qwen3_5": (five(Q35, **size(**DH16), **NO_PAD, **DELTA), {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                                                   "partial_rotary_factor": 1.0}}),
    "qwen3_5_moe": (five(Q35M, **size(**DH16), **NO_PAD, **DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                         shared_expert_intermediate_size=40), {"num_experts_per_tok": 3}),
    "gpt_oss": (five(GO, **size(hidden_size=64, intermediate_size=32, head_dim=16, sliding_window=16, num_local_experts=4, num_experts_per_tok=2), **NO_PAD, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": False}), {"sliding_window": 24}),
    "llava": (around("LlavaForConditionalGeneration", "llava", dict(size(hidden_act="gelu"), model_type="llama", **NO_PAD, rope_theta=10000.0),
                     dict(TOWER, model_type="clip_vision_model"), image_token_index=47), {"text_config": {"hidden_act": "silu"}}),
    "gemma3_vision": (around("Gemma3ForConditionalGeneration", "gemma3", dict(gemma(sliding_window=16, num_hidden_layers=3, sliding_window_pattern=3),
                             model_type="gemma3_text", tie_word_embeddings=True), mm_tokens_per_image=4, image_token_index=47, boi_token_index=45, eoi_token_index=46),
                      {"text_config": {"sliding_window": 24}}),
    "qwen2_5_vl": (around("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", dict(size(), model_type="qwen2_5_vl_text", **NO_PAD, rope_theta=10000.0,
                          rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]}), dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2,
                          patch_size=4, out_hidden_size=32), image_token_id=47, video_token_id=46, vision_start_token_id=45),
                   {"text_config": {"hidden_act": "gelu"}}),
    "qwen3_vl": (around("Qwen3VLForConditionalGeneration", "qwen3_vl", dict(size(**DH16), model_type="qwen3_vl_text", **NO_PAD, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True, "mrope_section": [4, 2, 2]}),
        dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, out_hidden_size=40, deepstack_visual_indexes=[0]),
        image_token_id=47, video_token_id=46, vision_start_token_id=45), {"text_config": {"hidden_act": "gelu"}}),
    "mllama": (around("MllamaForConditionalGeneration", "mllama", dict(size(num_hidden_layers=3, cross_attention_layers=[1]), model_type="mllama_text_model",
                      **NO_PAD, rope_theta=10000.0), dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_global_layers=1, attention_heads=2,
                      image_size=8, patch_size=4, vision_output_dim=32, intermediate_layers_indices=[0], max_num_tiles=2,
                      supported_aspect_ratios=[[1, 1], [1, 2], [2, 1]]), image_token_index=47), {"text_config": {"hidden_act": "gelu"}}),
}


def loader(config):  # returns the class that loads a text model or a vision model
    return AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM


def saved_names(directory):
    """Returns the names and shapes of the tensors in a file that save_pretrained writes. In memory,
    some tensors have other names."""
    config = json.loads((pathlib.Path(directory) / "config.json").read_text())
    with tempfile.TemporaryDirectory() as d:
        loader(config).from_config(AutoConfig.from_pretrained(directory)).save_pretrained(d)
        with safe_open(pathlib.Path(d) / "model.safetensors", "pt") as f:
            return [[n, f.get_slice(n).get_shape()] for n in sorted(f.keys())]


def names_and_shapes(directory, stacked):
    config = json.loads((pathlib.Path(directory) / "config.json").read_text())
    if "text_config" in config or config["model_type"] == "granitemoehybrid":
        return saved_names(directory)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory))
    tied = model.config.tie_word_embeddings
    rows = [[n, list(p.shape)] for n, p in model.state_dict().items() if not (tied and n == "lm_head.weight")]
    if model.config.model_type == "gpt_neox":  # transformers renames this module when it loads a checkpoint
        rows = [["embed_out.weight" if n == "lm_head.weight" else n, s] for n, s in rows]
    mixtral = model.config.model_type == "mixtral"
    rows = [[n.replace(".mlp.gate.", ".block_sparse_moe.gate.") if mixtral else n, s] for n, s in rows]
    return rows if stacked or model.config.model_type in ("gpt_oss", "gemma4_text", "llama4_text") else [row for n, s in rows for row in split_experts(n, s, mixtral)]


def split_experts(name, shape, mixtral):
    """Returns names and shapes for a tensor of transformers 5. If the tensor stacks experts,
    returns one name and shape per expert, as in checkpoints."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return [[name, shape]]
    stem, (experts, rows, columns) = name.rsplit(".", 1)[0], shape
    leaves = ["gate_proj", "up_proj"] if name.endswith("gate_up_proj") else ["down_proj"]
    if mixtral:
        stem, leaves = stem.replace(".mlp.", ".block_sparse_moe."), [{"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[x] for x in leaves]
    return [[f"{stem}.{e}.{leaf}.weight", [rows // len(leaves), columns]] for e in range(experts) for leaf in leaves]


def run(config, tensors, stored, computed, samples):
    """Returns the logits of each sample alone. Each sample gets a new model, because dynamic rope
    keeps the length of the longest sample."""
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "config.json").write_text(json.dumps(config))
        save_file({n: torch.from_numpy(np.asarray(weight(n, s))).to(stored) for n, s in tensors}, pathlib.Path(d) / "model.safetensors")
        out = []
        for ids in samples:
            model = loader(config).from_pretrained(d, dtype=computed, attn_implementation="eager", experts_implementation="eager").eval()
            assert all(m.dtype == torch.float32 for n, m in model.named_buffers() if n.endswith("inv_freq"))
            with torch.no_grad():
                out.append(model(torch.from_numpy(ids)[None], use_cache=False).logits[0])
        return out


def nll(logits, samples):
    rows = []
    for x, ids in zip(logits, samples):
        p = torch.log_softmax(x.float(), dim=-1)
        rows.append(-p[:-1].gather(1, torch.from_numpy(ids)[1:, None])[:, 0])
    return torch.cat(rows).numpy().astype(np.float32)


def half_rows(config, tensors, samples):
    rows = []
    for dt in (torch.bfloat16, torch.float16):
        rows += [nll(run(config, tensors, dt, torch.float32, samples), samples), nll(run(config, tensors, dt, dt, samples), samples)]
    return rows


def make(case):
    config, without = CASES[case]
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "config.json").write_text(json.dumps(config))
        tensors = names_and_shapes(d, case.endswith("_stacked"))
    samples = tokens(config.get("text_config", config)["vocab_size"])
    logits = run(config, tensors, torch.float32, torch.float32, samples[:LOGIT_SAMPLES])
    other = copy.deepcopy(config)
    for k, v in without.items():
        other[k] = {**other[k], **v} if k == "text_config" else v
    changed = run(other, tensors, torch.float32, torch.float32, samples[:1])[0]
    matters = float((changed - logits[0]).abs().max() / logits[0].abs().max())
    assert matters > 1e-2, (case, matters)
    rows = half_rows(config, tensors, samples)
    (HERE / f"{case}.json").write_text(json.dumps({"config": config, "lens": LENS, "logit_samples": LOGIT_SAMPLES, "tensors": tensors}))
    np.save(HERE / f"{case}.npy", torch.cat(logits).numpy().astype(np.float32))
    np.save(HERE / f"{case}.nll.npy", np.stack(rows))
    err = [float(np.abs(rows[i + 1] - rows[i]).mean()) for i in (0, 2)]
    print(f"{case:30s} matters {matters:.3f}  transformers' bf16 {err[0]:.5f} f16 {err[1]:.6f}")
    return {"without": without, "changes_logits_by": round(matters, 4)}


if __name__ == "__main__":
    torch.manual_seed(0)
    manifest = {"seed": SEED, "torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}
    old = json.loads((HERE / "MANIFEST.json").read_text())
    asked = sys.argv[1:]  # names of cases; without names all cases are made
    assert not asked or all(old[k] == v for k, v in manifest.items()), "other versions: make all cases"
    manifest["cases"] = {c: make(c) if not asked or c in asked else old["cases"][c] for c in CASES if not asked or c in asked + list(old["cases"])}
    (HERE / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n")
