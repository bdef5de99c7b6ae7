"""gen_logits.py - computes F32 logits of tiny random checkpoints with transformers and eager
attention. The families are those of scripts/tiny_families.py that have no case in
tests/golden/models.

usage: python gen_logits.py [FAMILY...]      (in an environment with numpy, safetensors, torch,
       transformers)

Weights and token ids come from the counter RNG of src/base/rng.h. A family has two files in
logits/:
  <family>.json   config.json without the keys that have their defaults; names and shapes of
                  the tensors outside of towers
  <family>.npy    f32 logits [TOKENS, VOCABULARY]
"""
import importlib.metadata
import json
import pathlib
import re
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent.parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "models"), str(ROOT / "scripts")]
import tiny_families  # noqa: E402
from renamed_families import RENAMED  # noqa: E402
from gen import weight  # noqa: E402  (of tests/golden/models)
from rng import rng_u64  # noqa: E402

SEED, TOKENS, VOCABULARY = 20240607, 20, 48
TOWER = re.compile(r"(^|\.)(vis|image|video|multi_modal|connector|aligner|generation|vqmodel|mm_|audio|encoder|projector|spatial|layerwise|window|qformer|query_tokens|vit\.|mlp1|mlp_AR|embed_(vision|audio)|slope_rate|(query|key|diagonal)_decay|patch_merge)")


def small(members):
    """Returns the members of a configuration with the small vocabulary of these tests."""
    for inner in ("text_config", "thinker_config"):
        if inner in members:
            return members | {inner: small(members[inner])}
    return members | {"vocab_size": VOCABULARY}


HASHES = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")


def table(name, shape):
    """Returns the experts of each token of DeepSeek V4's hash layers, or the numbers of a hash of
    Qwen4-exp, by the rules of tiny.h."""
    i = np.arange(np.prod(shape))
    if name.endswith(HASHES):
        return (11 + 37 * i).astype(np.int32)
    return ((i // 2 + i) % 4).astype(np.int32).reshape(shape)


def make(family):
    if family in RENAMED:
        RENAMED[family].members = small(RENAMED[family].members)
    else:
        tiny_families.FAMILIES[family] = small(tiny_families.FAMILIES[family])
    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d) / "source"
        model = tiny_families.make(family, folder, torch.float32, 1)
        auto = next(a for a in tiny_families.AUTO if type(model.config) in a._model_mapping)
        shapes = [[n, list(t.shape)] for n, t in sorted(tiny_families.tensors(folder).items())]
        stored = [row for row in shapes if family in RENAMED or not TOWER.search(row[0])]
        save_file({n: torch.from_numpy(table(n, s) if n.endswith(("tid2eid", *HASHES)) else np.asarray(weight(n, s))) for n, s in stored}, folder / "model.safetensors", {"format": "pt"})
        loaded, names = tiny_families.load(folder, auto, **tiny_families.EAGER)
        assert all(TOWER.search(n) for n in names), (family, names)
        ids = (rng_u64(SEED, 7, TOKENS) % np.uint64(VOCABULARY)).astype(np.int64)
        with torch.no_grad():
            logits = tiny_families.speaker(loaded.float())(torch.from_numpy(ids)[None], use_cache=False).logits[0].numpy()
        tiny_families.strip(folder, pathlib.Path(d) / "bare")
        config = json.loads((pathlib.Path(d) / "bare" / "config.json").read_text())
    for key in [k for k in config if k.endswith("_config") and k not in ("text_config", "llm_config", "thinker_config", "attn_config", "ffn_config")]:
        del config[key]
    assert np.isfinite(logits).all() and logits.shape == (TOKENS, VOCABULARY), (family, logits.shape)
    rows = {"config": config, "lens": [TOKENS], "logit_samples": 1, "tensors": stored}
    (HERE / "logits" / f"{family}.json").write_text(json.dumps(rows, separators=(",", ":")) + "\n")
    np.save(HERE / "logits" / f"{family}.npy", logits.astype(np.float32))
    print(f"{family:24s} {config['architectures'][0]}  {len(stored)} tensors", flush=True)


def wanted():
    """Returns the architectures that have a template and no case in tests/golden/models."""
    cases = [json.loads(p.read_text()) for p in (HERE.parent / "models").glob("*.json") if p.name != "MANIFEST.json"]
    templates = [json.loads(p.read_text()) for p in (ROOT / "models").glob("*.json")]
    return {a for t in templates for a in t["architectures"]} - {c["config"]["architectures"][0] for c in cases}


def architecture(family):
    if family in RENAMED:
        return RENAMED[family].architecture
    members = dict(tiny_families.FAMILIES[family])
    config = transformers.AutoConfig.for_model(members.pop("model_type", family))
    return next(a._model_mapping[type(config)] for a in tiny_families.AUTO if type(config) in a._model_mapping).__name__


def main():
    transformers.logging.set_verbosity_error()
    (HERE / "logits").mkdir(exist_ok=True)
    names = wanted()
    for family in sys.argv[1:] or [f for f in tiny_families.FAMILIES | RENAMED if architecture(f) in names]:
        make(family)
    versions = {p: importlib.metadata.version(p) for p in ("numpy", "torch", "transformers")}
    (HERE / "logits" / "MANIFEST.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
