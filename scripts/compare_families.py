#!/usr/bin/env python3
"""compare_families.py - compares tiny random checkpoints of many families, made by transformers'
own classes and compressed by LLM Compressor and by this program.

usage: compare_families.py BINARY FOLDER [--gptq [--draws N]] [FAMILY...]
       in an environment with compressed-tensors, llmcompressor, safetensors, torch, transformers
  without --gptq   round to nearest, W4 in groups of 32, BF16: tensor by tensor; norms must be
                   the source's
  --gptq           GPTQ W4 in groups of 32, F32, 16 samples of 128 tokens, pipeline basic: share
                   of codes that differ, over weights of N seeds (default 1)

Without --gptq transformers loads each output, too. If an output differs from LLM Compressor's,
transformers must miss no tensor and give the logits of the source with its weights rounded.
Checkpoints and outputs stay in FOLDER/FAMILY. Exit code 1 if a family differs in another way than
DENSE and ACCEPTED tell."""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

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
GEMMA4 = dict(TINY, global_head_dim=16, hidden_size_per_layer_input=0, layer_types=["sliding_attention", "full_attention"], sliding_window=16)
FAMILIES = {
    "llama": TINY, "mistral": TINY, "ministral3": TINY, "qwen2": PLAIN, "qwen3": TINY, "gemma2": TINY, "gemma3_text": TINY,
    "olmo2": PLAIN, "olmo3": PLAIN, "granite": PLAIN, "smollm3": TINY, "stablelm": PLAIN, "phi3": PLAIN, "glm4": TINY,
    "mixtral": dict(TINY, **FEW), "qwen2_moe": dict(TINY, **MOE), "qwen3_moe": dict(TINY, **MOE), "glm4_moe": dict(TINY, **MOE),
    "deepseek_v2": dict(TINY, **MOE, **{k: v for k, v in MLA.items() if k != "num_key_value_heads"}) | dict(num_key_value_heads=4),
    "deepseek_v3": dict(TINY, **MOE) | MLA,
    "gpt_oss": dict(TINY, **FEW),
    "minimax_m2": dict(TINY, **FEW),
    "hunyuan_v1_moe": dict(TINY, num_experts=4, moe_topk=2),
    "qwen3_next": dict(TINY, **MOE, **DELTA),
    "qwen3_5_text": dict(TINY, **DELTA),
    "qwen3_5_moe_text": dict(TINY, **MOE, **DELTA),
    "granitemoehybrid": dict(PLAIN, **(MOE | dict(num_local_experts=0)), **SSM, layer_types=["mamba", "attention"],
                             shared_intermediate_size=64),
    "granitemoehybrid_moe": dict(PLAIN, **FEW, **SSM, model_type="granitemoehybrid", layer_types=["mamba", "attention"],
                                 shared_intermediate_size=64),
    "lfm2": dict(PLAIN, layer_types=["conv", "full_attention"]),
    "jamba": dict(PLAIN, num_experts=4, num_experts_per_tok=2, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
                  use_mamba_kernels=False, mamba_d_state=16, mamba_dt_rank=32),
    "mamba2": dict(N, hidden_size=64, num_hidden_layers=2, state_size=16, num_heads=8, head_dim=16, n_groups=1),
    "nemotron_h": dict(TINY, **MOE, layers_block_type=["mamba", "attention", "mlp", "moe"], mamba_num_heads=8, mamba_head_dim=16,
                       ssm_state_size=16, n_groups=1, num_hidden_layers=4, moe_shared_expert_intermediate_size=64) | dict(moe_latent_size=None),
    "gpt_neox": PLAIN, "opt": dict(PLAIN, ffn_dim=128, word_embed_proj_dim=64), "falcon": PLAIN,
    "gpt2": dict(N, n_embd=64, n_layer=2, n_head=4, n_positions=256),
    "qwen3_moe_stacked": dict(TINY, **MOE, model_type="qwen3_moe"), "qwen3_5_moe_stacked": dict(TINY, **MOE, **DELTA, model_type="qwen3_5_moe_text"),
    "gemma4_text": GEMMA4,
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
}
# Intended differences from upstream: the reason, and the modules that stay dense; everything else
# must be equal, and the whole must load. vLLM creates the modules of UNREAD without a parameter for
# codes, so that upstream's own output does not load there.
UNREAD = "equal but for modules that vLLM reads dense, where upstream's does not load"
DENSE = dict.fromkeys(("qwen2_moe", "qwen3_next", "qwen3_5_moe_text", "qwen3_5_moe_stacked"), (UNREAD, r"\.shared_expert_gate$")) | {
    "llama4": (UNREAD, r"\.router$|\bvision_model\.|\bmulti_modal_projector\."), "mistral3": (UNREAD, r"\.merging_layer$"), "jamba": (UNREAD, r"\.(router|x_proj|dt_proj)$"),
    "hunyuan_v1_moe": ("equal but for a router, which stays dense", r"\.gate\.wg$"),
    "gemma4": ("equal but for what sees and hears, which stays dense", r"\.(vision_tower|audio_tower|embed_vision|embed_audio)\."),
}
ACCEPTED = {
    "falcon": "upstream writes scales beside dense weights",
    "gpt2": "there is no Linear: refused, where upstream writes a copy",
}
EQUAL = "equal"
WHOLE = "loads whole, where upstream's does not"
# A family in another form: with experts, with experts in one tensor, with shared keys and values,
# with towers.
AGAIN = ("granitemoehybrid_moe", "gemma4_moe", "qwen3_moe_stacked", "qwen3_5_moe_stacked", "gemma4_shared", "gemma4")
AUTO = (transformers.AutoModelForImageTextToText, transformers.AutoModelForCausalLM)


def make(family, folder, dtype, seed):
    """Makes a checkpoint whose norms, biases and gates differ from those of a new model, which
    would hide faults."""
    members = dict(FAMILIES[family])
    config = transformers.AutoConfig.for_model(members.pop("model_type", family), **members)
    torch.manual_seed(seed)
    model = next(auto for auto in AUTO if type(config) in auto._model_mapping).from_config(config, dtype=dtype)
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + [b for b in model.named_buffers() if b[0].endswith("bias")]:
            if p.dim() == 1:
                p.add_(0.2 * torch.randn(p.shape).to(p.dtype))
            elif name.endswith(("weight", "proj")):
                p.copy_((torch.randn(p.shape) * p.shape[-1] ** -0.5).to(p.dtype))
    model.save_pretrained(folder, save_original_format=not family.endswith("_stacked"))
    return model


def calibration(path):
    generator = torch.Generator().manual_seed(2)
    rows = torch.randint(1, 256, (16, 128), generator=generator).tolist()
    path.write_text("".join(json.dumps({"input_ids": r}) + "\n" for r in rows))
    return rows


def recipe(path, gptq):
    kind = "GPTQModifier" if gptq else "QuantizationModifier"
    path.write_text(f"""quant_stage:
  quant_modifiers:
    {kind}:
      ignore: ["re:.*lm_head"]
      config_groups:
        group_0:
          targets: [Linear]
          weights: {{num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}}
""")


def upstream(folder, out, rows, auto):
    from datasets import Dataset
    from llmcompressor import oneshot
    from loguru import logger
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    logger.remove()
    model = auto.from_pretrained(folder, dtype="auto")
    more = {}
    if rows:
        data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(r) for r in rows]})
        # required, and not used: rows have input_ids
        words = Tokenizer(WordLevel({str(i): i for i in range(256)}, unk_token="0"))
        more = dict(dataset=data, processor=transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0"), num_calibration_samples=len(rows), max_seq_length=128, shuffle_calibration_samples=False, pipeline="basic")
    oneshot(model=model, recipe=str(folder.parent / "recipe.yaml"), **more)
    model.save_pretrained(out, save_compressed=True)


def tensors(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as f:
            out |= {name: f.get_tensor(name) for name in f.keys()}
    return out


def nibbles(t):
    return torch.stack([(t >> s) & 15 for s in range(0, 32, 4)])


def compare(source, theirs, ours, gptq, dense):
    """Returns lines on the differences, except in modules that match `dense`; whether there are
    such modules; the number of codes that differ, and of all."""
    lines = []
    source = {n: t for n, t in source.items() if not n.endswith((".experts.gate_up_proj", ".experts.down_proj")) or n in ours}
    kept = {n for n in theirs.keys() ^ ours.keys() if dense and re.search(dense, n.rpartition(".")[0])}
    if gptq:  # upstream rounds modules that no text reaches; this program leaves them dense
        print(f"    {sum(n.endswith('weight_packed') for n in theirs.keys() - ours.keys())} modules have codes upstream alone")
    else:
        lines += [f"only upstream: {name}" for name in sorted(theirs.keys() - ours.keys() - kept)]
        lines += [f"only here: {name}" for name in sorted(ours.keys() - theirs.keys() - (kept & source.keys()))]
    codes = wrong = 0
    for name, b in sorted(ours.items()):
        if name in source:
            if b.shape != source[name].shape or not torch.equal(b, source[name]):
                lines.append(f"not the source's: {name}")
        elif name not in theirs:
            continue
        elif gptq and name.endswith("weight_packed"):
            codes, wrong = codes + nibbles(b).numel(), wrong + int((nibbles(theirs[name]) != nibbles(b)).sum())
        elif not gptq and (theirs[name].shape != b.shape or theirs[name].dtype != b.dtype or not torch.equal(theirs[name], b)):
            lines.append(f"other values: {name}")
    if gptq:
        print(f"    {wrong} of {codes} codes differ")
    return lines, bool(kept), (wrong, codes)


def rounded(source, ours, out):
    """Writes the source with the weights that the codes of `ours` stand for."""
    made = tensors(source)
    packed = tensors(ours)
    for name in [n for n in packed if n.endswith(".weight_packed")]:
        stem = name.removesuffix("_packed")
        codes, scale = nibbles(packed[name]), packed[f"{stem}_scale"]
        codes = codes.permute(1, 2, 0).flatten(1)[:, : int(packed[f"{stem}_shape"][1])] - 8
        w = (codes.to(scale.dtype).unflatten(1, (scale.shape[1], -1)) * scale[..., None]).flatten(1)
        expert = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", stem)
        if stem in made or not expert:
            made[stem] = w
            continue
        whole = made[f"{expert[1]}.{'down_proj' if expert[3] == 'down' else 'gate_up_proj'}"][int(expert[2])]
        turned = whole.shape[0] != w.shape[0] * (1 + (expert[3] != "down")) or whole.shape[1] != w.shape[1]
        if turned:
            whole = whole.T
        whole[len(w) if expert[3] == "up" else 0 :][: len(w)] = w
    out.mkdir()
    shutil.copy(source / "config.json", out)
    save_file(made, out / "model.safetensors", {"format": "pt"})


def load(folder, auto):
    """Returns the model that transformers loads from a directory, and the names that it misses."""
    model, info = auto.from_pretrained(folder, dtype="auto", output_loading_info=True)
    return model.eval(), sorted(info["missing_keys"])


def reload(source, packed, auto):
    """Returns lines on faults when transformers loads the output: missing tensors, or logits that
    are not those of the rounded weights."""
    dense = packed.with_name(packed.name + "_rounded")
    try:
        rounded(source, packed, dense)
        ids = torch.arange(1, 65)[None]
        with torch.no_grad():
            models = [load(folder, auto) for folder in (source, dense, packed)]
            a, b, c = [model(input_ids=ids).logits.float() for model, _ in models]
    except Exception as e:
        return [f"transformers does not load or run it: {type(e).__name__} {str(e)[:200]}"]
    missing, off, further = models[2][1], float((a - b).norm() / a.norm()), float((b - c).norm() / a.norm())
    print(f"    transformers misses {len(missing)} tensors; rounding moves logits by {off:.3f}, reading its codes by {further:.4f}")
    return [f"transformers misses {name}" for name in missing[:3]] + ([] if further < 0.1 * off else [f"logits are off by {further:.4f}"])


def one(family, root, binary, gptq, seed):
    """Returns the verdict, None if the difference is not expected; lines on the differences; the
    number of codes that differ, and of all."""
    home = root / family if seed == 1 else root / f"{family}_{seed}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    model = make(family, home / "source", torch.float32 if gptq else torch.bfloat16, seed)
    auto = next(a for a in AUTO if type(model.config) in a._model_mapping)
    rows = calibration(home / "data.jsonl") if gptq else None
    recipe(home / "recipe.yaml", gptq)
    lines = []
    try:
        upstream(home / "source", home / "upstream", rows, auto)
    except Exception as e:  # a failure of upstream is a result
        lines.append(f"upstream fails: {type(e).__name__} {str(e)[:200]}")
    data = ["--dataset", home / "data.jsonl", "--max-seq-length", "128", "--num-calibration-samples", "16", "--pipeline", "basic"] if gptq else []
    command = [binary, "--model", home / "source", "--recipe", home / "recipe.yaml", *data, "--output", home / "ours", "--progress", "none"]
    run = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    (home / "ours.log").write_text(run.stdout + run.stderr)
    if run.returncode:
        lines.append(f"fails here: {run.stderr.strip()[:300]}")
    if lines:
        return ACCEPTED.get(family), lines, (0, 0)
    why, dense = DENSE.get(family, (None, None))
    lines, kept, codes = compare(tensors(home / "source"), tensors(home / "upstream"), tensors(home / "ours"), gptq, dense)
    if gptq:
        return None if lines else EQUAL, lines, codes
    here = reload(home / "source", home / "ours", auto)
    if not lines and not kept:
        return EQUAL, here, codes
    if not lines and not here:
        return why, [], codes
    if not here and reload(home / "source", home / "upstream", auto):
        return WHOLE, [], codes
    return ACCEPTED.get(family), lines + here, codes


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binary", type=pathlib.Path)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--gptq", action="store_true")
    p.add_argument("--draws", type=int, default=1)
    p.add_argument("families", nargs="*")
    a = p.parse_intermixed_args()
    said, names = {}, a.families or list(FAMILIES)
    for family in names:
        draws = [one(family, a.folder, a.binary.resolve(), a.gptq, seed) for seed in range(1, a.draws + 1)]
        wrong, codes = (sum(d[2][k] for d in draws) for k in (0, 1))
        verdict, lines = next((d[:2] for d in draws if not d[0]), draws[0][:2])
        if verdict == EQUAL and a.gptq and (wrong * 10000 > codes or not codes):
            verdict, lines = None, [f"{wrong} of {codes} codes differ"]
        elif a.draws > 1:
            print(f"    {wrong} of {codes} codes differ in {a.draws} draws")
        said.setdefault(verdict, []).append(family)
        print(f"{family:20s} {verdict or 'DIFFERS'}", flush=True)
        for line in lines[:6]:
            print(f"    {line}", flush=True)
        if len(lines) > 6:
            print(f"    and {len(lines) - 6} more", flush=True)
    for verdict, families in said.items():
        print(f"{len(families)} of {len(names)}: {verdict or 'DIFFERS'}")
    if not a.gptq:
        rest = [f for verdict, families in said.items() if verdict not in (EQUAL, WHOLE, UNREAD) for f in families if f not in AGAIN]
        n = sum(f not in AGAIN for f in names)
        print(f"{n - len(rest)} of {n} families are equal or load whole where upstream's does not; not {', '.join(sorted(rest)) or 'one'}")
    return 1 if None in said else 0


if __name__ == "__main__":
    sys.exit(main())
