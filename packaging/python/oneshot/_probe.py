"""_probe.py - compares a module with an op of liboneshot. It makes a model that has only this op:

    input_ids -> embedding [W, W] -> op -> head (identity [W, W]) -> logits

The rows of the embedding are random, and the logits are the outputs of the op for these rows."""

import json
import os

import numpy
from safetensors.numpy import save_file

from ._names import print_template

CONFIG = {
    "architectures": ["ProbeForCausalLM"],
    "model_type": "probe",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "num_hidden_layers": 1,
    "max_position_embeddings": 256,
}


def _graph(entry, width):
    layer = {
        "name": "layers.{i}",
        "class": "Layer",
        "repeat": 1,
        "nodes": [
            {**entry, "in": ["h"], "out": "y"},
            {"of": "", "op": "scale", "in": ["y"], "out": "h", "attr": {"by": 1}},
        ],
    }
    return {
        "architectures": ["ProbeForCausalLM"],
        "dims": {"D": width, "V": width, "L": 1},
        "head": "lm_head",
        "before": [
            {
                "name": "embed",
                "class": "Embedding",
                "op": "embedding",
                "in": ["input_ids"],
                "out": "h",
                "weight": ["V", "D"],
            },
            {"name": "layers", "class": "ModuleList"},
        ],
        "layer": layer,
        "after": [
            {
                "name": "lm_head",
                "class": "Linear",
                "op": "linear",
                "in": ["h"],
                "out": "logits",
                "weight": ["V", "D"],
            }
        ],
    }


def probe(check, home, entry, weights, call, defaults=None):
    """Compares the op of a template entry with the function `call`. Returns the result of `check`.

    check: runs check-model with given arguments, and returns exit code and text
    entry: the template entry, without inputs and output
    weights: {leaf: array}
    call: the function of arrays that the module computes"""
    width = next(iter(weights.values())).size if weights else 64
    os.makedirs(os.path.join(home, "templates"), exist_ok=True)
    rows = numpy.random.default_rng(5).normal(size=(width, width)).astype(numpy.float32)
    tensors = {"embed.weight": rows, "lm_head.weight": numpy.eye(width, dtype=numpy.float32)}
    tensors.update({"layers.0.probe.%s" % k: v.astype(numpy.float32) for k, v in weights.items()})
    save_file(tensors, os.path.join(home, "model.safetensors"))
    graph = _graph(entry, width)
    if defaults:
        graph["defaults"] = defaults
    with open(os.path.join(home, "config.json"), "w", encoding="utf-8") as f:
        json.dump(dict(CONFIG, hidden_size=width, vocab_size=width), f)
    with open(os.path.join(home, "templates", "probe.json"), "w", encoding="utf-8") as f:
        f.write(print_template(graph))
    wanted = os.path.join(home, "logits-of-the-module")
    save_file(
        {"input_ids": numpy.arange(width), "logits": call(rows).astype(numpy.float32)}, wanted
    )
    return check(home, "--models-dir", os.path.join(home, "templates"), "--logits", wanted)


def probe_norm(check, home, norm, own, call):
    """Compares a norm with the op that _match.Norm found. own: the parameters of the norm."""
    attr = {"eps": norm.eps}
    if norm.offset:
        attr["offset"] = norm.offset
    if norm.plain:
        return None
    entry = {"name": "probe", "class": "Norm", "op": norm.op, "weight": ["D"], "attr": attr}
    weights = {"weight": own[norm.leaf]}
    if norm.bias:
        entry["bias"], weights["bias"] = True, own["bias"]
    return probe(check, home, entry, weights, call)


def probe_act(check, home, act, call):
    """Compares an activation with the op `act`."""
    entry = {"of": "", "op": "act", "attr": {"act": "probed"}}
    return probe(check, home, entry, {}, call, {"probed": act})
