"""gen.py - writes the scales and zero points of keys and values that LLM Compressor finds for the
small model in examples/, with four samples of 64 tokens, one per batch.

usage: python gen.py      (in an environment with llmcompressor, transformers, torch)

scales.json has, for each recipe, its keys, and the shape and values of each tensor. BF16 scales are
stored as bits. tests/cli/kv_cache.sh runs the recipes and compares the tensors.

During calibration, LLM Compressor 0.14.0.1 removes the attention that observes queries, and writes
uninitialized memory as q_scale. So this script itself computes the query scales. It applies LLM
Compressor's observers to the queries of the same samples. """
import importlib.metadata
import json
import pathlib

import torch
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.observers import Observer
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.sdpa_attention import sdpa_attention_forward

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parents[2] / "examples" / "docs-llama-3m"
FP8 = "scheme: FP8_DYNAMIC, ignore: [lm_head], "
CACHE = "kv_cache_scheme: {num_bits: 8, dynamic: false, %s}"
RECIPES = {
    "float-minmax": FP8 + CACHE % "type: float, strategy: tensor, symmetric: true",
    "int-static_minmax": FP8 + CACHE % "type: int, strategy: tensor, symmetric: true, observer: static_minmax",
    "float-heads": FP8 + CACHE % "type: float, strategy: attn_head, symmetric: true",
    "int-zeros": FP8 + CACHE % "type: int, strategy: tensor, symmetric: false",
    "attention": "config_groups: {group_0: {targets: [LlamaAttention], input_activations: {num_bits: 8, type: float, "
                 "strategy: tensor, symmetric: true}}}",
    "attention-heads": "config_groups: {group_0: {targets: [Linear], weights: {num_bits: 8, strategy: channel}}, "
                       "group_1: {targets: ['re:.*self_attn$'], input_activations: {num_bits: 8, type: int, strategy: "
                       "attn_head, symmetric: true, observer: static_minmax}}}, ignore: [lm_head]",
    "alone": CACHE % "type: int, strategy: attn_head, symmetric: false, observer: mse",
}


def query_scales(rows, args):
    """Returns the query scales of each layer, observed sample by sample."""
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
    layers = [Observer.load_from_registry(args.observer, base_name="q", args=args) for _ in model.model.layers]

    def observed(module, query, *rest, **more):
        layers[module.layer_idx](query)
        return sdpa_attention_forward(module, query, *rest, **more)

    AttentionInterface.register("observed", observed)
    model.set_attn_implementation("observed")
    with torch.no_grad():
        for row in rows:
            model(torch.tensor([row]))
    return {f"model.layers.{i}.self_attn.q_scale": o.get_qparams()["scale"] for i, o in enumerate(layers)}


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    lines = (MODEL / "data" / "calibration.jsonl").read_text().splitlines()[:4]
    rows = [tokenizer(json.loads(line)["text"]).input_ids[:64] for line in lines]
    out = {}
    for name, keys in RECIPES.items():
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
        recipe = "s_stage: {s_modifiers: {QuantizationModifier: {%s}}}" % keys
        data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(r) for r in rows]})
        oneshot(model=model, recipe=recipe, dataset=data, num_calibration_samples=len(rows), batch_size=1,
                max_seq_length=64, shuffle_calibration_samples=False)
        found = {}
        state = dict(model.state_dict())
        attention = [m for n, m in model.named_modules() if n + ".q_scale" in state]
        if attention:
            state |= query_scales(rows, attention[0].quantization_scheme.input_activations)
        for k, v in state.items():
            if not k.endswith(("k_scale", "v_scale", "q_scale", "k_zero_point", "v_zero_point", "q_zero_point")):
                continue
            # LLM Compressor writes zero points of symmetric schemes, but no loader expects them
            if k.endswith("zero_point") and "symmetric: true" in keys:
                continue
            bits = v.view(torch.int16).int() & 0xffff if v.dtype == torch.bfloat16 else v.to(torch.int32)
            found[k] = [list(v.shape), bits.flatten().tolist()]
        out[name] = {"keys": keys, "tensors": found}
        assert len(found) >= 8
    versions = {p: importlib.metadata.version(p) for p in ("torch", "compressed-tensors", "llmcompressor")}
    lines = ['{"versions": ' + json.dumps(versions)]
    for name, recipe in out.items():
        rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in recipe["tensors"].items())
        lines.append(f' "{name}": {{"keys": {json.dumps(recipe["keys"])}, "tensors": {{\n{rows}}}}}')
    (HERE / "scales.json").write_text(",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
