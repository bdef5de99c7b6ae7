"""_small.py - makes the config.json of a small model with the structure of a large one. Plain
Python."""

import copy

# The sizes that templates name, such as "D". For each size, the row lists the keys of config.json
# that give the size in many families, and the value of the size in the small model. The widths of
# weights are these sizes, or products of them such as H * Dh. No two widths are equal, so each
# number has only one meaning.
SIZES = {
    "D": (("hidden_size", "n_embd", "d_model", "dim"), 130),
    "F": (("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"), 88),
    "H": (("num_attention_heads", "n_head", "n_heads", "num_heads"), 10),
    "K": (("num_key_value_heads", "n_head_kv", "num_kv_heads", "num_query_groups"), 5),
    "Dh": (("head_dim", "kv_channels", "attention_head_dim"), 16),
    "V": (("vocab_size", "padded_vocab_size"), 131),
    "L": (("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    "E": (("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 7),
    "Fe": (("moe_intermediate_size", "expert_ffn_hidden_size"), 52),
    "Fs": (("shared_expert_intermediate_size", "shared_intermediate_size"), 68),
}
LIMITS = {
    "max_position_embeddings": 256,
    "n_positions": 256,
    "seq_length": 256,
    "max_seq_len": 256,
    "num_experts_per_tok": 3,
    "moe_k": 3,
    "moe_topk": 3,
    "sliding_window": 7,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "query_pre_attn_scalar": 311,
    "rotary_dim": 8,
    "n_shared_experts": 3,
    "num_shared_experts": 3,
    "moe_num_shared_experts": 3,
}
TOKENS = 23  # number of tokens of the traced sample; no size of the model equals it
MOST_LAYERS = 12
FACTORS = ("multiplier", "logit_scale", "logits_scaling", "scaling_factor", "scale_emb")


def size_keys(known):
    """Returns {symbol: key} for the sizes in a configuration. known: the keys of the
    configuration."""
    found = {}
    for symbol, (names, _) in SIZES.items():
        for name in names:
            if name in known and isinstance(known[name], int) and not isinstance(known[name], bool):
                found[symbol] = name
                break
    return found


def layers_needed(full, n_layers):
    """Returns the smallest n such that the first n layers have all kinds of layers. Kinds differ in
    the lists of the configuration."""
    lists = [v for v in full.values() if isinstance(v, list) and len(v) == n_layers]
    lists = [v for v in lists if all(isinstance(x, (str, int, bool)) for x in v)]
    kinds = list(zip(*lists))
    least = max((kinds.index(kind) for kind in set(kinds)), default=0) + 1
    dense = [
        v for k, v in full.items() if k.startswith("first_k_dense") and isinstance(v, int) and v > 0
    ]
    every = [
        v
        for k, v in full.items()
        if k.endswith(("sparse_step", "moe_layer_step")) and isinstance(v, int)
    ]
    return max([2, least] + [3 for _ in dense] + [v for v in every if v <= MOST_LAYERS])


def _shorten(value, full, small):
    """Returns a value of the configuration for the small model: lists with an item per layer, or
    per rotated element, are cut."""
    if isinstance(value, dict):
        return {k: _shorten(v, full, small) for k, v in value.items()}
    if isinstance(value, list) and len(value) == full["L"]:
        return value[: small["L"]]
    if isinstance(value, list) and full.get("rotated") and len(value) == full["rotated"]:
        return value[: small["rotated"]]
    return value


def rotated_share(full):
    """Returns the fraction of a head that rope rotates, according to the configuration."""
    for of in (full, full.get("rope_parameters") or {}, full.get("rope_scaling") or {}):
        if isinstance(of, dict) and isinstance(of.get("partial_rotary_factor"), (int, float)):
            return of["partial_rotary_factor"]
    return 1


def make_small(raw, full, perturbed=True):
    """Returns the config.json of the small model, the keys {symbol: key} and the changed keys.

    raw: the user's config.json
    full: the same with all defaults of its class
    perturbed: if true, factors and epsilons get values that no other key has, so that they can be
        found in the trace"""
    keys, small = size_keys(full), copy.deepcopy(raw)
    n_layers = full[keys["L"]] if "L" in keys else 0
    values = {symbol: SIZES[symbol][1] for symbol in keys}
    values["L"] = min(layers_needed(full, n_layers), n_layers or 2, MOST_LAYERS)
    if "Dh" not in keys:
        values["D"] = values["H"] * SIZES["Dh"][1]
    if "K" in keys and full[keys["K"]] == 1:
        values["K"] = 1
    share = rotated_share(full)
    head = full[keys["Dh"]] if "Dh" in keys else full[keys["D"]] // max(full[keys["H"]], 1)
    sizes = {"L": n_layers, "rotated": int(head * share) // 2}
    shrunk = {"L": values["L"], "rotated": int(SIZES["Dh"][1] * share) // 2}
    small = {k: _shorten(v, sizes, shrunk) for k, v in small.items()}
    small.update({keys[symbol]: values[symbol] for symbol in keys})
    for name, value in LIMITS.items():
        if isinstance(full.get(name), int) and not isinstance(full[name], bool) and full[name] > 0:
            small[name] = min(value, full[name]) if name in ("n_group", "topk_group") else value
    for name in list(full):
        if name.endswith("_token_id") and full[name] is not None:
            small[name] = None if name == "pad_token_id" else 1
    changed = sorted(perturb(small, full)) if perturbed else []
    for name in ("torch_dtype", "dtype"):
        if name in small:
            small[name] = "float32"
    small.setdefault("torch_dtype", "float32")
    small.pop("quantization_config", None)
    return small, keys, changed


def perturb(small, full):
    """Gives epsilons and factors values of their own, and returns their keys."""
    changed = set()
    for i, (name, value) in enumerate(sorted(full.items())):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if "cap" in name.split("_")[-1] and value > 0:  # below the scores, which are about 1
            small[name] = round(1.31 + 0.23 * len(changed), 4)
        elif "eps" in name and 0 < value < 0.1:
            small[name] = round(0.0131 + 0.0017 * i / 7, 6)
        elif value == 1 and any(part in name for part in FACTORS):
            small[name] = round(0.83 + 0.017 * i, 4)
        else:
            continue
        changed.add(name)
    return changed
