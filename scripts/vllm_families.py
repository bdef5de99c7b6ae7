#!/usr/bin/env python3
"""vllm_families.py - makes tiny random checkpoints of the families of compare_families.py, in sizes
that vLLM's CPU kernels support. This program rounds them to W4 in groups of 32. vLLM must load the
outputs and generate tokens with them.

usage: vllm_families.py BINARY FOLDER VLLM_PYTHON [FAMILY...]
       in the environment of compare_families.py; VLLM_PYTHON: Python of an environment with vLLM
       for CPUs

The Linears of experts are in ignore, because vLLM has few CPU kernels for experts with codes
(vllm_experts.py). If vLLM refuses the dense source, too, the family is listed as such, and this is
no failure. Exits with 1 if vLLM loads the source but not the output."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import torch

import compare_families

SIZES = dict(hidden_size=256, intermediate_size=512, head_dim=64, vocab_size=512, max_position_embeddings=1024, ffn_dim=512,
             word_embed_proj_dim=256, global_head_dim=64, moe_intermediate_size=128, shared_expert_intermediate_size=128,
             kv_lora_rank=128, q_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64, linear_num_key_heads=16,
             linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128)
GRANITE = dict(mamba_n_heads=32, shared_intermediate_size=512)
SSM = {"mamba2": dict(num_heads=32, head_dim=16), "granitemoehybrid": GRANITE, "granitemoehybrid_moe": GRANITE}
RECIPE = r"""quant_stage:
  quant_modifiers:
    QuantizationModifier:
      ignore: ["re:.*lm_head", "re:.*embed_out", "re:.*experts\\.[0-9].*"]
      config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}
"""
LOAD = """if __name__ == "__main__":
    import sys
    from vllm import LLM, SamplingParams
    model = LLM(sys.argv[1], dtype="bfloat16", enforce_eager=True, max_model_len=256, max_num_seqs=4, skip_tokenizer_init=True)
    sampling = SamplingParams(temperature=0, max_tokens=8, detokenize=False, ignore_eos=True)
    made = model.generate([{"prompt_token_ids": [5, 17, 99, 3]}], sampling, use_tqdm=False)[0].outputs[0].token_ids
    assert len(made) == 8, made
"""


def make(family, folder):
    members = compare_families.FAMILIES[family]
    compare_families.FAMILIES[family] = {k: SIZES.get(k, v) for k, v in members.items()} | SSM.get(family, {})
    compare_families.make(family, folder, torch.bfloat16, 1)


def loads(python, folder, log):
    """Returns whether vLLM generates tokens from the checkpoint, and the last line of its log that
    names an error."""
    libs = [str(p) for p in pathlib.Path(python).absolute().parent.parent.glob("lib/python3*/site-packages/nvidia/*/lib")]
    env = os.environ | dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                            LD_LIBRARY_PATH=":".join(libs + [os.environ.get("LD_LIBRARY_PATH", "")]))
    run = subprocess.run([python, "-c", LOAD, folder], env=env, capture_output=True, text=True)
    log.write_text(run.stdout + run.stderr)
    errors = [line for line in (run.stdout + run.stderr).splitlines() if "Error" in line]
    return run.returncode == 0, errors[-1][:160] if errors else ""


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("binary"), parser.add_argument("folder", type=pathlib.Path), parser.add_argument("vllm_python")
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    text = [f for f, members in compare_families.FAMILIES.items() if "text_config" not in members]
    bad = 0
    for family in args.families or text:
        home = args.folder / family
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "recipe.yaml").write_text(RECIPE)
        make(family, home / "source")
        ours = subprocess.run([args.binary, "--model", home / "source", "--recipe", home / "recipe.yaml", "--progress", "none",
                               "--output", home / "output"], capture_output=True, text=True)
        if ours.returncode:
            print(f"{family:24} not rounded: {ours.stderr.strip().splitlines()[0]}", flush=True)
            continue
        whole, why = loads(args.vllm_python, home / "output", home / "output.log")
        said = "loads"
        if not whole:
            dense, why_dense = loads(args.vllm_python, home / "source", home / "source.log")
            bad += dense
            said = f"DOES NOT LOAD, its source does: {why}" if dense else f"vLLM does not take its source: {why_dense}"
        print(f"{family:24} {said}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
