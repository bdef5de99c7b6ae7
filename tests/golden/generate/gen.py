"""gen.py - writes greedy continuations of tiny random checkpoints by transformers' generate (F32,
eager attention).

The checkpoints are those of ../models: <case>.json has the config and the shapes of the tensors,
and the weights come from the counter RNG. generate.json has, for each case, pairs of prompt ids and
new ids. At every step, the two largest logits of a prompt must differ by more than 1e-4 times the
largest |logit|, so that rounding cannot change the result. If several prompts meet this condition,
the script uses the prompt with the most different new tokens. Some texts end with eos_token_id of
config.json.

Run: python gen.py [CASE...] (torch, transformers, safetensors, numpy)
"""
import importlib.util
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(MODELS))

spec = importlib.util.spec_from_file_location("models_gen", MODELS / "gen.py")
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)

GAP = 1e-4
TRIES = 12
# Each pair has the number of tokens of the prompt and the number of new tokens. The first pair
# crosses windows (16), chunks (24) and the length at which rope changes (32). The second prompt is
# shorter than a convolution.
LENGTHS = [(20, 24), (2, 12)]
# the text becomes longer than 64 tokens, the length at which longrope of Phi-3 changes
LONG = {"phi3_longrope": [(56, 24), (2, 12)]}
# Cases that run without a cache, because of two faults of transformers. 1. Phi3 should drop its
# cache when the frequencies of longrope change (prepare_inputs_for_generation). In this version of
# transformers that code has no effect, so keys keep the frequencies of short texts. 2. Mamba2's
# step for one token ignores time_step_limit.
NO_CACHE = ("phi3_longrope", "mamba2_limit")
SPECIAL = 45  # in vision models, ids from this one on stand for images


def eos_of(config):
    text = config.get("text_config", config)
    return config.get("eos_token_id", text.get("eos_token_id"))


def load(directory, config):
    model = models.loader(config).from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                  experts_implementation="eager").eval()
    model.generation_config.eos_token_id = eos_of(config)
    model.generation_config.pad_token_id = None
    return model


def greedy(model, prompt, n_new, use_cache):
    with torch.no_grad():
        out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=n_new,
                             do_sample=False, use_cache=use_cache, output_logits=True, return_dict_in_generate=True)
    gaps = []
    for logits in out.logits:
        top = torch.topk(logits[0].float(), 2).values
        gaps.append(float((top[0] - top[1]) / logits[0].abs().max()))
    return [int(i) for i in out.sequences[0][len(prompt):]], min(gaps)


def make(case):
    stored = json.loads((MODELS / f"{case}.json").read_text())
    config, vision = stored["config"], "text_config" in stored["config"]
    vocab = SPECIAL if vision else config["vocab_size"]
    found = []
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "config.json").write_text(json.dumps(config))
        save_file({n: torch.from_numpy(np.asarray(models.weight(n, s))) for n, s in stored["tensors"]}, pathlib.Path(d) / "model.safetensors")
        for n_prompt, n_new in LONG.get(case, LENGTHS):
            best = None
            for attempt in range(TRIES):
                prompt = [int(i) for i in models.rng_u64(models.SEED, 1000 + attempt, n_prompt) % np.uint64(vocab)]
                made, gap = greedy(load(d, config), prompt, n_new, case not in NO_CACHE)
                good = gap > GAP and (len(made) == n_new or made[-1] == eos_of(config))
                if good and (best is None or len(set(made)) > len(set(best[1]))):
                    best = (prompt, made)
                if best and len(set(best[1])) > n_new // 3:
                    break
            assert best, (case, n_prompt)
            print(f"{case:30s} {n_prompt:3d} + {n_new} tokens, {len(set(best[1]))} different")
            found.append({"prompt": best[0], "new": best[1]})
    return found


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    path = HERE / "generate.json"
    asked = sys.argv[1:] or list(models.CASES)
    cases = json.loads(path.read_text())["cases"] if path.exists() else {}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    for case in asked:
        cases[case] = make(case)
        rows = ",\n".join(f" {json.dumps(c)}: {json.dumps(cases[c], separators=(',', ':'))}" for c in models.CASES if c in cases)
        path.write_text(f'{{"versions": {json.dumps(versions)},\n"cases": {{\n{rows}}}}}\n')


if __name__ == "__main__":
    main()
