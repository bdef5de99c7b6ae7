"""tiny_families.py - makes tiny random checkpoints of many families with the classes of
transformers; part of compare_families.py, family.py, vllm_families.py and
tests/golden/families/gen_logits.py."""
import json
import re
import shutil

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

from renamed_families import RENAMED, release, restore

N = dict(vocab_size=256, pad_token_id=0)
TINY = dict(N, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            max_position_embeddings=256)
MOE = dict(num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, n_shared_experts=1,
           shared_expert_intermediate_size=64, first_k_dense_replace=1, n_group=1, topk_group=1)
FEW = dict(num_local_experts=4, num_experts_per_tok=2)
MLA = dict(q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16, num_key_value_heads=4)
DELTA = dict(layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
             linear_value_head_dim=16)
SSM = dict(mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_expand=2, mamba_n_groups=1)
TOWER = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, image_size=8, patch_size=4)
PLAIN = {k: v for k, v in TINY.items() if k != "head_dim"}
PIXTRAL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, image_size=8, patch_size=4, head_dim=16)
QWEN_TOWER = dict(depth=1, hidden_size=64, intermediate_size=128, num_heads=4, patch_size=4, out_hidden_size=64)
EARS = dict(d_model=64, encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=128, num_mel_bins=16, max_source_positions=32)
EARS2 = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, num_mel_bins=16)
VOICE = dict(hidden_size=16, num_filters=4, depths=[1] * 7)
QFORMER = dict(model_type="blip_2_qformer", hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=128, encoder_hidden_size=64)
M3 = dict(TINY, **FEW, dense_intermediate_size=128, shared_intermediate_size=64, rotary_dim=8, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5), swiglu_limit=2.0,
          index_n_heads=2, index_head_dim=16, index_block_size=16, index_topk_blocks=8, layer_types=["full_attention", "minimax_m3_sparse"], mlp_layer_types=["dense", "sparse"])
GEMMA4 = dict(TINY, global_head_dim=16, hidden_size_per_layer_input=0, layer_types=["sliding_attention", "full_attention"], sliding_window=16)
OLD = dict(N, n_embd=64, n_layer=2, n_head=4, n_positions=256)
SLIDES = dict(sliding_window=8, layer_types=["sliding_attention", "full_attention"])
GRANITE = dict(embedding_multiplier=3.0, residual_multiplier=0.3, attention_multiplier=0.15, logits_scaling=3.0)
LONGCAT = dict(N, hidden_size=64, ffn_hidden_size=128, num_layers=1, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16,
               qk_rope_head_dim=16, head_dim=16, v_head_dim=16, moe_topk=2, n_routed_experts=4, zero_expert_num=0, expert_ffn_hidden_size=64, max_position_embeddings=256)
GRANITE_SPEECH = dict(text_config=dict(PLAIN, model_type="granite", **(GRANITE | dict(logits_scaling=1.0))), projector_config=QFORMER, has_lora_adapter=False,
                      encoder_config=dict(input_dim=16, num_layers=1, hidden_dim=64, num_heads=4, dim_head=16, output_dim=8))
MULTIPLIERS = dict(lm_head_multiplier=0.5, embedding_multiplier=3.0, mlp_multipliers=[0.7, 0.6], key_multiplier=0.8, attention_out_multiplier=0.9,
                   attention_in_multiplier=1.1, ssm_multipliers=[0.5, 0.6, 0.7, 0.8, 0.9], ssm_in_multiplier=1.2, ssm_out_multiplier=0.4)
GEMMA3N = dict(TINY, **SLIDES, vocab_size_per_layer_input=256, hidden_size_per_layer_input=32, laurel_rank=32, num_kv_shared_layers=2, activation_sparsity_pattern=[0.95, 0.5, 0.0, 0.0],
               intermediate_size=[128, 128, 96, 96]) | dict(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2)
QWEN4 = dict(TINY, **MOE, **(DELTA | dict(layer_types=["linear_attention", "qwen_sparse_attention"])), hc_lowrank=32, ple_layer_ids=[1], ple_embed_dim=64, heads_per_ngram=4, ngram_vocab_size_base=97, make_ngram_vocab_size_divisible_by=16,
             split_ngram_parts=5, eos_token_id=7, indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=128, indexer_compress_ratio=4)
FAMILIES = {
    "llama": TINY, "mistral": TINY, "ministral3": TINY, "qwen2": PLAIN, "qwen3": TINY, "gemma2": TINY, "gemma3_text": TINY,
    "olmo2": PLAIN, "olmo3": PLAIN, "granite": PLAIN, "smollm3": TINY, "stablelm": PLAIN, "phi3": PLAIN, "glm4": TINY,
    "mixtral": dict(TINY, **FEW), "qwen2_moe": dict(TINY, **MOE), "qwen3_moe": dict(TINY, **MOE), "glm4_moe": dict(TINY, **MOE),
    "deepseek_v2": dict(TINY, **MOE, **{k: v for k, v in MLA.items() if k != "num_key_value_heads"}) | dict(num_key_value_heads=4),
    "deepseek_v3": dict(TINY, **MOE) | MLA,
    "glm_moe_dsa": dict(TINY, **MOE, index_topk=128, index_n_heads=2, index_head_dim=32, indexer_types=["full", "shared"]) | MLA,
    "deepseek_v32": dict(TINY, **MOE, index_topk=128, index_n_heads=2, index_head_dim=32) | MLA,
    "hy_v4": dict(TINY, **MOE, index_topk=128, index_n_heads=2, index_head_dim=32, indexer_types=["full", "shared"], swiglu_limit=0.5, initializer_range=0.1) | MLA,
    "deepseek_v4": dict(TINY, **MOE, q_lora_rank=32, partial_rotary_factor=0.5, o_groups=2, o_lora_rank=32, index_n_heads=2, index_head_dim=32, index_topk=32, sliding_window=8, swiglu_limit=0.5, hc_sinkhorn_iters=3, hc_eps=1e-3,
                        compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=8), layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
                        mlp_layer_types=["hash_moe", "moe", "moe"], rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)) | dict(num_hidden_layers=3, num_key_value_heads=1),
    "glm5_next": dict(text_config=dict(TINY | dict(num_key_value_heads=4), **MOE, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, v_head_dim=16, index_topk=128, index_n_heads=2, index_head_dim=32, index_kpool=4, swiglu_limit=0.5,
                      hc_sinkhorn_iters=3, hc_eps=1e-3, layer_types=["linear_attention", "deepseek_sparse_attention"], mlp_layer_types=["dense", "sparse"], linear_head_dim=32, linear_num_heads=2, linear_lower_bound=-3.0),
                      vision_config=dict(QWEN_TOWER, image_size=8, spatial_merge_size=1, projection_intermediate_size=64)),
    "gpt_oss": dict(TINY, **FEW, rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32, truncate=False)),
    "minimax_m2": dict(TINY, **FEW),
    "hunyuan_v1_moe": dict(TINY, num_experts=4, moe_topk=[2, 1]),
    "qwen3_next": dict(TINY, **MOE, **DELTA),
    "qwen3_5_text": dict(TINY, **DELTA),
    "qwen3_5_moe_text": dict(TINY, **MOE, **DELTA),
    "qwen4_exp_text": dict(QWEN4, output_gate_type="sigmoid"), "qwen4_exp": dict(text_config=QWEN4, vision_config=QWEN_TOWER),
    "granitemoehybrid": dict(PLAIN, **(MOE | dict(num_local_experts=0)), **SSM, layer_types=["mamba", "attention"],
                             shared_intermediate_size=64),
    "granitemoehybrid_moe": dict(PLAIN, **FEW, **SSM, model_type="granitemoehybrid", layer_types=["mamba", "attention"],
                                 shared_intermediate_size=64),
    "lfm2": dict(PLAIN, layer_types=["conv", "full_attention"], block_multiple_of=32),
    "jamba": dict(PLAIN, num_experts=4, num_experts_per_tok=2, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
                  use_mamba_kernels=False, mamba_d_state=16, mamba_dt_rank=32),
    "mamba2": dict(N, hidden_size=64, num_hidden_layers=2, state_size=16, num_heads=8, head_dim=16, n_groups=1),
    "nemotron_h": dict(TINY, **MOE, layers_block_type=["mamba", "attention", "mlp", "moe"], mamba_num_heads=8, mamba_head_dim=16,
                       ssm_state_size=16, n_groups=1, num_hidden_layers=4, moe_shared_expert_intermediate_size=64) | dict(moe_latent_size=None),
    "nemotron_h_latent": dict(TINY, **MOE, model_type="nemotron_h", layers_block_type=["linear_attention", "full_attention", "moe"], mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=16, n_groups=2,
                              moe_shared_expert_intermediate_size=64, moe_latent_size=32, use_bias=True, mlp_bias=True),
    "dbrx": dict(N, d_model=64, n_heads=4, n_layers=2, max_seq_len=256, attn_config=dict(clip_qkv=0.7, kv_n_heads=2, rope_theta=1e4), ffn_config=dict(ffn_hidden_size=64, moe_num_experts=4, moe_top_k=2)),
    "kimi_linear": dict(TINY | dict(num_key_value_heads=4), **{k: v for k, v in MOE.items() if k != "num_experts"}, **{k: v for k, v in MLA.items() if k not in ("num_key_value_heads", "q_lora_rank")}, q_lora_rank=None, layer_types=["linear_attention", "full_attention"], linear_head_dim=32, linear_num_heads=2),
    "gpt_neox": PLAIN, "opt": dict(PLAIN, ffn_dim=128, word_embed_proj_dim=64), "falcon": PLAIN,
    "gpt2": dict(N, n_embd=64, n_layer=2, n_head=4, n_positions=256),
    "qwen3_moe_stacked": dict(TINY, **MOE, model_type="qwen3_moe"), "qwen3_5_moe_stacked": dict(TINY, **MOE, **DELTA, model_type="qwen3_5_moe_text"),
    "gemma4_text": GEMMA4,
    "olmo_hybrid": dict(PLAIN, **DELTA, rope_parameters=dict(rope_type="default", rope_theta=None)), "olmo_hybrid_rope": dict(PLAIN, **DELTA, model_type="olmo_hybrid", linear_allow_neg_eigval=False, rope_parameters=dict(rope_type="default", rope_theta=1e4)),
    "laguna": dict(TINY, **MOE, **SLIDES, num_attention_heads_per_layer=[4, 8], moe_routed_scaling_factor=1.5),
    "laguna_element": dict(TINY, **MOE, **SLIDES, model_type="laguna", gating="per-element"),
    "gemma4_shared": dict(GEMMA4, model_type="gemma4_text", num_hidden_layers=4, num_kv_shared_layers=2, hidden_size_per_layer_input=32,
                          vocab_size_per_layer_input=256, layer_types=["sliding_attention", "full_attention"] * 2),
    "gemma4_moe": dict(GEMMA4, model_type="gemma4_text", enable_moe_block=True, top_k_experts=2, **MOE),
    "gemma4": dict(text_config=dict(GEMMA4), vision_config=dict(TOWER, patch_size=8, num_key_value_heads=4, head_dim=16, position_embedding_size=64),
                   audio_config=dict(hidden_size=64, num_hidden_layers=1, num_attention_heads=4, output_proj_dims=64, subsampling_conv_channels=[32, 16])),
    "gemma4_blind": dict(model_type="gemma4", text_config=dict(GEMMA4), vision_config=None, audio_config=None),
    "llama4": dict(text_config=dict(TINY, num_local_experts=4, intermediate_size_mlp=128, interleave_moe_layer_step=2),
                   vision_config=dict(TOWER, image_size=16, patch_size=8, vision_output_dim=64, projector_input_dim=64, projector_output_dim=64)),
    "llava": dict(text_config=dict(TINY, model_type="llama"), vision_config=dict(TOWER, model_type="clip_vision_model")),
    "mistral3": dict(text_config=dict(TINY, model_type="mistral"), vision_config=dict(PIXTRAL, model_type="pixtral")),
    "gemma3": dict(text_config=TINY, vision_config=TOWER, mm_tokens_per_image=4),
    "mllama": dict(text_config=dict(PLAIN, cross_attention_layers=[1]),
                   vision_config=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_global_layers=1, attention_heads=4,
                                      image_size=8, patch_size=4, vision_output_dim=128, intermediate_layers_indices=[0], max_num_tiles=2,
                                      supported_aspect_ratios=[[1, 1], [1, 2], [2, 1]])),
    "qwen2_5_vl": dict(text_config=dict(PLAIN, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])), vision_config=QWEN_TOWER),
    "qwen3_vl": dict(text_config=TINY, vision_config=dict(QWEN_TOWER, deepstack_visual_indexes=[0])),
    "gemma": TINY, "glm": TINY, "cohere": dict(PLAIN, logit_scale=0.25), "seed_oss": dict(TINY, attention_out_bias=True), "ernie4_5": dict(TINY, use_bias=True),
    "cohere2": dict(TINY, logit_scale=0.25, **SLIDES), "exaone4": dict(PLAIN, **SLIDES), "exaone4_full": dict(PLAIN, model_type="exaone4", sliding_window=None, layer_types=["full_attention"] * 2),
    "olmoe": dict(PLAIN, num_experts=4, num_experts_per_tok=2), "flex_olmo": dict(PLAIN, num_experts=4, num_experts_per_tok=2),
    "olmoe_clip": dict(PLAIN, model_type="olmoe", num_experts=4, num_experts_per_tok=2, clip_qkv=0.8), "phi_norm": dict(PLAIN, model_type="phi", qk_layernorm=True),
    "arcee": dict(TINY, attention_bias=True), "helium": TINY, "starcoder2": dict(PLAIN, sliding_window=8), "phi": PLAIN,
    "granitemoe": dict(PLAIN, **FEW, **GRANITE), "granitemoeshared": dict(PLAIN, **FEW, **GRANITE, shared_intermediate_size=64),
    "dots1": dict(TINY, **MOE, **SLIDES, routed_scaling_factor=1.5), "glm4_moe_lite": dict(PLAIN, **{k: v for k, v in MOE.items() if k != "first_k_dense_replace"}) | MLA,
    "ernie4_5_moe": dict(TINY, use_bias=True, moe_num_experts=4, moe_k=2, moe_intermediate_size=64, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=2)
                    | dict(num_hidden_layers=4),
    "ernie4_5_moe_plain": dict(TINY, model_type="ernie4_5_moe", use_bias=False, moe_num_experts=4, moe_k=2, moe_intermediate_size=64, moe_num_shared_experts=2, moe_layer_start_index=1),
    "hunyuan_v1_dense": dict(TINY, attention_bias=True, rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, alpha=100.0, factor=1.0)),
    "gptj": dict(OLD, rotary_dim=8), "codegen": dict(OLD, rotary_dim=8), "gpt_bigcode": OLD, "gpt_bigcode_heads": dict(OLD, model_type="gpt_bigcode", multi_query=False),
    "bamba": dict(PLAIN, **SSM, attn_layer_indices=[1]),
    "solar_open": dict(TINY, **MOE, routed_scaling_factor=1.5), "ministral": dict(TINY, **SLIDES), "vaultgemma": dict(TINY, sliding_window=8, query_pre_attn_scalar=20),
    "exaone_moe": dict(TINY, **MOE, **SLIDES, num_shared_experts=1),
    "cwm": dict(TINY, **SLIDES, rope_parameters=dict(rope_type="llama3", rope_theta=1e4, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "lfm2_full": dict(PLAIN, model_type="lfm2", full_attn_idxs=[1], block_auto_adjust_ff_dim=False, conv_bias=True, conv_L_cache=4),
    "lfm2_moe": dict(PLAIN, **MOE, layer_types=["conv", "full_attention"], num_dense_layers=1),
    "falcon_h1": dict(PLAIN, **SSM | dict(mamba_n_groups=2), mamba_d_ssm=128, **MULTIPLIERS),
    "falcon_h1_norm": dict(PLAIN, model_type="falcon_h1", **SSM, mamba_d_ssm=128, mamba_rms_norm=True, mamba_norm_before_gate=False, **MULTIPLIERS),
    "olmo": PLAIN, "olmo_clip": dict(PLAIN, model_type="olmo", clip_qkv=0.4, attention_bias=True),
    "nemotron": dict(TINY, attention_bias=True, mlp_bias=True),
    "apertus": dict(PLAIN, rope_parameters=dict(rope_type="llama3", rope_theta=1e4, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "phimoe": dict(PLAIN, **FEW, attention_bias=True, lm_head_bias=True),
    "axk1": dict(TINY, **MOE) | MLA, "minicpm3": dict(PLAIN, num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16) | dict(dim_model_base=32),
    "hy_v3": dict(TINY, **MOE, num_shared_experts=1, attention_bias=True), "afmoe": dict(TINY, **MOE, **SLIDES, num_shared_experts=1, mup_enabled=True, route_scale=1.5),
    "cohere2_moe": dict(TINY, **SLIDES, num_experts=4, num_experts_per_tok=2, num_shared_experts=1, logit_scale=0.25, mlp_layer_types=["dense", "sparse"]),
    "cohere2_moe_sigmoid": dict(TINY, model_type="cohere2_moe", layer_types=["full_attention", "sliding_attention"], sliding_window=8, num_experts=4, num_experts_per_tok=2, num_shared_experts=1,
                                shared_expert_combination_strategy="sum", expert_selection_fn="sigmoid", rms_norm_eps=1e-6, prefix_dense_intermediate_size=64, mlp_layer_types=["dense", "sparse"]),
    "mimo_v2_flash": dict(TINY, **MOE, layer_types=["full_attention", "sliding_attention"], sliding_window=8, v_head_dim=8, rope_parameters=dict(
        full_attention=dict(rope_type="default", rope_theta=1e5, partial_rotary_factor=0.5), sliding_attention=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
    "longcat_flash": LONGCAT, "longcat_flash_zero": dict(LONGCAT, model_type="longcat_flash", zero_expert_num=2),
    "granite_swa": dict(PLAIN, **SLIDES, **GRANITE, layer_rope_theta=[2e4, 0]), "granitemoe_swa": dict(PLAIN, **FEW, **SLIDES, **GRANITE, shared_intermediate_size=64, layer_rope_theta=[0, 2e4]),
    "bloom": dict(N, hidden_size=64, n_layer=2, n_head=4), "bloom_6": dict(N, model_type="bloom", hidden_size=96, n_layer=1, n_head=6),
    "mpt": dict(N, d_model=64, n_layers=2, n_heads=4), "mpt_6": dict(N, model_type="mpt", d_model=96, n_layers=1, n_heads=6),
    "mamba": dict(N, hidden_size=64, num_hidden_layers=2, state_size=16), "falcon_mamba": dict(N, hidden_size=64, num_hidden_layers=2, state_size=16),
    "jais2": TINY, "hyperclovax": dict(TINY, **(GRANITE | dict(logits_scaling=0.25))),
    "exaone4_5": dict(text_config=dict(PLAIN, **SLIDES), vision_config=dict(QWEN_TOWER, num_key_value_heads=4, fullatt_block_indexes=[0])),
    "video_llama_3": dict(text_config=dict(PLAIN, model_type="qwen2"), vision_config=TOWER),
    "llama4_text": dict(TINY, num_local_experts=4, intermediate_size_mlp=128, interleave_moe_layer_step=2),
    "qwen2_vl": dict(text_config=dict(PLAIN, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])),
                     vision_config=dict(depth=1, embed_dim=64, hidden_size=64, num_heads=4, patch_size=4)),
    "qwen3_vl_moe": dict(text_config=dict(TINY, **MOE), vision_config=dict(QWEN_TOWER, deepstack_visual_indexes=[0])),
    "qwen3_5": dict(text_config=dict(TINY, **DELTA), vision_config=QWEN_TOWER, mtp=True),
    "qwen3_5_moe": dict(text_config=dict(TINY, **MOE, **DELTA), vision_config=QWEN_TOWER, mtp=True),
    "internvl": dict(text_config=dict(TINY, model_type="qwen3"), vision_config=dict(TOWER, image_size=[8, 8], patch_size=[4, 4])),
    "idefics3": dict(text_config=dict(PLAIN, model_type="llama"), vision_config=TOWER), "smolvlm": dict(text_config=dict(PLAIN, model_type="llama"), vision_config=TOWER),
    "llava_next": dict(text_config=dict(PLAIN, model_type="mistral"), vision_config=dict(TOWER, model_type="clip_vision_model"), image_grid_pinpoints=[[8, 8]]),
    "llava_next_video": dict(text_config=dict(PLAIN, model_type="llama"), vision_config=dict(TOWER, model_type="clip_vision_model"), image_grid_pinpoints=[[8, 8]]),
    "llava_onevision": dict(text_config=dict(PLAIN, model_type="qwen2"), vision_config=dict(TOWER, model_type="siglip_vision_model"), image_grid_pinpoints=[[8, 8]]),
    "video_llava": dict(text_config=dict(PLAIN, model_type="llama"), vision_config=dict(TOWER, model_type="clip_vision_model")),
    "vipllava": dict(text_config=dict(PLAIN, model_type="llama"), vision_config=dict(TOWER, model_type="clip_vision_model"), vision_feature_layers=[-1]),
    # logit_scale is 1, because the classes that contain a Cohere 2 model do not multiply by it
    "aya_vision": dict(text_config=dict(TINY, model_type="cohere2", logit_scale=1.0, **SLIDES), vision_config=TOWER),
    "cohere2_vision": dict(text_config=dict(TINY, model_type="cohere2", logit_scale=1.0, **SLIDES), vision_config=TOWER),
    "got_ocr2": dict(text_config=dict(PLAIN, model_type="qwen2"), vision_config=dict(hidden_size=64, output_channels=32, num_hidden_layers=1, num_attention_heads=4,
                     image_size=32, patch_size=4, window_size=2, global_attn_indexes=[0], mlp_dim=64)),
    "ovis2": dict(text_config=dict(PLAIN, model_type="qwen2"), vision_config=dict(TOWER, hidden_stride=1), hidden_size=64),
    "lighton_ocr": dict(text_config=dict(TINY, model_type="qwen3"), vision_config=dict(PIXTRAL, model_type="pixtral")),
    "glm4v": dict(text_config=dict(PLAIN, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 2])),
                  vision_config=dict(QWEN_TOWER, image_size=8)),
    "glm_ocr": dict(text_config=dict(PLAIN, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 2])),
                    vision_config=QWEN_TOWER),
    "minicpmv4_6": dict(text_config=dict(TINY, model_type="qwen3_5_text", **DELTA), vision_config=dict(TOWER, model_type="minicpmv4_6_vision")),
    "glm46v": dict(text_config=dict(PLAIN, model_type="glm4v_text", rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 2])),
                  vision_config=dict(QWEN_TOWER, image_size=8)),
    "glm4v_moe": dict(text_config=dict(TINY, **MOE, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 2])),
                      vision_config=dict(QWEN_TOWER, image_size=8)),
    "lfm2_vl": dict(text_config=dict(PLAIN, model_type="lfm2", layer_types=["conv", "full_attention"]),
                    vision_config=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, patch_size=4, num_patches=16)),
    "deepseek_vl": dict(text_config=dict(PLAIN, model_type="llama"), vision_config=TOWER),
    "qwen2_audio": dict(text_config=dict(PLAIN, model_type="qwen2"), audio_config=EARS),
    "voxtral": dict(text_config=dict(TINY, model_type="llama"), audio_config=dict(EARS2, max_source_positions=32)),
    "glmasr": dict(text_config=dict(TINY, model_type="llama"), audio_config=EARS2),
    "qwen3_asr": dict(text_config=dict(TINY, model_type="qwen3"), audio_config=dict(EARS, output_dim=64, downsample_hidden_size=16)),
    "audioflamingo3": dict(text_config=dict(PLAIN, model_type="qwen2"), audio_config=dict(EARS2, max_source_positions=32)),
    "musicflamingo": dict(text_config=dict(PLAIN, model_type="qwen2"), audio_config=dict(EARS2, model_type="audioflamingo3_encoder", max_source_positions=32)),
    # logits_scaling is left out, because classes that contain a Granite model do not divide by it
    "granite_speech": GRANITE_SPEECH, "granite_speech_plus": GRANITE_SPEECH,
    "granite4_vision": dict(text_config=dict(PLAIN, model_type="granite4_vision_text", **GRANITE), vision_config=dict(TOWER, model_type="siglip_vision_model"),
                            qformer_config=QFORMER, downsample_rate="1/2", image_grid_pinpoints=[[8, 8]], deepstack_layer_map=[], spatial_target_layers=[]),
    "qianfan_ocr": dict(text_config=dict(TINY, model_type="qwen3"), vision_config=dict(TOWER, image_size=[8, 8], patch_size=[4, 4])),
    "gemma4_unified": dict(text_config={k: v for k, v in GEMMA4.items() if k != "hidden_size_per_layer_input"},
                           vision_config=dict(patch_size=4, mm_embed_dim=64, mm_posemb_size=16, output_proj_dims=64), audio_config=dict(audio_embed_dim=64)),
    "paddleocr_vl": dict(text_config=dict(TINY, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])), vision_config=TOWER),
    "hunyuan_vl": dict(text_config=dict(TINY, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 2, 2, 2])), vision_config=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, patch_size=4, out_hidden_size=64,
                       text_hidden_size=64, max_image_size=16, img_max_token_num=16)),
    "qwen2_5_omni": dict(thinker_config=dict(text_config=dict(PLAIN, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])),
                                             audio_config=dict(EARS, output_dim=64), vision_config=QWEN_TOWER), enable_audio_output=False),
    "qwen3_omni_moe": dict(thinker_config=dict(text_config=dict(TINY, **MOE, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])),
                                               audio_config=dict(EARS, output_dim=64, downsample_hidden_size=16), vision_config=dict(QWEN_TOWER, deepstack_visual_indexes=[0])),
                           enable_audio_output=False),
    "cosmos3_edge": dict(text_config=dict(TINY, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])), vision_config=TOWER),
    # has no pad token, because transformers would set the pad token's row of the embedding to 0
    "youtu": dict(PLAIN, **(MLA | dict(pad_token_id=None))),
    "mistral4": dict(PLAIN, **(MOE | MLA), rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=128, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
                     mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    "aria": dict(text_config=dict(PLAIN, model_type="aria_text", moe_num_experts=4, moe_topk=2, moe_num_shared_experts=2), vision_config=dict(TOWER, model_type="idefics3_vision"), projector_patch_to_query_dict={"4": 2}),
    "aria_text": dict(PLAIN, moe_num_experts=4, moe_topk=2, moe_num_shared_experts=2),
    "phi4_multimodal": dict(PLAIN, vision_config=dict(TOWER, crop_size=8, image_token_id=250), audio_config=dict(hidden_size=64, intermediate_size=128, num_blocks=1, num_attention_heads=4,
                            ext_pw_out_channel=64, depthwise_separable_out_channel=64, nemo_conv_channels=16, input_size=16, audio_token_id=251)),
    "kimi_k25": dict(text_config=dict(PLAIN, model_type="deepseek_v3", **(MOE | MLA)), vision_config=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, patch_size=4,
                     pos_emb_height=4, pos_emb_width=4), projection_hidden_size=64),
    "idefics2": dict(text_config=dict(PLAIN, model_type="mistral"), vision_config=TOWER, perceiver_config=dict(hidden_size=64, resampler_n_latents=4, resampler_depth=1, resampler_n_heads=4,
                     num_key_value_heads=2, resampler_head_dim=16)),
    "deepseek_vl_hybrid": dict(text_config=dict(PLAIN, model_type="llama"), vision_config=TOWER, high_res_vision_config=dict(hidden_size=64, output_channels=32, num_hidden_layers=1, num_attention_heads=4,
                               image_size=32, patch_size=4, window_size=2, global_attn_indexes=[0], mlp_dim=64)),
    "fun_asr_nano": dict(text_config=dict(TINY, model_type="qwen3"), audio_config=dict(EARS2, num_timestamp_prediction_layers=1), adaptor_config=dict(hidden_size=64, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4, projector_hidden_size=64)),
    "vibevoice_asr": dict(text_config=dict(PLAIN, model_type="qwen2"), acoustic_tokenizer_encoder_config=VOICE, semantic_tokenizer_encoder_config=VOICE),
    "qwen2_5_omni_thinker": dict(text_config=dict(PLAIN, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])),
                                 audio_config=dict(EARS, output_dim=64), vision_config=QWEN_TOWER),
    "qwen3_omni_moe_thinker": dict(text_config=dict(TINY, **MOE, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])),
                                   audio_config=dict(EARS, output_dim=64, downsample_hidden_size=16), vision_config=dict(QWEN_TOWER, deepstack_visual_indexes=[0])),
    "minimax": dict(TINY, **FEW, block_size=16, full_attn_alpha_factor=1.5, full_attn_beta_factor=0.7, linear_attn_alpha_factor=1.3, linear_attn_beta_factor=0.6,
                    mlp_alpha_factor=1.2, mlp_beta_factor=0.8) | dict(num_hidden_layers=4),
    "minimax_m3_vl_text": M3, "minimax_m3_vl": dict(text_config=M3, vision_config=TOWER, projector_hidden_size=64),
    "janus": dict(text_config=dict(PLAIN, model_type="llama"), vision_config=TOWER),
    "persimmon": PLAIN, "persimmon_plain": dict(PLAIN, model_type="persimmon", qk_layernorm=False),
    "fuyu": dict(text_config=dict(PLAIN, model_type="persimmon"), hidden_size=64, patch_size=4, pad_token_id=0),
    # Heads have 32 channels. With fewer, transformers' own logits in F32 and F64 differ by more
    # than the tolerance of 5e-6.
    "diffllama": dict(TINY, lambda_std_dev=0.3) | dict(head_dim=32),
    "paligemma": dict(text_config=dict(TINY, model_type="gemma"), vision_config=dict(TOWER, model_type="siglip_vision_model"), projection_dim=64),
    "paligemma2": dict(model_type="paligemma", text_config=dict(TINY, model_type="gemma2", sliding_window=8, final_logit_softcapping=None), vision_config=dict(TOWER, model_type="siglip_vision_model"), projection_dim=64),
    "gemma3n_text": GEMMA3N,
    "zamba2": dict(PLAIN, **{k: v for k, v in SSM.items() if k not in ("mamba_n_heads", "mamba_d_head", "mamba_n_groups")}, n_mamba_heads=8, mamba_ngroups=2, num_mem_blocks=2, adapter_rank=32,
                   layers_block_type=["linear_attention", "hybrid", "hybrid", "hybrid"], use_shared_attention_adapter=True, use_mem_rope=True, use_mamba_kernels=False,
                   chunk_size=16) | dict(num_key_value_heads=4, num_hidden_layers=4),
    "zamba2_plain": dict(PLAIN, model_type="zamba2", mamba_d_state=16, layers_block_type=["hybrid", "linear_attention", "hybrid"], use_mamba_kernels=False, adapter_rank=32) | dict(num_hidden_layers=3),
    # needs the packages timm and torchvision
    "gemma3n": dict(text_config=GEMMA3N, vision_config=dict(architecture="mobilenetv3_small_050", hidden_size=64),
                    audio_config=dict(hidden_size=64, conf_num_attention_heads=4, conf_num_hidden_layers=1, input_feat_size=16, sscp_conv_channel_size=[8, 8])),
}
EAGER = dict(attn_implementation="eager", experts_implementation="eager")
AUTO = (transformers.AutoModelForImageTextToText, transformers.AutoModelForCausalLM, transformers.AutoModelForMultimodalLM, transformers.AutoModelForSeq2SeqLM)


# transformers 5.17 writes the prefix language_model.model into the names of a text model that is a
# part of another model. Released files do not have this prefix.
TWICE = re.compile(r"^language_model\.model\.(model|encoder)\.")


def make(family, folder, dtype, seed):
    """Makes a checkpoint with random norms, biases and gates. (In a new model they are 0 or 1,
    which would hide faults.)"""
    renamed = RENAMED.get(family)
    members = dict(renamed.members, model_type=renamed.reference) if renamed else dict(FAMILIES[family])
    mtp = members.pop("mtp", False)
    config = transformers.AutoConfig.for_model(members.pop("model_type", family), **members)
    torch.manual_seed(seed)
    model = next(auto for auto in AUTO if type(config) in auto._model_mapping).from_config(config, dtype=dtype)
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + [b for b in model.named_buffers() if b[0].endswith("bias")]:
            if p.dim() == 1:
                p.add_(0.2 * torch.randn(p.shape).to(p.dtype))
            elif name.endswith(("weight", "proj")):
                p.copy_((torch.randn(p.shape) * p.shape[-1] ** -0.5).to(p.dtype))
        for name, p in model.named_buffers():
            if name.endswith("tid2eid"):
                p.copy_(torch.rand(len(p), config.num_local_experts).argsort(-1)[:, :p.shape[1]])
            if config.model_type == "zamba2" and name.endswith(".linear.weight"):
                p.mul_(0.05)  # else F32 logits of transformers are 2e-5 from F64
    model.save_pretrained(folder, save_original_format=not family.endswith("_stacked"))
    if mtp:
        add_mtp(folder)
    if config.model_type == "kimi_linear":  # released files have another name of dense MLPs
        made = {re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", n): t for n, t in tensors(folder).items()}
        save_file(made, folder / "model.safetensors", {"format": "pt"})
    if config.model_type == "hy_v4":  # transformers 5.17 writes names that no release has
        made = {re.sub(r"mlp(.*)\.linear_gate", r"mlp\1.gate_proj", re.sub(r"hc_pre\.(hc_(?:attn|mlp)_layer)", r"\1.hc_pre", n)).replace("hc_pre.hc_head.", "hc_head."): t for n, t in tensors(folder).items()}
        save_file(made, folder / "model.safetensors", {"format": "pt"})
    if config.model_type == "deepseek_v4":  # transformers 5.17 writes some names that no release has
        made = {re.sub(r"^model\.", "", n.replace("embed_tokens", "embed").replace("hc_head.hc_", "hc_head_").replace("attn.norm", "attn.kv_norm")): t for n, t in tensors(folder).items()}
        save_file(made, folder / "model.safetensors", {"format": "pt"})
    if config.model_type == "minimax_m3_vl":  # transformers 5.17 writes MLPs without experts under another name than releases
        made = {re.sub(r"block_sparse_moe\.(\w+_proj|fc\d)\.", r"mlp.\1.", n): t for n, t in tensors(folder).items()}
        save_file(made, folder / "model.safetensors", {"format": "pt"})
    if config.model_type == "kimi_k25":  # transformers 5.17 writes names that no release has
        made = {re.sub(r"^model\.(mm_projector)", r"\1", n.replace("language_model.model.blocks.", "language_model.model.layers.")): t for n, t in tensors(folder).items()}
        save_file(made, folder / "model.safetensors", {"format": "pt"})
    if config.model_type == "olmo_hybrid":
        split_convolutions(folder, config)
    if family == "qwen2_5_omni":
        torch.save({}, folder / "spk_dict.pt")  # transformers does not load the model without voices
    made = tensors(folder)
    if renamed:
        release(folder, renamed)
    if any(TWICE.match(n) for n in made):
        save_file({TWICE.sub("language_model.model.", n): t for n, t in made.items()}, folder / "model.safetensors", {"format": "pt"})
    return model


def split_convolutions(folder, config):
    """Stores the convolutions of q, k and v as in released files. (transformers 5.17 splits their
    tensor into three equal parts, although q, k and v have different sizes.)"""
    made = tensors(folder)
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    for name in [n for n in made if n.endswith(".q_conv1d.weight")]:
        whole = [name.replace(".q_", f".{x}_") for x in "qkv"]
        made |= {n: t.clone() for n, t in zip(whole, torch.cat([made[n] for n in whole]).tensor_split([keys, 2 * keys]))}
    save_file(made, folder / "model.safetensors", {"format": "pt"})


def add_mtp(folder):
    """Adds a block for multi-token prediction as in released files of Qwen3.5: one more layer with
    attention, and the tensors before and after that layer. No class of transformers has this
    block."""
    made = tensors(folder)
    last = max(int(re.search(r"layers\.(\d+)\.", n)[1]) for n in made if ".language_model.layers." in n)
    block = {re.sub(r"^.*layers\.\d+", "mtp.layers.0", n): t.clone() for n, t in made.items() if f".language_model.layers.{last}." in n}
    width = block["mtp.layers.0.input_layernorm.weight"].shape[0]
    block |= {f"mtp.{n}.weight": torch.randn(width) for n in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    save_file(made | block | {"mtp.fc.weight": torch.randn(width, 2 * width)}, folder / "model.safetensors", {"format": "pt"})


def calibration(path):
    generator = torch.Generator().manual_seed(2)
    rows = torch.randint(1, 256, (16, 128), generator=generator).tolist()
    path.write_text("".join(json.dumps({"input_ids": r}) + "\n" for r in rows))
    return rows


def recipe(path, gptq, ignore=()):
    kind = "GPTQModifier" if gptq else "QuantizationModifier"
    path.write_text(f"""quant_stage:
  quant_modifiers:
    {kind}:
      ignore: {json.dumps(["re:.*lm_head", *ignore])}
      config_groups:
        group_0:
          targets: [Linear]
          weights: {{num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}}
""")


def tensors(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as f:
            out |= {name: f.get_tensor(name) for name in f.keys()}
    return out


def nibbles(t):
    return torch.stack([(t >> s) & 15 for s in range(0, 32, 4)])


# Two names of each tensor that has all experts of a layer: the name in most families, and the name
# in Granite.
STACKS = {"gate_up_proj": ("experts.gate_up_proj", "input_linear.weight"), "down_proj": ("experts.down_proj", "output_linear.weight")}


def expert_rows(made, stem, rows, columns):
    """Returns a view of the rows of an expert's weight [rows, columns] in the tensor with all
    experts."""
    found = re.fullmatch(r"(.*)\.experts\.(\d+)\.(gate|up|gate_up|down)_proj\.weight", stem)
    stack = STACKS["down_proj" if found[3] == "down" else "gate_up_proj"]
    whole = next(made[f"{found[1]}.{n}"] for n in stack if f"{found[1]}.{n}" in made)[int(found[2])]
    parts = 1 + (found[3] in ("gate", "up"))
    if whole.shape != (rows * parts, columns) or found[3] == "gate_up":
        whole = whole.T
    return whole[rows if found[3] == "up" else 0 :][:rows]


def rounded(source, ours, out):
    """Writes the source with the dequantized weights of `ours`."""
    made = tensors(source)
    packed = tensors(ours)
    for name in [n for n in packed if n.endswith("weight_packed")]:
        # replaces vLLM's names of the codes of gpt-oss by the names in the source
        stem = name.replace(".w13_", ".gate_up_proj.").replace(".w2_", ".down_proj.").removesuffix("_packed")
        codes, scale = nibbles(packed[name]), packed[f"{stem}_scale"]
        codes = codes.permute(1, 2, 0).flatten(1)[:, : int(packed[f"{stem}_shape"][1])] - 8
        w = (codes.to(scale.dtype).unflatten(1, (scale.shape[1], -1)) * scale[..., None]).flatten(1)
        if ".experts." not in stem or stem in made:
            if made[stem].shape != w.shape:
                raise ValueError(f"codes of {stem} have another shape than the weight")
            made[stem] = w
        else:
            expert_rows(made, stem, *w.shape).copy_(w)
    out.mkdir()
    shutil.copy(source / "config.json", out)
    save_file(made, out / "model.safetensors", {"format": "pt"})


def speaker(model):
    """Returns the part of an omni model that computes logits; other models are returned as they
    are. An omni model has no forward pass itself, so this function runs the hooks that unpack its
    codes."""
    if hasattr(model, "thinker"):
        for hook in list(model._forward_pre_hooks.values()):
            hook(model, ())
    return getattr(model, "thinker", model)


def load(folder, auto, **more):
    """Returns the model that transformers loads from a directory, and the names that it misses,
    does not know, or finds with another shape."""
    if (folder / "reference.json").exists():
        folder = restore(folder, folder.with_name(folder.name + "_reference"))
    kind = auto._model_mapping[type(transformers.AutoConfig.from_pretrained(folder))]
    more = {"dtype": "auto", "output_loading_info": True} | more
    if "from_pretrained" in vars(kind):  # from_pretrained of Qwen2.5-Omni returns no info
        model, info = transformers.PreTrainedModel.from_pretrained.__func__(kind, folder, **more)
    else:
        model, info = auto.from_pretrained(folder, **more)
    return model.eval(), [name for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in sorted(map(str, info[kind]))]


def reload(source, packed, auto):
    """Loads the output with transformers. Returns lines about faults (missing or unknown tensors,
    or logits that differ from those of the rounded weights), and a line with numbers."""
    dense = packed.with_name(packed.name + "_rounded")
    try:
        rounded(source, packed, dense)
        ids = torch.arange(1, 65)[None]
        with torch.no_grad():
            models = [load(folder, auto) for folder in (source, dense, packed)]
            a, b, c = [speaker(model)(input_ids=ids).logits.float() for model, _ in models]
    except Exception as e:
        return [f"transformers does not load or run it: {type(e).__name__} {str(e)[:200]}"], ""
    wrong, off, further = models[2][1], float((a - b).norm() / a.norm()), float((b - c).norm() / a.norm())
    faults = [f"transformers does not find or does not know {name}" for name in wrong[:3]] + ([] if further < 0.1 * off else [f"logits differ by {further:.4f} of the source's"])
    return faults, f"transformers misses {len(wrong)} tensors; rounding moves the logits by {off:.3f}, loading the codes by {further:.4f}"


def without_defaults(config, defaults):
    """Returns the members of config.json that differ from the defaults of the configuration
    class."""
    keep = ("model_type", "architectures", "dtype")
    out = {}
    for key, value in config.items():
        default = defaults.get(key)
        if key in keep or key not in defaults:
            out[key] = value
        elif isinstance(value, dict) and isinstance(default, dict) and key.endswith("_config"):
            out[key] = without_defaults(value, default)
        elif value != default:
            out[key] = value
    return out


def strip(source, bare):
    """Copies a checkpoint without the keys of config.json that have their defaults."""
    shutil.copytree(source, bare)
    config = json.loads((source / "config.json").read_text())
    if (source / "reference.json").exists():
        family = next(f for f in RENAMED.values() if f.architecture == config["architectures"][0] and f.keys.items() <= config.items())
        (bare / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in family.bare}))
        return
    kind = type(transformers.AutoConfig.from_pretrained(source))
    defaults = json.loads(kind().to_json_string(use_diff=False))
    for key in [k for k, v in config.items() if k.endswith("_config") and isinstance(v, dict)]:
        inner = transformers.AutoConfig.for_model(config[key]["model_type"]) if config[key].get("model_type") else None
        defaults[key] = json.loads(inner.to_json_string(use_diff=False)) if inner else {}
    (bare / "config.json").write_text(json.dumps(without_defaults(config, defaults)))


def older(source, old):
    """Copies a checkpoint with a config.json as transformers 4 wrote it: rope_theta and
    partial_rotary_factor outside of rope_parameters, and torch_dtype."""
    def of(config):
        rope = config.get("rope_parameters")
        out = {k: of(v) if isinstance(v, dict) and k.endswith("_config") else v for k, v in config.items()}
        if "dtype" in out:
            out["torch_dtype"] = out.pop("dtype")
        if isinstance(rope, dict) and not any(isinstance(v, dict) for v in rope.values()):
            del out["rope_parameters"]
            outside = ("rope_theta", "partial_rotary_factor")
            out |= {k: rope[k] for k in outside if k in rope}
            rest = {k: v for k, v in rope.items() if k not in outside}
            out["rope_scaling"] = None if rest == {"rope_type": "default"} else rest
        return out
    shutil.copytree(source, old)
    (old / "config.json").write_text(json.dumps(of(json.loads((source / "config.json").read_text()))))
