#!/usr/bin/env python3
"""vllm_families.py - makes tiny random checkpoints of the families of compare_families.py, in sizes
that vLLM's CPU kernels support. This program rounds them to W4 in groups of 32. vLLM must load the
outputs and generate tokens with them.

usage: vllm_families.py BINARY FOLDER VLLM_PYTHON [--record] [FAMILY...]
       in the environment of compare_families.py; VLLM_PYTHON: Python of an environment with vLLM
       for CPUs. Without FAMILY, it tries all text models of tiny_families.py

vLLM loads only the text model of a model with towers (language_model_only). If neither transformers
nor vLLM has a class for the config.json of a family of renamed_families.py, the class of another
family reads it. Keys of released files, which transformers does not write, are added (RELEASED).
Tensors of towers with other names than in released files are left out (TOWERS).

The Linears of experts are in ignore, because vLLM has few CPU kernels for experts with codes
(vllm_experts.py). If vLLM also refuses the dense source, the script prints this, and the family
does not fail. Exits with 1 if vLLM loads the source but not the output, except for the families of
EXCEPT."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import compare_families
import proofs
import tiny_families
from renamed_families import RENAMED

SIZES = dict(hidden_size=256, intermediate_size=512, head_dim=64, vocab_size=512, max_position_embeddings=1024, ffn_dim=512,
             word_embed_proj_dim=256, global_head_dim=64, moe_intermediate_size=128, shared_expert_intermediate_size=128,
             kv_lora_rank=512, q_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64, linear_num_key_heads=16,
             linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128, n_embd=256, d_model=256, indexer_head_dim=64)
# Widths of the outputs of towers. A text model reads these outputs.
OUTPUTS = dict(out_hidden_size=256, output_dim=256, projection_dim=256, output_proj_dims=256, text_hidden_size=256, vision_output_dim=256)
TEXTS = ("text_config", "thinker_config")
GRANITE = dict(mamba_n_heads=32, shared_intermediate_size=512)
# Sizes that vLLM's kernels need, and keys of config.json that vLLM reads from released files
MORE = {"bloom_6": dict(hidden_size=384), "mpt_6": dict(d_model=384), "mamba2": dict(num_heads=32, head_dim=16), "granitemoehybrid": GRANITE, "granitemoehybrid_moe": GRANITE, "bamba": dict(mamba_n_heads=32),
        **dict.fromkeys(("falcon_h1", "falcon_h1_norm"), dict(mamba_n_heads=32, mamba_d_ssm=512)), **dict.fromkeys(("zamba2", "zamba2_plain"), dict(n_mamba_heads=32)),
        "deepseek_v3": dict(topk_method="noaux_tc"), "minimax_m2": dict(rotary_dim=64), "bailing_moe": dict(shared_expert_intermediate_size=256),
        "gpt_oss": dict(rope_parameters=compare_families.FAMILIES["gpt_oss"]["rope_parameters"] | dict(beta_fast=32.0, beta_slow=1.0))}
CHAT = dict(model_type="llava", force_image_size=8, select_layer=-1, ps_version="v2", downsample_ratio=0.5, min_dynamic_patch=1, max_dynamic_patch=1, dynamic_image_size=True, use_thumbnail=False,
            vision_config=dict(model_type="clip_vision_model", image_size=8, patch_size=4, qkv_bias=False, qk_normalization=False, norm_type="layer_norm"))
LFM2 = dict(block_dim=256, conv_dim=256)
# Members of config.json that vLLM reads from released files, and that transformers does not write
RELEASED = dict.fromkeys(("internvl_chat", "skywork_chat", "h2ovl_chat", "nvlm_d", "eagle_2_5_vl"), CHAT) | {
    "glm4_moe_lite": dict(first_k_dense_replace=1), "longcat_flash": dict(mla_scale_q_lora=True, mla_scale_kv_lora=True, zero_expert_type="identity"),
    "voxtral": dict(audio_config=dict(downsample_factor=4, window_size=400, hop_length=160, sampling_rate=16000)),
    "qianfan_ocr": dict(vision_config=dict(image_size=8, patch_size=4)),
    "phi3_v": dict(img_processor=dict(name="clip_vision_model", image_dim_out=64, num_img_tokens=4), embd_layer=dict(use_hd_transform=True, with_learnable_separator=True, hd_transform_order="sub_glb")),
    "phi4mm": dict(img_processor={}, audio_processor=dict(name="cascades", config=dict(input_size=80, chunk_size=-1, left_chunk=18, attention_dim=64, attention_heads=4, linear_units=128, num_blocks=1,
                                                                                       input_layer="nemo_conv", time_reduction=8, relative_attention_bias_args=dict(type="t5"), encoder_embedding_config=dict(input_size=80), nemo_conv_settings=dict(conv_channels=64))), embd_layer=dict(audio_embd_layer=dict(embedding_cls="audio", compression_rate=8))),
    "opencua": dict(vision_config=dict(spatial_merge_size=2, temporal_patch_size=2, patch_size=4, in_channels=3, depth=1, hidden_size=64, num_heads=4, intermediate_size=128, out_hidden_size=256, window_size=16,
                                       fullatt_block_indexes=[0], hidden_act="silu")),
    "ovis": dict(hidden_size=256, visual_tokenizer_config=dict(model_type="siglip_visual_tokenizer", hidden_stride=1, backbone_config=dict(CHAT["vision_config"], model_type="siglip_vision_model"))),
    **dict.fromkeys(("bee", "r"), dict(model_type="llava_onevision", vision_config=dict(model_type="siglip_vision_model", image_size=8, patch_size=4))), "qwen3_omni_moe": dict(thinker_config=dict(text_config=dict(tie_word_embeddings=False), vision_config=dict(image_size=8, apply_vit_abs_pos_embed=True))),
    **dict.fromkeys(("lfm2", "lfm2_full"), LFM2), "lfm2_vl": dict(text_config=LFM2), "glm4v_moe": dict(text_config=dict(use_qk_norm=False)), "qwen3_vl_moe": dict(text_config=dict(norm_topk_prob=True)),
    "kimi_vl": dict(text_config=dict(topk_method="noaux_tc")),
    "mimo_v2_flash": dict(hybrid_layer_pattern=[0, 1], moe_layer_freq=[0, 1], layernorm_epsilon=1e-5, attention_bias=False, sliding_window_size=8, swa_head_dim=64, swa_v_head_dim=64, swa_num_attention_heads=4,
                          swa_num_key_value_heads=2, add_full_attention_sink_bias=False, add_swa_attention_sink_bias=True),
    "phimoe": dict(architectures=["PhiMoEForCausalLM"]), "kimi_k25": dict(architectures=["KimiK25ForConditionalGeneration"]), "lighton_ocr": dict(architectures=["LightOnOCRForConditionalGeneration"], vision_feature_layer=-1, projector_hidden_act="gelu", multimodal_projector_bias=False),
    "afmoe": dict(score_func="sigmoid", route_norm=True), "hy_v3": dict(expert_hidden_dim=128, route_norm=True, qk_norm=True), "minimax_m2": dict(scoring_func="sigmoid", use_routing_bias=True), "bailing_moe_v2": dict(embedding_dropout=0.0), "bailing_moe": dict(embedding_dropout=0.0, head_dim=64),
}
# This pattern matches the tensors of towers of some families. The names of these tensors differ
# from the names in released files, and vLLM refuses names that it does not know. The tensors are
# removed from the checkpoint, because vLLM loads no towers here.
TOWERS = dict.fromkeys(("bee", "r", "opencua"), r"(model\.)?(vision_tower|multi_modal_projector)\.")
# reasons why vLLM 0.32 loads the source, but not the output
EXCEPT = dict.fromkeys(("bloom", "bloom_6"), "vLLM reorders the shape of a packed query_key_value as if it were a weight") | {
    "telechat2": "vLLM splits the shape of a packed key_value as if it were a weight"}
RECIPE = r"""quant_stage:
  quant_modifiers:
    QuantizationModifier:
      ignore: ["re:.*lm_head", "re:.*embed_out", "re:.*experts\\.[0-9].*", "re:.*altup\\..*_coefs", "re:output(_layer)?$", "re:.*[.]output_layer$"]
      config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}
"""
LOADS = "loads"
KNOWN = ("chatglm", "chatglm_generation", "kimi_vl", "ovis")  # renamed families whose config.json vLLM reads
WORDS = ("phi3_v", "phi4mm")  # they have no towers here, but vLLM's class needs a tokenizer
MARKS = ("0", "<img>", "</img>", "<IMG_CONTEXT>", "<image>", "<video>", "<tile>", "<|vision_pad|>")  # words of a tokenizer
UNSEEN = ("attn_config", "ffn_config")  # members that are no towers
LOAD = """
import os
import sys
import traceback

import torch
from vllm import LLM, SamplingParams
from vllm.model_executor.models import registry

registry._run_in_subprocess = lambda inspect: inspect()  # that starts a Python for each class


def generate(folder, more):
    torch.cpu._init_amx()  # without it, the first tile instruction ends the process
    model = LLM(folder, dtype="bfloat16", enforce_eager=True, max_model_len=256, max_num_seqs=4, **more)
    sampling = SamplingParams(temperature=0, max_tokens=8, detokenize=False, ignore_eos=True)
    made = model.generate([{"prompt_token_ids": [5, 17, 99, 3]}], sampling, use_tqdm=False)[0].outputs[0].token_ids
    assert len(made) == 8, made


for line in sys.stdin:
    folder, kind = line.split()
    if not os.fork():  # a process in which a model failed may refuse all others
        said = "loads"
        try:
            generate(folder, dict(language_model_only=kind != "text", skip_tokenizer_init=kind != "words"))
        except BaseException as e:
            traceback.print_exc()
            said = "fails: " + type(e).__name__ + " " + " ".join(str(e).split())[:160]
        print("\\nRESULT " + said, flush=True)
        os._exit(0)
    code = os.wait()[1]
    if code:
        print(f"\\nRESULT fails: the process ends with exit code {code}", flush=True)
"""


def sized(members):
    """Returns the members of a model, its text model and its towers, with the sizes that vLLM's
    kernels need."""
    out = {k: SIZES.get(k, v) for k, v in members.items()}
    for key, v in members.items():
        if key in TEXTS:
            out[key] = sized(v)
        elif key == "rope_parameters" and "mrope_section" in v:
            out[key] = v | dict(mrope_section=[4 * n for n in v["mrope_section"]])
        elif key.endswith("_config") and isinstance(v, dict):
            out[key] = {k: OUTPUTS.get(k, w) for k, w in v.items()} | (dict(hidden_size=256) if "embed_dim" in v else {})
    return out


def make(family, folder):
    if family in RENAMED:
        RENAMED[family].members = sized(RENAMED[family].members) | MORE.get(family, {})
    else:
        compare_families.FAMILIES[family] = sized(compare_families.FAMILIES[family]) | MORE.get(family, {})
    compare_families.make(family, folder, torch.bfloat16, 1)


def merged(members, more):
    """Returns `members` with the members `more`, and merges members that both have."""
    return members | {k: merged(members.get(k, {}), v) if isinstance(v, dict) else v for k, v in more.items()}


def stand_in(folder, source, family):
    """Writes keys of released files into config.json. A family without a class gets the model_type
    of its reference. The reference's class in transformers then reads the keys, in place of the
    Python file that releases have."""
    config = json.loads((folder / "config.json").read_text())
    if family in RENAMED and family not in KNOWN:
        reference = json.loads((source / "reference.json").read_text())["config"]
        config = reference | config | {"model_type": reference["model_type"]}
    (folder / "config.json").write_text(json.dumps(merged(config, RELEASED.get(family, {}))))
    if family in TOWERS:
        kept = {n: t for n, t in tiny_families.tensors(folder).items() if not re.match(TOWERS[family], n)}
        save_file(kept, folder / "model.safetensors", {"format": "pt"})


class Engine:
    """One process with vLLM, which starts a process for each checkpoint."""

    def __init__(self, python, log):
        libs = [str(p) for p in pathlib.Path(python).absolute().parent.parent.glob("lib/python3*/site-packages/nvidia/*/lib")]
        env = os.environ | dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR",
                                LD_LIBRARY_PATH=":".join(libs + [os.environ.get("LD_LIBRARY_PATH", "")]))
        self.run = subprocess.Popen([python, "-c", LOAD], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def loads(self, folder, kind):
        """Returns whether vLLM generates tokens from the checkpoint, and its error. `kind`: text,
        towers, or words (towers, and vLLM's class needs a tokenizer)."""
        self.run.stdin.write(f"{folder} {kind}\n")
        self.run.stdin.flush()
        for line in self.run.stdout:
            if line == "RESULT loads\n":
                return True, ""
            if line.startswith("RESULT "):
                return False, line[len("RESULT fails: "):].strip()
        return False, f"the process ends with exit code {self.run.wait()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary"), parser.add_argument("folder", type=pathlib.Path), parser.add_argument("vllm_python")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("families", nargs="*")
    args = parser.parse_intermixed_args()
    text = [f for f, members in compare_families.FAMILIES.items() if not {"text_config", "thinker_config", "vision_config"} & members.keys()]
    bad = 0
    args.folder.mkdir(parents=True, exist_ok=True)
    engine = Engine(args.vllm_python, open(args.folder / "vllm.log", "w"))
    for family in args.families or text:
        try:
            good, said = one(args, engine, family)
        except Exception as e:  # a failure of transformers itself
            good, said = True, f"not made: {type(e).__name__} {str(e)[:160]}"
        bad += not good
        print(f"{family:24} {said}", flush=True)
        if args.record:
            proofs.change("vllm", family, True if said == LOADS else None)
    return bad > 0


def one(args, engine, family):
    """Tries one family. Returns two values: True if vLLM takes the output or also refuses the
    source, and a text with the result."""
    home = args.folder / family
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / "recipe.yaml").write_text(RECIPE)
    make(family, home / "source")
    ours = subprocess.run([args.binary, "--model", home / "source", "--recipe", home / "recipe.yaml", "--progress", "none",
                           "--output", home / "output"], capture_output=True, text=True)
    if ours.returncode:
        return False, f"not rounded: {ours.stderr.strip().splitlines()[0]}"
    members = (RENAMED[family] if family in RENAMED else argparse.Namespace(members=compare_families.FAMILIES[family])).members
    towers = any(k.endswith("_config") and k not in UNSEEN for k in members)
    kind = "words" if family in WORDS or (towers and family in RENAMED) else "towers" if towers else "text"
    for folder in (home / "output", home / "source"):
        stand_in(folder, home / "source", family)
        if kind == "words":
            words = Tokenizer(WordLevel({w: i for i, w in enumerate(MARKS)} | {str(i): i for i in range(len(MARKS), 512)}, unk_token="0"))
            transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0").save_pretrained(folder)
    whole, why = engine.loads(home / "output", kind)
    if whole:
        return True, LOADS
    dense, why_dense = engine.loads(home / "source", kind)
    if dense and family in EXCEPT:
        return True, f"does not load, its source does: {EXCEPT[family]}"
    return not dense, f"DOES NOT LOAD, its source does: {why}" if dense else f"vLLM refuses its source, too: {why_dense}"


if __name__ == "__main__":
    sys.exit(main())
