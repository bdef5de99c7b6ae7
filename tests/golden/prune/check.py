"""check.py - prunes a model with oneshot and with LLM Compressor on the same data. Prints the
percentage of weights that are 0 in both outputs or in neither, and the difference of the values.

usage: python check.py ONESHOT MODEL CALIBRATION.jsonl FOLDER [SAMPLES LENGTH] (in an environment
with llmcompressor, transformers, torch, safetensors; FOLDER is made)

Both programs prune the whole model, layer by layer. So differences in the first layers change the
inputs of the later layers. """
import json
import pathlib
import subprocess
import sys

import torch
from datasets import Dataset
from llmcompressor import oneshot
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

RECIPES = {
    "SparseGPT, 2:4": "SparseGPTModifier: {sparsity: 0.5, mask_structure: '2:4', ignore: ['re:.*lm_head']}",
    "SparseGPT, half": "SparseGPTModifier: {sparsity: 0.5, targets: [LlamaDecoderLayer]}",
    "Wanda, 2:4": "WandaPruningModifier: {sparsity: 0.5, mask_structure: '2:4', targets: [LlamaDecoderLayer]}",
    "Wanda, half": "WandaPruningModifier: {sparsity: 0.5, targets: [LlamaDecoderLayer]}",
}


def theirs(model_dir, rows, recipe):
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
    data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(r) for r in rows]})
    oneshot(model=model, recipe=recipe, dataset=data, num_calibration_samples=len(rows), batch_size=1,
            max_seq_length=max(map(len, rows)), shuffle_calibration_samples=False)
    return {k: v.clone() for k, v in model.state_dict().items()}


def main():
    program, model_dir, data, folder = sys.argv[1:5]
    samples, length = (int(x) for x in (sys.argv[5:] or (64, 256)))
    out = pathlib.Path(folder)
    out.mkdir(parents=True)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    lines = [json.loads(line) for line in open(data)][:samples]
    rows = [line["input_ids"] if "input_ids" in line else tokenizer(line["text"]).input_ids for line in lines]
    rows = [r[:length] for r in rows]
    (out / "rows.jsonl").write_text("".join(json.dumps({"input_ids": r}) + "\n" for r in rows))
    source = load_file(f"{model_dir}/model.safetensors")
    for k, (name, text) in enumerate(RECIPES.items()):
        recipe = out / f"{k}.yaml"
        recipe.write_text(f"s_stage:\n  s_modifiers:\n    {text}\n")
        subprocess.run([program, "--model", model_dir, "--recipe", recipe, "--dataset", out / "rows.jsonl", "--progress", "none",
                        "--num-calibration-samples", str(samples), "--max-seq-length", str(length), "--output", out / str(k)],
                       check=True, stdout=subprocess.DEVNULL)
        ours, other = load_file(out / str(k) / "model.safetensors"), theirs(model_dir, rows, str(recipe))
        same = n = zeros = 0
        err = ref = 0.0
        for key, w in ours.items():
            if torch.equal(w, source[key]):
                continue
            v = other[key]
            same += ((w == 0) == (v == 0)).sum().item()
            zeros += (w == 0).sum().item()
            n += w.numel()
            err += (w.double() - v.double()).square().sum().item()
            ref += v.double().square().sum().item()
        print(f"{name}: {n} weights, {100 * zeros / n:.3f} % are 0, {100 * same / n:.3f} % of the mask agree, "
              f"relative squared difference {err / ref:.2e}")


if __name__ == "__main__":
    main()
