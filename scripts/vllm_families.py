#!/usr/bin/env python3
"""vllm_families.py - makes tiny random checkpoints of the families of compare_families.py, in sizes
that vLLM's CPU kernels support. This program rounds them to W4 in groups of 32. vLLM must load the
outputs and generate tokens with them.

usage: vllm_families.py BINARY FOLDER VLLM_PYTHON [--record] [FAMILY...]
       in the environment of compare_families.py; VLLM_PYTHON: Python of an environment with vLLM
       for CPUs

The Linears of experts are in ignore, because vLLM has few CPU kernels for experts with codes
(vllm_experts.py). If vLLM also refuses the dense source, the script prints this, and
the family does not fail. Exits with 1 if vLLM loads the source but not the output."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import torch

import compare_families
import proofs

SIZES = dict(hidden_size=256, intermediate_size=512, head_dim=64, vocab_size=512, max_position_embeddings=1024, ffn_dim=512,
             word_embed_proj_dim=256, global_head_dim=64, moe_intermediate_size=128, shared_expert_intermediate_size=128,
             kv_lora_rank=512, q_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64, linear_num_key_heads=16,
             linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128)
GRANITE = dict(mamba_n_heads=32, shared_intermediate_size=512)
# Sizes that vLLM's kernels need, and keys of config.json that vLLM reads from released files
MORE = {"mamba2": dict(num_heads=32, head_dim=16), "granitemoehybrid": GRANITE, "granitemoehybrid_moe": GRANITE, "bamba": dict(mamba_n_heads=32),
        "deepseek_v3": dict(topk_method="noaux_tc"), "minimax_m2": dict(rotary_dim=64),
        "gpt_oss": dict(rope_parameters=compare_families.FAMILIES["gpt_oss"]["rope_parameters"] | dict(beta_fast=32.0, beta_slow=1.0))}
RECIPE = r"""quant_stage:
  quant_modifiers:
    QuantizationModifier:
      ignore: ["re:.*lm_head", "re:.*embed_out", "re:.*experts\\.[0-9].*"]
      config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}
"""
LOADS = "loads"
LOAD = """
import gc
import sys
import traceback

import torch

torch.cpu._init_amx()  # without it, the first tile instruction ends the process

from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.models import registry

registry._run_in_subprocess = lambda inspect: inspect()  # that starts a Python for each class
for folder in map(str.strip, sys.stdin):
    model, said = None, "loads"
    try:
        model = LLM(folder, dtype="bfloat16", enforce_eager=True, max_model_len=256, max_num_seqs=4, skip_tokenizer_init=True, limit_mm_per_prompt={})
        sampling = SamplingParams(temperature=0, max_tokens=8, detokenize=False, ignore_eos=True)
        made = model.generate([{"prompt_token_ids": [5, 17, 99, 3]}], sampling, use_tqdm=False)[0].outputs[0].token_ids
        assert len(made) == 8, made
    except BaseException as e:
        traceback.print_exc()
        said = "fails: " + type(e).__name__ + " " + " ".join(str(e).split())[:160]
    del model
    gc.collect()
    try:
        cleanup_dist_env_and_memory()
    except BaseException:
        traceback.print_exc()
    print("\\nRESULT " + said, flush=True)
"""


def make(family, folder):
    members = compare_families.FAMILIES[family]
    compare_families.FAMILIES[family] = {k: SIZES.get(k, v) for k, v in members.items()} | MORE.get(family, {})
    compare_families.make(family, folder, torch.bfloat16, 1)


class Engine:
    """One process with vLLM, which loads one checkpoint after the other. A new process begins after
    a checkpoint that vLLM does not load."""

    def __init__(self, python, log):
        libs = [str(p) for p in pathlib.Path(python).absolute().parent.parent.glob("lib/python3*/site-packages/nvidia/*/lib")]
        self.env = os.environ | dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR",
                                     LD_LIBRARY_PATH=":".join(libs + [os.environ.get("LD_LIBRARY_PATH", "")]))
        self.python, self.log, self.run = python, log, None

    def loads(self, folder):
        """Returns whether vLLM generates tokens from the checkpoint, and its error."""
        if not self.run or self.run.poll() is not None:
            self.run = subprocess.Popen([self.python, "-c", LOAD], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.run.stdin.write(f"{folder}\n")
        self.run.stdin.flush()
        for line in self.run.stdout:
            if line == "RESULT loads\n":
                return True, ""
            if line.startswith("RESULT "):  # a process in which a model failed may refuse all others
                self.run.stdin.close()
                self.run.stdout.read()
                self.run.wait()
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
    """Returns True if vLLM takes the output, or also refuses the source; and a text with the
    result."""
    home = args.folder / family
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / "recipe.yaml").write_text(RECIPE)
    make(family, home / "source")
    ours = subprocess.run([args.binary, "--model", home / "source", "--recipe", home / "recipe.yaml", "--progress", "none",
                           "--output", home / "output"], capture_output=True, text=True)
    if ours.returncode:
        return False, f"not rounded: {ours.stderr.strip().splitlines()[0]}"
    whole, why = engine.loads(home / "output")
    if whole:
        return True, LOADS
    dense, why_dense = engine.loads(home / "source")
    return not dense, f"DOES NOT LOAD, its source does: {why}" if dense else f"vLLM does not take its source: {why_dense}"


if __name__ == "__main__":
    sys.exit(main())
