#!/usr/bin/env python3
"""family.py - proves that the template of a family is right, on a tiny random checkpoint that
transformers' own classes make (tiny_families.py).

usage: family.py BINARY FOLDER [--models-dir DIR] [--record] [--only-bf16] [FAMILY...]
       in an environment with compressed-tensors, safetensors, torch, transformers; BINARY: oneshot
       in a build directory, whose tests/logits is built, too

The steps. The first step that fails ends the proof of a family:
  1. oneshot check-model finds no wrong tensor, and no tensor that the template omits
  2. F32 logits of 40 tokens differ from those of transformers (eager attention) by at most 5e-6
     times the largest |logit|
  3. the logits are the same bits if config.json lacks all keys that have their defaults, and if
     config.json has the format of transformers 4 (rope_theta, rope_scaling, torch_dtype)
  4. BF16 logits are at most NOISE times as far from transformers' F32 logits as transformers' own
     BF16 logits with eager attention. The distance of a token is |BF16 - F32| / |F32|. The median
     distances of 512 tokens (4 samples of 128) are compared. If the ratio is above NOISE, the
     geometric mean of the ratios of DRAWS models counts
  5. oneshot compresses the model by GPTQ, W4 in groups of 32 (Linears whose columns are no multiple
     of 32 stay dense); `verify` and `eval` of the output succeed
  6. transformers loads the output: it finds all tensors, knows each tensor, and computes the logits
     of the rounded weights

transformers has no class for the families of renamed_families.py. For these families, the class of
another family computes the logits from the same tensors with other names. Step 6 then compares two
perplexities: that of the output, and that of this class with the rounded weights.

Prints one line for a family: the proof, or the first step that fails. EXCEPT lists families in
which a step is known to fail, and NO_BF16 lists families without step 4, with the reasons.
Checkpoints and outputs stay in FOLDER/FAMILY. Exits with 1 if a step of another family fails.
--record writes the proofs to tests/golden/families/proofs.json, which scripts/coverage.py and lint
read. --only-bf16 runs only step 4."""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import torch
import transformers

import proofs
from renamed_families import RENAMED
from tiny_families import AUTO, EAGER, FAMILIES, calibration, load, make, older, recipe, reload, rounded, speaker, strip

TOKENS, LIMIT = 40, 5e-6
NOISE, SAMPLES, DRAWS = 1.1, 4, 5


READS = "transformers cannot load a packed output, because {} reads the dense weight"
EXCEPT = dict.fromkeys(("mamba2", "mamba", "falcon_mamba", "gpt_bigcode", "gpt_bigcode_heads"), ("load", READS.format("the model's initializer"))) | {
    **dict.fromkeys(("zamba2", "zamba2_plain"), ("load", "transformers loads the output only with re:.*shared_transformer.* in ignore")),
    "falcon": ("load", READS.format("FalconLinear")),
    "longcat_flash_zero": ("gptq", "transformers stores weights of experts that compute nothing, and such files are refused"),
    "gpt2": ("gptq", "calibrated runs are refused, because the model has no Linear"),
    "qwen3_vl_moe": ("load", "transformers does not find the codes of experts under LLM Compressor's names"),
}
# Families that skip step 4 (the comparison of BF16 logits), each with its reason
NO_BF16 = {"deepseek_v4": "transformers fails in BF16, because it gives F32 outputs of norms to BF16 Linears"}


class Failed(Exception):
    def __init__(self, step, text):
        super().__init__(text)
        self.step = step


def run(step, *command):
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if done.returncode:
        text = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(step, ' | '.join(text[:3])[:400] or f"exit code {done.returncode}")
    return done.stdout


def logits_here(a, folder, ids, out):
    more = [a.models_dir] if a.models_dir else []
    run("logits", a.binary.parent / "tests" / "logits", folder, ",".join(map(str, ids)), out, *more)
    return numpy.fromfile(out, numpy.float32).reshape(len(ids), -1)


def logits_there(folder, auto, ids):
    model = load(folder, auto, **EAGER)[0]
    with torch.no_grad():
        return speaker(model)(torch.tensor(ids)[None], use_cache=False).logits[0].numpy()


def noise(a, home, family, auto, seed):
    """Returns the median error of our BF16 logits, divided by that of transformers' BF16 logits."""
    source = home / f"bf16_{seed}"
    make(family, source, torch.bfloat16, seed)
    rows = calibration(home / "data.jsonl")[:SAMPLES]
    logits = []
    for dtype in (torch.float32, torch.bfloat16):
        model = load(source, auto, dtype=dtype, **EAGER)[0]
        with torch.no_grad():
            logits.append(speaker(model)(torch.tensor(rows), use_cache=False).logits.float().flatten(0, 1).numpy())
    exact, there = logits
    here = numpy.concatenate([logits_here(a, source, ids, home / "logits") for ids in rows])
    far = [numpy.median(numpy.linalg.norm(x - exact, axis=1) / numpy.linalg.norm(exact, axis=1)) for x in (here, there)]
    return far[0] / far[1]


def prove_bf16(a, home, family, auto, proof):
    if family in NO_BF16:
        proof["no_bf16"] = NO_BF16[family]
        return
    ratios = [noise(a, home, family, auto, 1)]
    if not ratios[0] <= NOISE:
        ratios += [noise(a, home, family, auto, seed) for seed in range(2, DRAWS + 1)]
    ratio = float(numpy.exp(numpy.mean(numpy.log(ratios))))
    if not ratio <= NOISE:
        raise Failed("bf16", f"errors of BF16 logits are {' '.join(f'{r:.2f}' for r in ratios)} times those of transformers, want at most {NOISE} in the mean")
    proof["bf16"] = round(ratio, 2)


def perplexity_there(folder, auto, data):
    model = load(folder, auto, **EAGER)[0]
    ids = torch.tensor([json.loads(line)["input_ids"] for line in data.read_text().splitlines()])
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[:, :-1].double()
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).exp())


def prove(a, family, proof):
    """Fills `proof` step by step; raises Failed at the first step that fails."""
    home = a.folder / family
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    source, out = home / "source", home / "out"
    extra = ["--models-dir", a.models_dir] if a.models_dir else []
    model = make(family, source, torch.float32, 1)
    auto = next(x for x in AUTO if type(model.config) in x._model_mapping)
    renamed = RENAMED.get(family)
    proof["architecture"] = renamed.architecture if renamed else type(model).__name__
    if a.only_bf16:
        prove_bf16(a, home, family, auto, proof)
        return
    run("check-model", a.binary, "check-model", source, *extra)
    ids = [row[:TOKENS] for row in calibration(home / "data.jsonl")][0]
    here, there = logits_here(a, source, ids, home / "logits"), logits_there(source, auto, ids)
    off = abs(here - there).max() / abs(there).max()
    if not off <= LIMIT:
        raise Failed("logits", f"F32 logits differ by {off:.1e} of the largest logit, want at most {LIMIT:g}")
    proof["logits"] = f"{off:.1e}"
    strip(source, home / "bare")
    if not numpy.array_equal(here, logits_here(a, home / "bare", ids, home / "logits")):
        raise Failed("defaults", "logits differ if config.json lacks the keys that have their defaults")
    older(source, home / "old")
    if not numpy.array_equal(here, logits_here(a, home / "old", ids, home / "logits")):
        raise Failed("older", "logits differ if config.json has the keys that transformers 4 wrote")
    prove_bf16(a, home, family, auto, proof)
    recipe(home / "recipe.yaml", True)
    data = ["--dataset", home / "data.jsonl", "--max-seq-length", "128", "--num-calibration-samples", "16", "--indivisible", "dense"]
    run("gptq", a.binary, "--model", source, "--recipe", home / "recipe.yaml", *data, "--output", out, "--progress", "none", *extra)
    proof["linears"] = len(set(re.findall(r'"[^"]*weight_packed"', (out / "oneshot-manifest.json").read_text())))
    run("verify", a.binary, "verify", out, "--model", source)
    said = [run("eval", a.binary, "eval", "--model", x, "--dataset", home / "data.jsonl", "--progress", "none", *extra) for x in (source, out)]
    perplexity = [re.search(r"^perplexity ([0-9.e+]+)", text, re.M) for text in said]
    if not all(perplexity):
        raise Failed("eval", "oneshot eval prints no perplexity")
    proof["perplexity"] = [m[1] for m in perplexity]
    if renamed:
        rounded(source, out, home / "out_rounded")
        shutil.copy(source / "reference.json", home / "out_rounded")
        here, there = float(perplexity[1][1]), perplexity_there(home / "out_rounded", auto, home / "data.jsonl")
        if not abs(here - there) <= 1e-5 * there:
            raise Failed("rounded", f"the perplexity of the output is {here}, that of {type(model).__name__} with the rounded weights {there:.4f}")
        proof["but"] = f"transformers has no class of this name: proven with renamed tensors of {type(model).__name__}"
        return
    faults, _ = reload(source, out, auto)
    if faults:
        raise Failed("load", faults[0])


def words(proof):
    parts = [f"F32 logits within {proof['logits']}"] if "logits" in proof else []
    parts += [f"BF16 errors {proof['bf16']:.2f} of transformers'"] if "bf16" in proof else []
    parts += [f"no BF16: {proof['no_bf16']}"] if "no_bf16" in proof else []
    if "perplexity" in proof:
        parts += [f"GPTQ {proof['linears']} Linears", "perplexity {} to {}".format(*proof["perplexity"])]
    return "; ".join(parts)


def record(family, proof, whole):
    """Adds the family to proofs.json. `whole`: all steps ran."""
    if whole:
        row = {"architecture": proof["architecture"], "but": EXCEPT[family][1] if family in EXCEPT else proof.get("but")}
        proofs.change("families", family, row, transformers=transformers.__version__)
    if "bf16" in proof:
        proofs.change("bf16", family, proof["bf16"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binary", type=pathlib.Path)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--models-dir", type=pathlib.Path)
    p.add_argument("--record", action="store_true")
    p.add_argument("--only-bf16", action="store_true")
    p.add_argument("families", nargs="*")
    a = p.parse_intermixed_args()
    a.binary = a.binary.resolve()
    transformers.logging.set_verbosity_error()
    failed = 0
    for family in a.families or list(FAMILIES | RENAMED):
        proof, step = {}, None
        try:
            prove(a, family, proof)
            text = "proven  " + words(proof) + ("" if a.only_bf16 else f"; {proof.get('but', 'transformers loads all tensors')}")
        except Failed as e:
            step, text = e.step, f"{e.step}: {e}"
        except Exception as e:  # a failure of transformers itself
            step, text = "transformers", f"{type(e).__name__} {str(e)[:300]}"
        if step and step == EXCEPT.get(family, (None,))[0]:
            text = f"proven  {words(proof)}; but {EXCEPT[family][1]}"
        elif step or family in EXCEPT and not a.only_bf16:
            text, failed = f"FAILED  {text}", failed + 1
        if text.startswith("proven") and a.record:
            record(family, proof, not a.only_bf16)
        print(f"{family:22s} {text}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
