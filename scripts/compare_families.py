#!/usr/bin/env python3
"""compare_families.py - makes tiny random checkpoints of many families with the classes of
transformers, and compares the outputs of LLM Compressor and of this program.

usage: compare_families.py BINARY FOLDER [--gptq [--draws N] [--record]] [--vllm] [FAMILY...]
       in an environment with compressed-tensors, llmcompressor, safetensors, torch, transformers
  without --gptq   rounds to nearest, W4 in groups of 32, BF16, and compares tensor by tensor; norms
                   must be those of the source
  --gptq           runs GPTQ W4 in groups of 32, F32, with 16 samples of 128 tokens and pipeline
                   basic; prints the percentage of codes that differ, for weights of N seeds
                   (default 1). One quotient between two codes changes a whole row. So if more than
                   1 in 10,000 and fewer than 1 in 100 codes differ with seed 1, the codes of the
                   seeds 1 to 20 count. A family also passes if LLM Compressor does not compress
                   it, or adds biases to it
  --record         writes these percentages to tests/golden/families/proofs.json
  --vllm           uses --target vllm, which also quantizes the experts of gpt-oss, Gemma 4 and
                   Granite 4; transformers does not load these outputs

Without --gptq, transformers also loads each output. If an output differs from LLM Compressor's,
transformers must find all tensors, and must compute the logits of the source with rounded weights.
Checkpoints and outputs stay in FOLDER/FAMILY. Exits with 1 if a family has a difference that is
neither in DENSE nor in ACCEPTED."""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

import torch
import transformers

import proofs
from tiny_families import AUTO, FAMILIES, TWICE, calibration, make, nibbles, recipe, reload, tensors

# Intended differences from LLM Compressor: the reason, and the modules that stay dense. All other
# tensors must be equal, and the output must load. The reason UNREAD means that vLLM has no
# parameters for codes of the listed modules. LLM Compressor's output has such codes, so vLLM cannot
# load it.
UNREAD = "equal, except modules whose weights vLLM reads dense; vLLM does not load LLM Compressor's output"
DENSE = dict.fromkeys(("qwen2_moe", "qwen3_next", "qwen3_5_moe_text", "qwen3_5_moe_stacked"), (UNREAD, r"\.shared_expert_gate$")) | {
    "llama4": (UNREAD, r"\.router$|\bvision_model\.|\bmulti_modal_projector\."), "mistral3": (UNREAD, r"\.merging_layer$"), "jamba": (UNREAD, r"\.(router|x_proj|dt_proj)$"),
    "dbrx": (UNREAD, r"\.router\.layer$"), "deepseek_v32": (UNREAD, r"\.indexer\.(wk|weights_proj)$"), "glm_moe_dsa": (UNREAD, r"\.indexer\.(wk|weights_proj)$"),
    "gemma4_moe": (UNREAD, r"\.router\.proj$"), "hunyuan_v1_moe": ("equal, except a router, which stays dense", r"\.gate\.wg$"),
    "gemma4": ("equal, except the vision and audio towers, which stay dense", r"\.(vision_tower|audio_tower|embed_vision|embed_audio)\."),
}
DENSE |= dict.fromkeys((
    "qwen2_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "internvl", "idefics3", "smolvlm", "llava_next", "llava_next_video", "llava_onevision",
    "video_llava", "vipllava", "aya_vision", "cohere2_vision", "got_ocr2", "ovis2", "lighton_ocr", "deepseek_vl", "janus", "glm4v", "glm46v", "glm4v_moe", "lfm2_vl", "glm_ocr", "minicpmv4_6", "exaone4_5", "video_llama_3",
), ("equal, except the vision tower, which stays dense", r"^mtp\.|(^|\.)(vis\w+|image_tower|video_tower|multi_modal_projector|projector|merger|connector|aligner|generation_\w+|vqmodel|shared_expert_gate)(\.|$)"))
ACCEPTED = {
    "qwen3_vl_moe": "equal, except the vision tower; transformers does not find codes of experts under the names that LLM Compressor writes",
    "janus": "LLM Compressor fails on a module of 8 columns",
    "lfm2_vl": "LLM Compressor fails: the number of columns of the tower is not a multiple of 32",
    "gpt_bigcode": "transformers' initializer reads the weight of a Linear, and packed Linears have none",
    "gpt_bigcode_heads": "transformers' initializer reads the weight of a Linear, and packed Linears have none",
    "falcon": "LLM Compressor writes scales next to dense weights",
    "longcat_flash_zero": "oneshot refuses checkpoints with experts that compute nothing",
    "gpt2": "oneshot refuses a model without a Linear; LLM Compressor writes a copy",
}
# Families in which more than 1 of MOST codes differs. The value is the reason. With GPTQ, a
# quotient that is almost exactly between two codes changes the rest of its row.
NEAR = {"gpt_bigcode_heads": "at most 1.8 in 10,000 codes differ over 20 draws of weights, all of them in 9 of 23,040 rows; LLM Compressor's codes depend on its threads"}
EQUAL = "equal"
REFUSED = "LLM Compressor does not compress it"
BIASES = "not comparable: LLM Compressor gives the experts biases that the model lacks, and does not initialize them"
# LLM Compressor fails on modules whose number of columns is no multiple of 32. These patterns match
# such modules of the tiny models.
NARROW = ("re:.*(vis|image|video|audio|acoustic|semantic|tower|encoder|projector|aligner|connector|adaptor|generation).*", "re:.*[.](x|dt)_proj$", "re:.*[.]altup[.](prediction|correction)_coefs$")
MORE_DRAWS, MOST, CHANCE = 20, 10000, 100  # at most 1 of MOST codes may differ
WHOLE = "transformers loads all tensors; from LLM Compressor's output it does not"
# Second entries of a family. The model of such an entry has parts that the model of the first entry
# lacks: experts, experts in one tensor, shared keys and values, or towers.
AGAIN = ("exaone4_full", "gpt_bigcode_heads", "lfm2_full", "glm46v", "granitemoehybrid_moe", "gemma4_moe", "qwen3_moe_stacked", "qwen3_5_moe_stacked", "gemma4_shared", "gemma4")


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
        # LLM Compressor requires a tokenizer, but does not use it, because rows have input_ids
        words = Tokenizer(WordLevel({str(i): i for i in range(256)}, unk_token="0"))
        more = dict(dataset=data, processor=transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0"), num_calibration_samples=len(rows), max_seq_length=128, shuffle_calibration_samples=False, pipeline="basic")
    oneshot(model=model, recipe=str(folder.parent / "recipe.yaml"), **more)
    model.save_pretrained(out, save_compressed=True)


def as_upstream(ours):
    """Returns the tensors of `ours` with LLM Compressor's names. LLM Compressor has gate and up of
    gpt-oss as two modules; in our output, their rows alternate in one tensor. LLM Compressor writes
    w1, w2 and w3 of quantized experts under the names of transformers' modules."""
    experts = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    out = {}
    for name, t in ours.items():
        name = re.sub(r"(\.experts\.\d+)\.(w[123])\.(?=weight_)", lambda m: f"{m[1]}.{experts[m[2]]}.", name)
        joined = ".w13_weight" in name
        name = name.replace(".w13_weight", ".gate_up_proj.weight").replace(".w2_weight", ".down_proj.weight")
        if not joined:
            out[name] = t
        else:
            halves = (t // torch.tensor([2, 1]),) * 2 if name.endswith("shape") else (t[0::2], t[1::2])
            out |= {name.replace("gate_up", part): half for part, half in zip(("gate", "up"), halves)}
    return out


def released(name, family):
    """Returns the name of a tensor in releases. transformers 5.17 saves some under other names."""
    if family == "deepseek_v4":
        return re.sub(r"(\.experts\.\d+)\.wgate\.", r"\1.gate_proj.", name.removeprefix("model."))
    return TWICE.sub("language_model.model.", re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", name))


def compare(source, theirs, ours, gptq, dense):
    """Returns four values: lines about the differences, except in modules that match `dense`; True
    if there are such modules; the number of codes that differ; the number of all codes."""
    lines = []
    source = {n: t for n, t in source.items() if not n.endswith((".experts.gate_up_proj", ".experts.down_proj")) or n in ours}
    kept = {n for n in theirs.keys() ^ ours.keys() if dense and re.search(dense, n.rpartition(".")[0])}
    if gptq:  # LLM Compressor rounds modules that text does not reach; this program does not
        print(f"    {sum(n.endswith('weight_packed') for n in theirs.keys() - ours.keys())} modules have codes only in LLM Compressor's output")
    else:
        lines += [f"only in LLM Compressor's output: {name}" for name in sorted(theirs.keys() - ours.keys() - kept)]
        lines += [f"only in oneshot's output: {name}" for name in sorted(ours.keys() - theirs.keys() - (kept & source.keys()))]
    codes = wrong = 0
    for name, b in sorted(ours.items()):
        if name in source:
            if b.shape != source[name].shape or not torch.equal(b, source[name]):
                lines.append(f"differs from the source: {name}")
        elif name not in theirs:
            continue
        elif gptq and name.endswith("weight_packed"):
            codes, wrong = codes + nibbles(b).numel(), wrong + int((nibbles(theirs[name]) != nibbles(b)).sum())
        elif not gptq and (theirs[name].shape != b.shape or theirs[name].dtype != b.dtype or not torch.equal(theirs[name], b)):
            lines.append(f"differs from LLM Compressor's output: {name}")
    if gptq:
        print(f"    {wrong} of {codes} codes differ")
    return lines, bool(kept), (wrong, codes)


def one(family, root, binary, gptq, seed, vllm):
    """Compares one family. Returns four values: the result (None if a difference is not expected),
    lines about the differences, the number of codes that differ, the number of all codes."""
    home = root / family if seed == 1 else root / f"{family}_{seed}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    model = make(family, home / "source", torch.float32 if gptq else torch.bfloat16, seed)
    auto = next(a for a in AUTO if type(model.config) in a._model_mapping)
    rows = calibration(home / "data.jsonl") if gptq else None
    for ignore in ((), NARROW) if gptq else ((),):
        recipe(home / "recipe.yaml", gptq, ignore)
        try:
            upstream(home / "source", home / "upstream", rows, auto)
            lines = []
            break
        except Exception as e:  # a failure of LLM Compressor is a result
            lines = [f"LLM Compressor fails: {type(e).__name__} {str(e)[:200]}"]
    data = ["--dataset", home / "data.jsonl", "--max-seq-length", "128", "--num-calibration-samples", "16", "--pipeline", "basic"] if gptq else []
    command = [binary, "--model", home / "source", "--recipe", home / "recipe.yaml", *data, "--output", home / "ours", "--progress", "none"]
    command += ["--target", "vllm"] if vllm else []
    run = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    (home / "ours.log").write_text(run.stdout + run.stderr)
    if run.returncode:
        lines.append(f"oneshot fails: {run.stderr.strip()[:300]}")
    if lines:
        return REFUSED if gptq and not run.returncode else ACCEPTED.get(family), lines, (0, 0)
    why, dense = DENSE.get(family, (None, None))
    source = tensors(home / "source")
    theirs = {released(n, family): t for n, t in tensors(home / "upstream").items()}
    if gptq and any(n.endswith(".bias") and ".experts." in n for n in theirs.keys() - source.keys()):
        return BIASES, [], (0, 0)
    lines, kept, codes = compare(source, theirs, as_upstream(tensors(home / "ours")), gptq, dense)
    if gptq or vllm:
        return None if lines else why if kept and vllm else EQUAL, lines, codes
    here, figures = reload(home / "source", home / "ours", auto)
    print(f"    {figures}")
    if not lines and not kept:
        return EQUAL, here, codes
    if not lines and not here:
        return why, [], codes
    if not here and reload(home / "source", home / "upstream", auto)[0]:
        return WHOLE, [], codes
    return ACCEPTED.get(family), lines + here, codes


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binary", type=pathlib.Path)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--gptq", action="store_true")
    p.add_argument("--draws", type=int, default=1)
    p.add_argument("--vllm", action="store_true")
    p.add_argument("--record", action="store_true")
    p.add_argument("families", nargs="*")
    a = p.parse_intermixed_args()
    said, names = {}, a.families or list(FAMILIES)
    for family in names:
        draws = [one(family, a.folder, a.binary.resolve(), a.gptq, seed, a.vllm) for seed in range(1, a.draws + 1)]
        if a.gptq and a.draws == 1 and draws[0][2][1] / MOST < draws[0][2][0] < draws[0][2][1] / CHANCE:
            draws += [one(family, a.folder, a.binary.resolve(), a.gptq, seed, a.vllm) for seed in range(2, MORE_DRAWS + 1)]
        wrong, codes = (sum(d[2][k] for d in draws) for k in (0, 1))
        verdict, lines = next((d[:2] for d in draws if not d[0]), draws[0][:2])
        if verdict == EQUAL and a.gptq and (wrong * MOST > codes or not codes):
            verdict, lines = (NEAR if codes else ACCEPTED).get(family), [f"{wrong} of {codes} codes differ"]
        elif len(draws) > 1:
            print(f"    {wrong} of {codes} codes differ in {len(draws)} draws")
        if a.record and a.gptq and not a.vllm:
            proofs.change("codes", family, f"{wrong} of {codes}" if verdict == EQUAL else None)
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
        print(f"{n - len(rest)} of {n} families are equal, or only oneshot's output loads completely; the others: {', '.join(sorted(rest)) or 'none'}")
    return 1 if None in said else 0


if __name__ == "__main__":
    sys.exit(main())
