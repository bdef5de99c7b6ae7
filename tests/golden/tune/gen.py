"""gen.py - tunes tiny models of tests/golden/models in f32 like src/learn/tune.h, with PyTorch and
autograd.

curves.json has, for each case, two kinds of KL divergence: that of the rows of a step, before each
step, and that of the held-out row, before and after all steps. test_tune.c makes the same weights,
tokens and codes. Run: python gen.py (torch, transformers, numpy)."""
import importlib.util
import json
import math
import pathlib
import sys

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
spec = importlib.util.spec_from_file_location("models_gen", HERE.parent / "models" / "gen.py")
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)

STEPS, ROWS, CODE_RATE, RATE, BITS = 24, 2, 0.01, 0.004, 3
CASES = {"llama_default": (8, False), "gemma2": (0, True)}  # group size (0: a row), zero points


def load(name):
    config = dict(models.CASES[name][0])
    m = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config), attn_implementation="eager",
                                                      dtype=torch.float32).eval()
    state = m.state_dict()
    for k, v in state.items():
        if not k.endswith("inv_freq"):
            state[k] = torch.from_numpy(np.ascontiguousarray(models.weight(k, tuple(v.shape))))
    m.load_state_dict(state)
    m.tie_weights()
    for p in m.parameters():
        p.requires_grad_(False)
    return m


def near(x):  # rounds x; the gradient is that of x without rounding
    return x + (x.round() - x).detach()


class Codes(torch.nn.Module):
    def __init__(self, w, group, zeros):
        super().__init__()
        rows, cols = w.shape
        self.n, self.lo, self.hi = group or cols, -(1 << BITS - 1), (1 << BITS - 1) - 1
        self.s0 = w.reshape(rows, -1, self.n).abs().amax(-1) * 0.25
        k = torch.arange(self.s0.numel()).reshape(self.s0.shape)
        self.z = (k % 3 - 1).float() if zeros else torch.zeros_like(self.s0)
        exact = w / self.wide(self.s0) + self.wide(self.z)
        code = exact.round().clamp(self.lo, self.hi)
        self.v = torch.nn.Parameter(code + (exact - code).clamp(-0.4, 0.4))
        self.d = torch.nn.Parameter(torch.zeros_like(self.s0))

    def wide(self, s):
        return s.repeat_interleave(self.n, 1)

    def forward(self, x):
        q = near(self.v.clamp(self.lo, self.hi))
        return torch.nn.functional.linear(x, (q - self.wide(self.z)) * self.wide(self.s0 * (1 + self.d)))


class Norm(torch.nn.Module):  # learns d: w + offset = (w0 + offset) (1 + d)
    def __init__(self, of, offset):
        super().__init__()
        self.w0, self.offset = of.weight.detach() + offset, offset
        self.eps = getattr(of, "variance_epsilon", getattr(of, "eps", None))
        self.d = torch.nn.Parameter(torch.zeros_like(self.w0))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.w0 * (1 + self.d)


def quantize(m, group, zeros):
    for name, x in list(m.named_modules()):
        if not name or name == "lm_head":
            continue
        parent, leaf = m.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        if isinstance(x, torch.nn.Linear):
            setattr(parent, leaf, Codes(x.weight.detach(), group, zeros))
        elif type(x).__name__.endswith("RMSNorm"):
            setattr(parent, leaf, Norm(x, 1.0 if "Gemma" in type(x).__name__ else 0.0))


def divergence(m, ref, row):
    a, r = m(row[None]).logits[0, :-1].log_softmax(-1), ref[:-1].log_softmax(-1)
    return (r.exp() * (r - a)).sum()


def part(t):
    return (t + 1) / 4 if t < 4 else 0.05 + 0.95 * (1 + math.cos(math.pi * (t - 4) / (STEPS - 4))) / 2


def learn(name, group, zeros):
    m, dense = load(name), load(name)
    rows = [torch.from_numpy(x) for x in models.tokens(dense.config.vocab_size)]
    with torch.no_grad():
        refs = [dense(x[None]).logits[0] for x in rows]
    quantize(m, group, zeros)
    ps = [(p, CODE_RATE if n.endswith(".v") else RATE) for n, p in m.named_parameters() if p.requires_grad]
    mean, square = [torch.zeros_like(p) for p, _ in ps], [torch.zeros_like(p) for p, _ in ps]
    train, held = len(rows) - 1, len(rows) - 1
    with torch.no_grad():
        before = (divergence(m, refs[held], rows[held]) / (len(rows[held]) - 1)).item()
    curve = []
    for t in range(STEPS):
        which = [(t * ROWS + j) % train for j in range(ROWS)]
        loss = sum(divergence(m, refs[i], rows[i]) for i in which) / sum(len(rows[i]) - 1 for i in which)
        loss.backward()
        curve.append(loss.item())
        with torch.no_grad():
            for (p, rate), a, v in zip(ps, mean, square):
                a.mul_(0.9).add_(p.grad, alpha=0.1)
                v.mul_(0.95).addcmul_(p.grad, p.grad, value=0.05)
                p.sub_(part(t) * rate * (a / (1 - 0.9 ** (t + 1))) / ((v / (1 - 0.95 ** (t + 1))).sqrt() + 1e-12))
                p.grad = None
    with torch.no_grad():
        after = (divergence(m, refs[held], rows[held]) / (len(rows[held]) - 1)).item()
    print(name, before, curve[0], curve[-1], after)
    return {"group": group, "zeros": zeros, "before": before, "after": after, "curve": curve}


if __name__ == "__main__":
    out = {name: learn(name, *how) for name, how in CASES.items()}
    (HERE / "curves.json").write_text(json.dumps(out, indent=1) + "\n")
    (HERE / "MANIFEST.json").write_text(json.dumps({"seed": models.SEED, "torch": torch.__version__.split("+")[0],
                                                    "transformers": transformers.__version__}, indent=1) + "\n")
