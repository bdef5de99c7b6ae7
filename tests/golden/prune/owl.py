"""owl.py - prints the sparsity of each decoder layer that LLM Compressor's
_infer_owl_layer_sparsity computes. Hooks of this script collect the activations, because the
modifier's own hooks fail in 0.14.0.1 ("Cannot invoke event before initializing"). With --float the
script computes in F32. With --ids the rows of the data contain token ids instead of text.

usage: python owl.py MODEL CALIBRATION.jsonl SAMPLES LENGTH SPARSITY OWL_M OWL_LMBDA
                     [--float] [--ids]
"""
import json, sys
import torch
from llmcompressor.modifiers.pruning import SparseGPTModifier
from transformers import AutoModelForCausalLM, AutoTokenizer

model_dir, calib, n, length, sparsity, m, lmbda = sys.argv[1:8]
n, length = int(n), int(length)
model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32 if "--float" in sys.argv else "auto")
tok = AutoTokenizer.from_pretrained(model_dir) if "--ids" not in sys.argv else None
rows = [json.loads(line) for line in open(calib)][:n]
acts = {}

def hook(name):
    def see(module, args):
        acts[name] = acts.get(name, 0) + args[0].pow(2).sum(dim=(0, 1)).sqrt() / n
    return see

for name, module in model.named_modules():
    if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
        module.register_forward_pre_hook(hook(name))
with torch.no_grad():
    for row in rows:
        ids = tok(row["text"]).input_ids if tok else row["input_ids"]
        model(torch.tensor([ids[:length]]))
modifier = SparseGPTModifier(sparsity=float(sparsity), sparsity_profile="owl", owl_m=int(m), owl_lmbda=float(lmbda))
object.__setattr__(modifier, "_get_activations", lambda *a, **k: acts)
layers = {f"model.layers.{i}": layer for i, layer in enumerate(model.model.layers)}
print(json.dumps(modifier._infer_owl_layer_sparsity(model, layers, rows), indent=1))
