#!/usr/bin/env python3
"""vllm_experts.py - loads outputs of --target vllm with vLLM, for families in which only vLLM finds
single experts. vLLM's loader must fill every parameter of the experts, with the values of the
codes.

usage: vllm_experts.py BINARY FOLDER VLLM_PYTHON [FAMILY...]
       in the environment of compare_families.py; VLLM_PYTHON: Python of an environment with vLLM
       for CPUs

Only the experts get codes, W4 in groups of 128, by GPTQ. vLLM loads the output, and the source with
rounded weights. Both must give the same log-probabilities. vLLM has no CPU kernel for most of these
experts. Therefore, after vLLM's loader has filled the codes, the script converts them to dense
experts. `kernel` in a result is for vLLM's own kernel, which needs AMX and SiLU. Exits with 1 if a
family differs."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

import torch

import tiny_families

FAMILIES = ("granitemoe", "granitemoeshared", "granitemoe_swa", "granitemoehybrid_moe", "gemma4_moe", "gpt_oss")
SIZES = dict(hidden_size=256, intermediate_size=512, head_dim=64, vocab_size=512, max_position_embeddings=1024, moe_intermediate_size=128,
             global_head_dim=64, shared_intermediate_size=512, mamba_n_heads=32,
             rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=256, truncate=False, beta_fast=32.0, beta_slow=1.0))
KINDS = {"rounded": ("rounded", "plain"), "decoded": ("output", "decode"), "kernel": ("output", "plain"), "source": ("source", "plain")}
RECIPE = r"""quant_stage:
  quant_modifiers:
    GPTQModifier:
      config_groups:
        group_0:
          targets: ["re:.*experts\\.[0-9].*"]
          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 128}
"""
LOAD = '''
import json
import os
import sys
import traceback

import torch
from vllm import LLM, SamplingParams
from vllm.model_executor.layers.fused_moe import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import compressed_tensors_moe_wna16 as wna16

method = wna16.CompressedTensorsWNA16MoEMethod


def begin(self, weight_quant, input_quant, moe, layer_name=None):
    super(method, self).__init__(moe)
    self.weight_quant, self.symmetric, self.num_bits, self.packed_factor = weight_quant, True, 4, 8
    self.strategy, self.group_size, self.is_transposed, self.is_marlin = weight_quant.strategy, weight_quant.group_size, False, False
    self.experts_cls = self.wna16_backend = None


def decode(self, layer):
    for stem in ("w13", "w2"):
        packed, scale = (getattr(layer, f"{stem}_weight_{x}").data for x in ("packed", "scale"))
        codes = torch.stack([packed >> s & 15 for s in range(0, 32, 4)], -1).flatten(2) - 8
        w = (codes.to(scale.dtype).unflatten(2, (scale.shape[2], -1)) * scale[..., None]).flatten(2)
        layer.register_parameter(f"{stem}_weight", torch.nn.Parameter(w, requires_grad=False))
    layer._replace_quant_method(UnquantizedFusedMoEMethod(layer.moe_config))
    layer.quant_method.process_weights_after_loading(layer)


def run(folder, kind, log):
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    if kind == "decode":
        method.__init__, method.process_weights_after_loading = begin, decode
    model = LLM(folder, dtype="bfloat16", enforce_eager=True, max_model_len=256, max_num_seqs=4, skip_tokenizer_init=True)
    sampling = SamplingParams(temperature=0, max_tokens=8, detokenize=False, ignore_eos=True, prompt_logprobs=1)
    made = model.generate([{"prompt_token_ids": [5, 17, 99, 3, 200, 41, 8, 77]}], sampling, use_tqdm=False)[0]
    logs = [next(iter(x.values())).logprob for x in made.prompt_logprobs if x]
    print("RESULT", json.dumps([list(made.outputs[0].token_ids), logs]), flush=True)


if __name__ == "__main__":
    for job in json.loads(sys.argv[1]):
        if not os.fork():
            try:
                run(*job)
            finally:
                traceback.print_exc()
                sys.stdout.flush()
                os._exit(0)
        os.wait()
'''


def answers(python, jobs):
    """Returns the tokens and log-probabilities of vLLM for each job (directory, kind, log). If a
    job fails, returns the last line of its log that names an error."""
    libs = [str(p) for p in pathlib.Path(python).absolute().parent.parent.glob("lib/python3*/site-packages/nvidia/*/lib")]
    env = os.environ | dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                            LD_LIBRARY_PATH=":".join(libs + [os.environ.get("LD_LIBRARY_PATH", "")]))
    subprocess.run([python, "-c", LOAD, json.dumps([list(map(str, j)) for j in jobs])], env=env, check=True)
    out = []
    for _, _, log in jobs:
        lines = log.read_text().splitlines()
        results = [json.loads(line[7:]) for line in lines if line.startswith("RESULT ")]
        errors = [line for line in lines if "Error" in line and "skip_tokenizer_init" not in line]
        out.append(results[0] if results else errors[-1][:200] if errors else "no result")
    return out


def off(a, b):
    return max(abs(x - y) for x, y in zip(a[1], b[1]))


def prepare(binary, family, home):
    """Makes the source, the output and the source with the rounded weights."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / "recipe.yaml").write_text(RECIPE)
    tiny_families.FAMILIES[family] = {k: SIZES.get(k, v) for k, v in tiny_families.FAMILIES[family].items()}
    tiny_families.make(family, home / "source", torch.bfloat16, 1)
    tiny_families.calibration(home / "data.jsonl")
    subprocess.run([binary, "--model", home / "source", "--recipe", home / "recipe.yaml", "--dataset", home / "data.jsonl", "--target", "vllm",
                    "--progress", "none", "--output", home / "output"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([binary, "verify", home / "output", "--model", home / "source"], check=True, stdout=subprocess.DEVNULL)
    tiny_families.rounded(home / "source", home / "output", home / "rounded")


def words(got):
    """Returns a line about the answers for a family, and whether they are right."""
    failed = [f"{k}: {v}" for k, v in got.items() if isinstance(v, str) and k != "kernel"]
    if failed:
        return "; ".join(failed), False
    moved, wrong, kernel = off(got["source"], got["rounded"]), off(got["decoded"], got["rounded"]), got["kernel"]
    same = got["decoded"] == got["rounded"]
    line = f"{'same as' if same else f'OFF BY {wrong:.4f} FROM'} the rounded weights, which differ from the source by {moved:.4f}; vLLM's kernel: "
    return line + (kernel if isinstance(kernel, str) else f"off by {off(kernel, got['rounded']):.4f}"), same


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("binary"), parser.add_argument("folder", type=pathlib.Path), parser.add_argument("vllm_python")
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    families, bad = args.families or FAMILIES, 0
    for family in families:
        prepare(args.binary, family, args.folder / family)
    jobs = [(args.folder / f / folder, kind, args.folder / f / f"{k}.log") for f in families for k, (folder, kind) in KINDS.items()]
    got = answers(args.vllm_python, jobs)
    for i, family in enumerate(families):
        line, right = words(dict(zip(KINDS, got[i * len(KINDS) :])))
        bad += not right
        print(f"{family:22} {line}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
