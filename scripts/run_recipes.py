#!/usr/bin/env python3
"""run_recipes.py - plans each recipe of a directory, runs it on a tiny model and verifies the
output.

usage: run_recipes.py BINARY MODEL RECIPES FOLDER [NAME...]
       in an environment with torch and transformers, if a recipe needs another architecture

RECIPES has *.yaml, and optionally a *.src for each, which names its origin. A recipe whose name or
origin contains the name of a family runs on a tiny random model of that family, in FOLDER/models.
All other recipes run on MODEL, a Llama with tokenizer and data/calibration.jsonl. MODEL is also
used if the model of the family is refused. A run has four samples of 64 tokens; iters is that of
the recipe, but at most 20. Prints refusals with their reasons, failures, and the counts. Exits with
1 if a run or verify fails although the plan accepts the recipe, or if a run uses more memory than
predicted."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

BIG = dict(vocab_size=512, pad_token_id=0, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
           num_key_value_heads=2, head_dim=64, max_position_embeddings=512)
MOE = dict(num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=256, n_shared_experts=1,
           shared_expert_intermediate_size=256, first_k_dense_replace=1, n_group=1, topk_group=1)
MLA = dict(q_lora_rank=128, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=128, num_key_value_heads=4)
DELTA = dict(layer_types=["linear_attention", "full_attention"] * 2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=64,
             linear_value_head_dim=64)
PLAIN = {k: v for k, v in BIG.items() if k != "head_dim"}
TOWER = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4, image_size=8, patch_size=4)
QWEN_TOWER = dict(depth=1, hidden_size=256, intermediate_size=512, num_heads=4, patch_size=4, out_hidden_size=256)
FAMILIES = {  # text in a recipe or its origin, type of the model, its config
    "mixtral": ("mixtral", dict(BIG, num_local_experts=4, num_experts_per_tok=2)),
    "qwen3.?vl.?moe|qwen3-vl-30b": ("qwen3_vl_moe", dict(text_config=dict(BIG, **MOE), vision_config=QWEN_TOWER)),
    "qwen3.?vl": ("qwen3_vl", dict(text_config=BIG, vision_config=QWEN_TOWER)),
    "qwen3.?next": ("qwen3_next", dict(BIG, **MOE, **DELTA)),
    "qwen3.5|qwen3.6": ("qwen3_5_moe_text", dict(BIG, **MOE, **DELTA)),
    "qwen.?3.?8|qwen3_moe|qwen_?3?_30b|reap_qwen|qwen3_coder|quantizing_moe/qwen": ("qwen3_moe", dict(BIG, **MOE)),
    "qwen.?2.?5?.?vl|qwen2vl": ("qwen2_5_vl", dict(text_config=dict(PLAIN, rope_scaling=dict(type="mrope", mrope_section=[8, 12, 12])),
                                                 vision_config=QWEN_TOWER)),
    "qwen3": ("qwen3", BIG),
    "gemma.?4": ("gemma4_text", dict(BIG, global_head_dim=64, hidden_size_per_layer_input=0, sliding_window=16,
                                     layer_types=["sliding_attention", "full_attention"] * 2)),
    "gemma2": ("gemma2", BIG),
    "medgemma": ("gemma3", dict(text_config=BIG, vision_config=TOWER, mm_tokens_per_image=4)),
    "glm-?[45]": ("glm4_moe", dict(BIG, **MOE)),
    "deepseek|kimi|moonlight": ("deepseek_v3", dict(BIG, **MOE) | MLA),
    "granite": ("granitemoehybrid", dict(PLAIN, **(MOE | dict(num_local_experts=0)), mamba_n_heads=8, mamba_d_head=64, mamba_d_state=16,
                                         mamba_expand=2, mamba_n_groups=1, layer_types=["mamba", "attention"] * 2,
                                         shared_intermediate_size=512)),
    "llama4": ("llama4_text", dict(BIG, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=1, intermediate_size_mlp=512)),
    "llava": ("llava", dict(text_config=dict(BIG, model_type="llama"), vision_config=dict(TOWER, model_type="clip_vision_model"))),
    "phi3": ("phi3", PLAIN),
}


def family_of(*texts):
    for pattern in FAMILIES:
        if any(re.search(pattern, t, re.I) for t in texts):
            return pattern
    return None


def make(pattern, folder, tokenizer):
    import torch
    import transformers
    kind, members = FAMILIES[pattern]
    at = folder / kind
    if not at.exists():
        config = transformers.AutoConfig.for_model(kind, **members)
        torch.manual_seed(1)
        autos = (transformers.AutoModelForImageTextToText, transformers.AutoModelForCausalLM)
        model = next(a for a in autos if type(config) in a._model_mapping).from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(at)
        (at / "data").mkdir()
        rows = torch.randint(1, 512, (8, 64), generator=torch.Generator().manual_seed(2)).tolist()
        (at / "data" / "calibration.jsonl").write_text("".join(json.dumps({"input_ids": r}) + "\n" for r in rows))
    return at


def call(*command):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300)
    lines = [line for line in r.stderr.splitlines() if line.startswith("oneshot:")] or r.stderr.splitlines()[-1:]
    return r.returncode, (lines or [""])[0]


def run(binary, model, recipe, folder):
    """Plans and runs one recipe. Returns two values: 'planned and run' or the reason for a failure
    or refusal, and True if the recipe has failed."""
    args = ["--model", model, "--recipe", recipe, "--dataset", model / "data" / "calibration.jsonl", "--num-calibration-samples", "4",
            "--max-seq-length", "64"]
    code, why = call(binary, "plan", *args)
    if code:
        return why, False
    out = folder / "out"
    for old in folder.glob("out*"):
        shutil.rmtree(old)
    code, why = call(binary, *args, "--progress", "none", "--output", out)
    if code:
        return "the plan accepts it, the run fails: " + why, True
    code, why = call(binary, "verify", out, "--model", model)
    if code:
        return "the run ends, verify fails: " + why, True
    memory = json.loads((out / "oneshot-report.json").read_text())["memory"]
    if memory["peak_bytes"] > memory["predicted_peak_bytes"]:
        return f"the run takes {memory['peak_bytes']} bytes, predicted {memory['predicted_peak_bytes']}", True
    return "", False


def main():
    binary, model, recipes, folder = [pathlib.Path(a).resolve() for a in sys.argv[1:5]]
    folder.mkdir(parents=True, exist_ok=True)
    done, by, failed, total = 0, {}, 0, 0
    for recipe in sorted(recipes.glob("*.yaml")):
        if sys.argv[5:] and recipe.stem not in sys.argv[5:]:
            continue
        total += 1
        origin = recipe.with_suffix(".src")
        origin = origin.read_text() if origin.exists() else ""
        short = folder / "recipe.yaml"
        short.write_text(re.sub(r"(iters: )(\d+)", lambda m: m[1] + str(min(int(m[2]), 20)), recipe.read_text()))
        pattern = family_of(recipe.stem, origin)
        tries = ([make(pattern, folder / "models", model)] if pattern else []) + [model]
        for at in tries:
            why, bad = run(binary, at, short, folder)
            failed += bad
            if not why:
                break
            print(f"{recipe.stem} {origin.strip()} on {at.name}: {why[:300]}", flush=True)
        done += not why
        if not why:
            by[at.name] = by.get(at.name, 0) + 1
    print(f"{done} of {total} recipes planned, run and verified:", ", ".join(f"{n} on {k}" for k, n in sorted(by.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
