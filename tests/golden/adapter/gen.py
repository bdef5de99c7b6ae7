#!/usr/bin/env python3
"""gen.py - makes LoRA adapters of PEFT for tiny models. The directory of an adapter also has the
merged model that PEFT's merge_and_unload makes (expected.safetensors).

    gen.py        writes a directory for each adapter, and MANIFEST.json, beside gen.py

Needs peft, torch and transformers. The elements of the adapters are multiples of 1/16. So sums do
not depend on the order of additions, and the merged weights are equal bit for bit."""
import json
import os
import shutil

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

SEED = 20260711
HERE = os.path.dirname(os.path.abspath(__file__))


def make(name, cls, config, dtype, **lora):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model = cls(config).to(dtype)
    model.save_pretrained(folder)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **lora))
    with torch.no_grad():
        for key, t in model.named_parameters():
            if "lora_" in key:
                t.copy_(torch.randint(-8, 9, t.shape) / 16)
            elif "modules_to_save" in key or (lora.get("bias") == "lora_only" and key.endswith("bias")):
                t.copy_(torch.randn(t.shape).to(t.dtype))
    model.save_pretrained(os.path.join(folder, "adapter"))
    merged = PeftModel.from_pretrained(cls.from_pretrained(folder, dtype="auto"), os.path.join(folder, "adapter")).merge_and_unload()
    merged.save_pretrained(os.path.join(folder, "merged"))
    os.rename(os.path.join(folder, "merged", "model.safetensors"), os.path.join(folder, "expected.safetensors"))
    shutil.rmtree(os.path.join(folder, "merged"))
    for extra in ("generation_config.json", "adapter/README.md"):
        if os.path.exists(os.path.join(folder, extra)):
            os.remove(os.path.join(folder, extra))
    path = os.path.join(folder, "adapter", "adapter_config.json")
    with open(path) as f:
        made = json.load(f)
    made["base_model_name_or_path"], made["fan_in_fan_out"] = name, False  # PEFT decides by the class of a module
    made["target_modules"] = sorted(made["target_modules"])
    with open(path, "w") as f:
        json.dump(made, f, indent=2)


def main():
    torch.manual_seed(SEED)
    llama = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                     num_key_value_heads=2, vocab_size=72, tie_word_embeddings=False)
    make("llama", transformers.LlamaForCausalLM, llama, torch.bfloat16, r=8, lora_alpha=12,
         target_modules=["q_proj", "v_proj", "down_proj", "embed_tokens"], modules_to_save=["lm_head", "norm"],
         rank_pattern={"q_proj": 4, r"layers\.1\.mlp.*": 3}, alpha_pattern={"model.layers.0.self_attn.v_proj": 5})
    make("llama_rs", transformers.LlamaForCausalLM, llama, torch.float16, r=6, lora_alpha=12, target_modules="all-linear",
         use_rslora=True)
    gpt2 = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=72, n_positions=16)
    make("gpt2", transformers.GPT2LMHeadModel, gpt2, torch.bfloat16, r=4, lora_alpha=7, target_modules=["c_attn", "c_proj", "wte"],
         bias="lora_only")
    with open(os.path.join(HERE, "MANIFEST.json"), "w") as f:
        json.dump({"seed": SEED, "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__,
                   "peft": peft.__version__}, f, indent=1)


if __name__ == "__main__":
    main()
