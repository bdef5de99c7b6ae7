"""gen.py - runs AdaRound, AdaQuant and AutoRound of a whole decoder layer (src/learn/block.h) in
PyTorch, with the layer of transformers, autograd and torch.optim.Adam. The layer is the first layer
of the tiny Llama of tests/golden/models in F32. The input of the original layer is the embeddings.
The input of the quantized layer is this input plus noise: a sixteenth of a random number for each
element.

curves.json has, for each kind, the loss before each step. codes.bin has all codes, one byte each:
kind after kind, and for each kind the Linears in the order of the layer's nodes. Three cases are
special:

    bias   AdaQuant of the tiny Qwen2, which also learns the biases of q_proj, k_proj and v_proj;
           biases.bin has the biases
    drop   AdaRound with a drop_ratio: in each step, a random half of the elements of the input
           (src/ops/mix.c) is from the quantized layer's input, the other half from the original
           layer's input
    fp4    AutoRound with codes of FP4 (E2M1) and scales in F32; fp4.bin has its codes

Run: python gen.py (torch, transformers, numpy)."""
import importlib.util
import json
import pathlib
import sys

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym, rng_u64  # noqa: E402
spec = importlib.util.spec_from_file_location("models_gen", HERE.parent / "models" / "gen.py")
tiny = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tiny)

SEED, SAMPLES, STEPS, GROUP, LO, HI = 20261123, 2, 40, 8, -8, 7
LINEARS = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
# kinds of AutoRound. "auto": scales are positive. "signed": scales may be negative. "fp4": codes
# are FP4.
SIGNS = {"auto", "signed", "fp4"}
# learning rates of codes and of scales
KINDS = {"auto": (0.05, 0.05), "signed": (0.05, 0.05), "round": (0.1, 0), "quant": (2e-4, 1e-3)}
REG, FROM, TO, WARM = 0.01, 20.0, 2.0, 0.2
BIAS_RATE, SHARE = 1e-3, 0.5


def near(x):  # rounds x; the gradient is that of x without rounding
    return x.round().detach() + (x - x.detach())


def clip(x):  # like torch.clamp, but the gradient at both ends of the range is 1
    inside = ((x >= LO) & (x <= HI)).float()
    return x.detach().clamp(LO, HI) + (x - x.detach()) * inside


def near_fp4(x):  # clips x to [-6, 6] and rounds to E2M1; the gradient is that of the clipped x
    inside = (x.abs() <= 6).float()
    y = x.detach().clamp(-6, 6)
    step = torch.where(y.abs() < 2, 0.5, torch.where(y.abs() < 4, 1.0, 2.0))
    return (y / step).round() * step + (x - x.detach()) * inside


def code_fp4(q):
    size = torch.searchsorted(torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]), q.abs().contiguous())
    return (size + 8 * (q < 0)).to(torch.int8).numpy()


def wide(t, group):
    return t.repeat_interleave(group, 1)


def draws(n, take):
    order, at, shuffles = [], n, 0
    while True:
        if at + take > n:
            order, at = list(range(n)), 0
            for i in range(n - 1, 0, -1):
                k = int(rng_u64(SEED, shuffles, i + 1)[i]) % (i + 1)
                order[i], order[k] = order[k], order[i]
            shuffles += 1
        yield order[at:at + take]
        at += take


def mixed(x, x0, sample, t):
    key = int(rng_u64(SEED, 1 << 20, t + 1)[t])
    u = rng_u64(key, sample, x.numel()).reshape(x.shape) >> np.uint64(40)
    return torch.where(torch.from_numpy(u < np.uint64(int(SHARE * 2**24))), x, x0)


class Codes:
    def __init__(self, w, kind, group=GROUP):
        self.w, self.kind, self.group = w, kind, group
        groups = w.reshape(w.shape[0], -1, group)
        self.s0 = groups.abs().amax(-1) / (6 if kind == "fp4" else 7.5)
        self.low, self.high = -groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        u = w / wide(self.s0, group)
        self.below = u.floor()
        zero = torch.zeros_like(w)
        first = {"auto": zero, "signed": zero.clone(), "fp4": zero.clone(), "quant": w.clone(), "round": -torch.log(1.2 / (u - self.below + 0.1) - 1)}
        self.v = first[kind].requires_grad_()
        self.a, self.b = (torch.ones_like(self.s0, requires_grad=True) for _ in range(2))
        self.d = torch.zeros_like(self.s0, requires_grad=True)

    def scale(self):
        if self.kind == "signed":
            return torch.where(self.a * self.low > self.b * self.high, self.a * self.low, -self.b * self.high) / -LO
        if self.kind == "fp4":
            return self.b * torch.maximum(self.low, self.high) / 6
        if self.kind == "auto":
            s = self.s0 * torch.where(self.a * self.low > self.b * self.high, self.a * self.low, self.b * self.high)
            s = s / torch.maximum(self.low, self.high)
            moved = (self.a != 1) | (self.b != 1)
            return s + (torch.where(moved, s, self.s0) - s).detach()
        return self.s0 * (1 + self.d) if self.kind == "quant" else self.s0

    def soft(self):
        return (torch.sigmoid(self.v) * 1.2 - 0.1).clamp(0, 1)

    def codes(self):
        s = wide(self.scale(), self.group)
        if self.kind == "round":
            return clip(self.below + self.soft())
        if self.kind == "fp4":
            return near_fp4(self.w / s + self.v)
        return clip(near(self.w / s + self.v if self.kind in SIGNS else self.v / s))

    def weight(self):
        return self.codes() * wide(self.scale(), self.group)

    def last(self):
        if self.kind == "fp4":
            return code_fp4(self.codes().detach())
        q = self.below + (self.v >= 0) if self.kind == "round" else self.codes().round()
        return q.clamp(LO, HI).detach().to(torch.int8).numpy()

    def term(self, t):
        warm = int(WARM * STEPS)
        if self.kind != "round" or t < warm:
            return 0
        beta = TO + (FROM - TO) / 2 * (1 + np.cos(np.pi * (t - warm) / (STEPS - warm)))
        return REG * (1 - (2 * self.soft() - 1).abs().pow(beta)).sum()

    def follow(self, t, rates):  # makes a step of AutoRound along the signs of the gradients
        part = (STEPS - t) / STEPS
        with torch.no_grad():
            self.v.sub_(part * rates[0] * self.v.grad.sign()).clamp_(-0.5, 0.5)
            for x in (self.a, self.b):
                if x.grad is not None:
                    x.sub_(part * rates[1] * x.grad.sign()).clamp_(0, 1)
        self.v.grad = self.a.grad = self.b.grad = None


def runner(model, layer):  # returns a function that runs a sample with given weights
    def run(x, weights):
        n = x.shape[0]
        mask = torch.full((n, n), -1e30).triu(1)[None, None]
        places = model.model.rotary_emb(x[None], torch.arange(n)[None])
        out = torch.func.functional_call(layer, weights, (x[None],), dict(attention_mask=mask, position_embeddings=places,
                                                                          position_ids=torch.arange(n)[None]))
        return (out[0] if isinstance(out, tuple) else out).reshape(n, -1)
    return run


# returns the curves, the codes of each Linear, and the biases
def learn_layer(run, layer, x, x0, kinds, take=SAMPLES, group=GROUP):
    y0 = [run(a, {}) for a in x0]
    curves, codes, biases = {}, [], b""
    for called, (kind, rates) in kinds.items():
        learn = {f"{n}.weight": Codes(layer.get_submodule(n).weight.detach().clone(), kind, group) for n in LINEARS}
        free = {f"{n}.bias": layer.get_submodule(n).bias.detach().clone().requires_grad_() for n in LINEARS
                if called == "bias" and layer.get_submodule(n).bias is not None}
        adam = torch.optim.Adam([{"params": [c.v for c in learn.values()], "lr": rates[0]},
                                 {"params": [c.d for c in learn.values()], "lr": rates[1]}] +
                                [{"params": list(free.values()), "lr": BIAS_RATE}] * bool(free))
        samples, curve = draws(len(x), take), []
        for t in range(STEPS):
            taken, weights = next(samples), {n: c.weight() for n, c in learn.items()} | free
            of = {i: mixed(x[i], x0[i], i, t) if called == "drop" else x[i] for i in taken}
            errors = torch.cat([(run(of[i], weights) - y0[i]) for i in taken])
            loss = errors.pow(2).mean() if kind in SIGNS else errors.pow(2).sum(-1).mean()
            loss = loss + sum(c.term(t) for c in learn.values())
            curve.append(loss.item())
            adam.zero_grad()
            loss.backward()
            if kind in SIGNS:
                for c in learn.values():
                    c.follow(t, rates)
            else:
                adam.step()
        curves[called] = curve
        for c in learn.values():
            codes.append(c.last())
        biases += b"".join(b.detach().numpy().tobytes() for b in free.values())
        print(called, curve[0], curve[-1])
    return curves, codes, biases


def learn_all(name, kinds):  # returns curves, codes and biases
    case = json.loads((HERE.parent / "models" / f"{name}.json").read_text())
    config = transformers.AutoConfig.for_model(**case["config"])
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    model.load_state_dict({n: torch.from_numpy(tiny.weight(n, s)) for n, s in case["tensors"]}, strict=False)
    layer, ids = model.model.layers[0], tiny.tokens(config.vocab_size)
    for p in model.parameters():
        p.requires_grad_(False)

    x0 = [model.model.embed_tokens(torch.from_numpy(i)) for i in ids]
    noise = rng_sym(SEED, 77, sum(map(len, x0)) * x0[0].shape[1]).reshape(-1, x0[0].shape[1]) / 16
    x = [a + torch.from_numpy(noise[o:o + len(a)]) for a, o in zip(x0, np.cumsum([0] + [len(a) for a in x0]))]
    curves, codes, biases = learn_layer(runner(model, layer), layer, x, x0, kinds)
    return curves, b"".join(c.tobytes() for c in codes), biases


def main():
    curves, codes, _ = learn_all("llama_default", {k: (k, r) for k, r in KINDS.items()})
    more, last, biases = learn_all("qwen2", {"bias": ("quant", KINDS["quant"])})
    drop, behind, _ = learn_all("llama_default", {"drop": ("round", KINDS["round"])})
    fp4, floats, _ = learn_all("llama_default", {"fp4": ("fp4", KINDS["auto"])})
    curves, codes = curves | more | drop | fp4, codes + last + behind
    (HERE / "fp4.bin").write_bytes(floats)
    (HERE / "biases.bin").write_bytes(biases)
    (HERE / "curves.json").write_text(json.dumps(curves, indent=0) + "\n")
    (HERE / "codes.bin").write_bytes(codes)
    versions = {"seed": SEED, "torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}
    (HERE / "MANIFEST.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
