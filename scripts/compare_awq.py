#!/usr/bin/env python3
"""compare_awq.py - compares AWQ's factors of this program and of LLM Compressor, mapping by
mapping, on the same samples.

usage: compare_awq.py BINARY MODEL CALIBRATION FOLDER [--bits N] [--group N] [--samples N]
                      [--length N] [--duo true|false|both]
       in an environment with compressed-tensors, datasets, llmcompressor, safetensors, torch,
       transformers

MODEL is converted to F32. LLM Compressor runs its sequential pipeline, one sample at a time. The
script records the points of its grid, with the factors and two losses of each point:

  block    LLM Compressor's loss: the mean squared error of the output of the module that contains
           the Linears
  linear   the sum of the squared errors of the outputs of the Linears (docs/how-to/awq.md)

This program's factors are read from its output. A line of the table has these columns:

  - the grid points that both programs have chosen
  - the distance of our factors from LLM Compressor's factors at the same point
  - both losses of our point, divided by the losses of LLM Compressor's point
  - the excess of our point over the least `linear` loss

The excess can be above 0 if the losses of two points are nearly equal: in a group of symmetric
integers the largest value is halfway between two codes (7.5 with 4 bits), so the last bit of a
factor decides. Exits with 1 if our factors are not those of a grid point (1e-5), or if our point is
3 % above the least loss."""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import torch
from datasets import Dataset
from loguru import logger
from llmcompressor import oneshot
from llmcompressor.modifiers.transform.awq.base import AWQModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

RECIPE = """s_stage:
  s_modifiers:
    AWQModifier: {duo_scaling: %s}
    QuantizationModifier:
      ignore: [lm_head]
      config_groups:
        g: {targets: [Linear], weights: {num_bits: %d, type: int, symmetric: %s, strategy: group, group_size: %d}}
"""
grids = {}  # name of the smooth layer -> [{"ratio", "duo", "factors", "block", "linear"}]


def watch():
    """Records the grid of each mapping. Wraps the functions that evaluate a point of the grid."""
    state = {}
    best, run, loss = AWQModifier._compute_best_scale, AWQModifier._run_samples, AWQModifier._compute_loss

    def run_and_look(self, module):
        mapping = state.get("mapping")
        seen, hooks = [], []

        def look(layer, args, kwargs, out):
            x = args[0] if args else kwargs["input"]
            change = layer.weight - state["orig"][layer]
            seen.append((x.flatten(0, -2) @ change.T).double().square().sum().item())
        if mapping:
            for layer in mapping.balance_layers:
                hooks.append(layer.register_forward_hook(look, with_kwargs=True))
        outputs = run(self, module)
        for h in hooks:
            h.remove()
        state["linear"] = sum(seen)
        return outputs

    def loss_and_note(self, whole, rounded):
        value = loss(self, whole, rounded)
        params = self._get_grid_search_params()[len(state["points"])]
        state["points"].append(dict(ratio=params[0], duo=params[1], block=value, linear=state["linear"]))
        return value

    def search(self, mapping, whole, orig):
        state.update(mapping=mapping, orig=orig, points=[])
        x_sum, count = self._smooth_activation_stats[mapping.smooth_name]
        x, w = x_sum / count, self._compute_layer_means(mapping.balance_layers)
        chosen = best(self, mapping, whole, orig)
        for p in state["points"]:  # LLM Compressor's formula; it keeps only the factors of the best point
            s = (x.pow(p["ratio"]) / (w.pow(1 - p["ratio"]) + 1e-4) if p["duo"] else x.pow(p["ratio"])).clamp(min=1e-4)
            p["factors"] = s / (s.max() * s.min()).sqrt()
        grids[mapping.smooth_name] = (state["points"], chosen)
        state.pop("mapping")
        return chosen

    AWQModifier._compute_best_scale, AWQModifier._run_samples, AWQModifier._compute_loss = search, run_and_look, loss_and_note


def main():
    parse = argparse.ArgumentParser(usage=__doc__)
    for name in ("binary", "model", "calibration", "folder"):
        parse.add_argument(name)
    parse.add_argument("--bits", type=int, default=4)
    parse.add_argument("--group", type=int, default=64)
    parse.add_argument("--samples", type=int, default=32)
    parse.add_argument("--length", type=int, default=128)
    parse.add_argument("--duo", default="true")
    parse.add_argument("--asymmetric", action="store_true")
    a = parse.parse_args()
    folder = pathlib.Path(a.folder)
    folder.mkdir(parents=True, exist_ok=True)
    model_dir, recipe = folder / "f32", folder / "awq.yaml"
    recipe.write_text(RECIPE % (a.duo, a.bits, "false" if a.asymmetric else "true", a.group))
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
    model.save_pretrained(model_dir)
    tokenizer.save_pretrained(model_dir)
    rows = [json.loads(line) for line in open(a.calibration)][:a.samples]
    ids = [(r["input_ids"] if "input_ids" in r else tokenizer(r["text"]).input_ids)[:a.length] for r in rows]
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in ids))
    for out in ("ours", "theirs"):
        shutil.rmtree(folder / out, ignore_errors=True)
    subprocess.run([a.binary, "--model", model_dir, "--recipe", recipe, "--dataset", data, "--num-calibration-samples", str(len(ids)),
                    "--max-seq-length", str(a.length), "--progress", "none", "--output", folder / "ours"], check=True)
    # AWQModifier pins cached values in memory. With a torch for CUDA, this fails on a machine
    # without a GPU.
    if not torch.cuda.is_available():
        IntermediatesCache.pin_memory = lambda self, *args: None
    watch()
    logger.remove()
    oneshot(model=model, recipe=str(recipe), pipeline="sequential", num_calibration_samples=len(ids), max_seq_length=a.length,
            shuffle_calibration_samples=False, batch_size=1,
            dataset=Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * len(r) for r in ids]}))
    model.save_pretrained(folder / "theirs", save_compressed=True)
    tokenizer.save_pretrained(folder / "theirs")

    source, ours = load_file(model_dir / "model.safetensors"), load_file(folder / "ours" / "model.safetensors")
    wrong, equal, total = 0, 0, dict(block=[0, 0], linear=[0, 0])
    print(f"{'layer':48} {'theirs':>12} {'ours':>12} {'factors':>9} {'block':>8} {'linear':>8} {'above':>8}")
    for name, (points, chosen) in grids.items():
        their = min(range(len(points)), key=lambda i: points[i]["block"])
        assert far_from(chosen, points[their]["factors"]) < 1e-5
        if name + ".weight" in ours:  # a norm
            far = [far_from(source[name + ".weight"] / p["factors"], ours[name + ".weight"]) for p in points]
        else:  # up_proj is rounded: the factors remain in the scales of down_proj
            name = name.replace("up_proj", "down_proj")
            far = [far_from(scales(source[name + ".weight"] * p["factors"], a), ours[name + ".weight_scale"]) for p in points]
        our = min(range(len(points)), key=lambda i: far[i])
        least = min(p["linear"] for p in points)
        above = points[our]["linear"] / least - 1
        wrong += far[our] > 1e-5 or above > 0.03
        equal += our == their
        ratios = []
        for kind in ("block", "linear"):
            total[kind][0] += points[our][kind] / points[0][kind]
            total[kind][1] += points[their][kind] / points[0][kind]
            ratios.append(points[our][kind] / points[their][kind])
        print(f"{name:48} {point(points[their]):>12} {point(points[our]):>12} {far[our]:9.1e} {ratios[0]:8.4f} {ratios[1]:8.4f} {above:8.4f}")
    print(f"{equal} of {len(grids)} mappings have the same best point; mean loss of all mappings, divided by the loss without factors:")
    for kind, sums in total.items():
        print(f"  {kind}: ours {sums[0] / len(grids):.4f}, theirs {sums[1] / len(grids):.4f}")
    sys.exit(1 if wrong else 0)


def far_from(x, y):
    return (x / y - 1).abs().max().item()


def scales(w, a):
    w = w.unflatten(1, (-1, a.group))
    span = w.amax(-1).clamp(min=0) - w.amin(-1).clamp(max=0) if a.asymmetric else 2 * w.abs().amax(-1)
    return span / (2 ** a.bits - 1)


def point(p):
    return f"{'duo' if p['duo'] else 'x'} {p['ratio']:.3f}"


if __name__ == "__main__":
    main()
