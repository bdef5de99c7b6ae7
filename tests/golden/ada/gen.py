"""gen.py - runs AdaRound, AdaQuant and AutoRound (src/solver/ada.h) in PyTorch, with autograd on
the inputs. AdaRound and AdaQuant use torch.optim.Adam.

curves.json has, for each case, its parameters, the loss before every tenth step, the loss of
rounding to nearest, and the loss of the final codes. The loss of the unrounded weight is subtracted
from each loss. codes.bin has the codes, one byte each, case after case.

gen.py and test_ada.c make weights and inputs by these rules:

    w[o, i]  = u u' / 4         u, u' uniform in [-1, 1); rounded to the dtype
    x[t, i]  = (c[t] m[i] + e[t, i]) / 32
    x0[t, i] = x[t, i] + d[t, i] / 32

c and e are whole numbers in [-15, 15], m in [0, 3], and d in [-4, 4]; d is 0 if x0 equals x. All
these numbers make sums over the inputs exact in f32.

Run: python gen.py (torch, numpy)."""
import json
import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rng import rng_sym, rng_u64  # noqa: E402

SEED, T, PERIOD = 20261123, 256, 10
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
# The members of a case: kind, O, I, group size (0: one group per row), bits, true for zero points,
# dtype, true if x0 differs from x, number of steps, and two learning rates (`keys` below has their
# names). Two more members may follow: the fraction of elements that are taken from x (the others
# are from x0), and the kind of the scales of float codes.
CASES = {
    "round": ("round", 72, 64, 32, 4, False, "F32", True, 300, 0.1, 0),
    "round_channel_zeros_shift": ("round", 40, 44, 0, 3, True, "F32", True, 300, 0.1, 0),
    "round_bf16": ("round", 72, 64, 32, 4, False, "BF16", True, 300, 0.1, 0),
    "quant_weights": ("quant", 72, 64, 0, 4, False, "F32", True, 60, 5e-5, 0),
    "auto": ("auto", 72, 64, 32, 4, False, "F32", True, 20, 1 / 100, 1 / 100),
    "auto_zeros": ("auto", 40, 44, 11, 3, True, "F32", False, 20, 1 / 100, 1 / 100),
    "quant_joint": ("quant", 40, 44, 11, 3, True, "F32", False, 60, 5e-5, 1e-3),
    "round_drop": ("round", 72, 64, 32, 4, False, "F32", True, 300, 0.1, 0, 0.5),
    "quant_drop": ("quant", 40, 44, 11, 3, True, "F32", True, 60, 5e-5, 1e-3, 0.25),
    "signed": ("signed", 72, 64, 32, 4, False, "F32", True, 20, 1 / 100, 1 / 100),
    "signed_three_bits": ("signed", 40, 44, 11, 3, False, "F32", False, 20, 1 / 50, 1 / 50),
    "auto_nvfp4": ("auto", 40, 48, 16, 4, False, "F32", True, 20, 1 / 100, 1 / 100, 1, "E4M3"),
    "auto_mxfp4": ("auto", 40, 64, 32, 4, False, "F32", True, 20, 1 / 100, 0, 1, "E8M0"),
    "round_fp8": ("round", 24, 44, 0, 8, False, "F32", True, 100, 0.1, 0, 1, "plain"),
    "quant_nvfp4": ("quant", 40, 48, 16, 4, False, "F32", True, 60, 5e-5, 1e-3, 1, "E4M3"),
}
GLOBAL = 10000.0  # global scale of the E4M3 scales
REG, FROM, TO, WARM = 0.01, 20.0, 2.0, 0.2


def whole(stream, n, below):
    return (rng_u64(SEED, stream, n) % np.uint64(below)).astype(np.int64)


def inputs(stream, columns, shift):
    common = whole(stream + 2, T, 31) - 15
    noise = whole(stream + 3, T * columns, 31).reshape(T, columns) - 15
    x = common[:, None] * whole(stream + 4, columns, 4) + noise
    d = whole(stream + 5, T * columns, 9).reshape(T, columns) - 4 if shift else 0 * noise
    return torch.from_numpy((x / 32).astype(np.float32)), torch.from_numpy(((x + d) / 32).astype(np.float32))


class Grid:
    """Holds the values of codes: whole numbers, E2M1 (4 bits) or E4M3 (8 bits)."""
    def __init__(self, bits, floats):
        self.floats, self.digits, self.least = floats, 2 if bits == 4 else 4, -1 if bits == 4 else -9
        self.hi = (6 if bits == 4 else 448) if floats else (1 << bits - 1) - 1
        self.lo = -self.hi if floats else -self.hi - 1

    def step(self, x):  # returns the distance between codes near x
        if not self.floats:
            return torch.ones_like(x)
        e = torch.where(x == 0, -99, torch.frexp(x).exponent) - self.digits
        return torch.ldexp(torch.ones_like(x), e.clamp(min=self.least))

    def near(self, x):  # rounds x; the gradient is that of x without rounding
        s = self.step(x.detach())
        return ((x / s).round() * s).detach() + (x - x.detach())

    def floor(self, x):
        return (x / self.step(x)).floor() * self.step(x)

    def code_value(self, x, z):  # clips floats before rounding, and integers after rounding
        return self.near(clip(x, self.lo, self.hi)) if self.floats else clip(self.near(x) + z, self.lo, self.hi)

    def codes(self, q):
        if not self.floats:
            return q.to(torch.int8).numpy()
        if self.hi == 448:
            return (q + 0.0).to(torch.float8_e4m3fn).view(torch.int8).numpy()
        size = torch.searchsorted(torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]), q.abs().contiguous())
        return (size + 8 * (q < 0)).to(torch.int8).numpy()


def near_scale(s, kind):  # rounds a scale to a value that can be stored
    if kind == "E4M3":
        return Grid(8, True).near((s * GLOBAL).clamp(2**-9, 448)) / GLOBAL
    return torch.exp2(torch.log2(s).floor()) if kind == "E8M0" else s


def clip(x, lo, hi):  # like torch.clamp, but the gradient at lo and hi is 1
    inside = ((x >= lo) & (x <= hi)).float()
    return x.detach().clamp(lo, hi) + (x - x.detach()) * inside


def mixed(x, x0, share, key):  # takes each element from x or x0, like src/ops/mix.c
    u = rng_u64(key, 0, x.numel()).reshape(x.shape) >> np.uint64(40)
    return torch.where(torch.from_numpy(u < np.uint64(int(share * 2**24))), x, x0)


def learn(stream, kind, O, I, group, bits, zeros, dtype, shift, steps, rate, scale_rate, share=1, floats=""):
    dt, n, grid = DTYPES[dtype], group or I, Grid(bits, bool(floats))
    lo, hi = grid.lo, grid.hi
    w = torch.from_numpy((rng_sym(SEED, stream, O * I) * rng_sym(SEED, stream + 1, O * I) * np.float32(0.25)).reshape(O, I))
    w = w.to(dt).float()
    x, x0 = inputs(stream, I, shift)
    x = mixed(x, x0, share, int(rng_u64(SEED, (1 << 20) + stream, 1)[0])) if share < 1 else x
    most = w.reshape(O, -1, n).abs().amax(-1)
    s0 = near_scale(most / hi, floats) if floats else (most * 0.25).to(dt).float()
    k = torch.arange(s0.numel()).reshape(s0.shape)
    z = (k % 3 - 1).float() if zeros else torch.zeros_like(s0)
    wide = lambda t: t.repeat_interleave(n, 1)  # noqa: E731
    rnd = lambda t: t.to(dt).float()  # noqa: E731
    y = x0 @ w.T
    if kind in ("auto", "signed"):
        return auto(x, y, w, s0, z, n, grid, "signed" if kind == "signed" else floats or zeros, steps, rate, scale_rate)
    base = (x @ w.T - y).pow(2).sum(-1).mean()
    loss_of = lambda h: (x @ h.T - y).pow(2).sum(-1).mean() - base  # noqa: E731
    nearest = grid.code_value(w / wide(s0), wide(z))
    before = loss_of(rnd((nearest - wide(z)) * wide(s0))).item()
    below, gap = grid.floor(w / wide(s0)), grid.step(w / wide(s0))
    frac = (w / wide(s0) - below) / gap
    v = torch.nn.Parameter(-torch.log(1.2 / (frac + 0.1) - 1) if kind == "round" else w.clone())
    d = torch.nn.Parameter(torch.zeros_like(s0))
    groups = [{"params": [v], "lr": rate}] + ([{"params": [d], "lr": scale_rate}] if scale_rate else [])
    adam = torch.optim.Adam(groups)
    warm, curve = int(WARM * steps), []
    moved = lambda s: near_scale(s, floats) if floats else near_dtype(s, dt)  # noqa: E731
    scale = lambda: moved(s0 * (1 + d)) if scale_rate else s0  # noqa: E731
    for t in range(steps):
        s = scale()
        if kind == "round":
            h = (torch.sigmoid(v) * 1.2 - 0.1).clamp(0, 1)
            q = clip(below + wide(z) + h * gap, lo, hi)
        else:
            q = grid.code_value(v / wide(s), wide(z))
        loss = loss_of((q - wide(z)) * wide(s))
        if kind == "round" and t >= warm:
            beta = TO + (FROM - TO) / 2 * (1 + np.cos(np.pi * (t - warm) / (steps - warm)))
            loss = loss + REG * (1 - (2 * h - 1).abs().pow(beta)).sum()
        if t % PERIOD == 0:
            curve.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        s = scale()
        q = (below + wide(z) + (v >= 0) * gap).clamp(lo, hi) if kind == "round" else grid.code_value(v / wide(s), wide(z))
        after = loss_of(rnd((q - wide(z)) * wide(s))).item()
    print(kind, before, curve[0], curve[-1], after, f"{(q != nearest).float().mean().item():.3f} changed")
    return grid.codes(q), curve, before, after


def rows_of(h, x, y):  # returns the loss of each row
    return (x @ h.T - y).pow(2).mean(0)


def auto(x, y, w, s0, z0, n, grid, zeros, steps, rate, scale_rate):
    """Runs AutoRound (descent by the signs of gradients). Returns for each row the codes of its
    best step.

    `zeros` of integer codes: true: zero points; false: no zero points; "signed": no zero points,
    but signed scales. `zeros` of float codes is the kind of the scales."""
    lo, hi = grid.lo, grid.hi
    wide = lambda t: t.repeat_interleave(n, 1)  # noqa: E731
    base, groups = rows_of(w, x, y), w.reshape(w.shape[0], -1, n)
    low, high = -groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    v = torch.zeros_like(w, requires_grad=True)
    a, b = torch.ones_like(s0, requires_grad=True), torch.ones_like(s0, requires_grad=True)

    def codes():
        moved = (a != 1) | (b != 1)
        if zeros == "signed":
            s, z = torch.where(a * low > b * high, a * low, -b * high) / -lo, z0
        elif grid.floats:
            s = near_scale(torch.maximum(low, high) / hi * b, zeros)
            s, z = s + (torch.where(b != 1, s, s0) - s).detach(), z0
        elif zeros:
            s = s0 * (b * high + a * low) / (high + low)
            s = s + (torch.where(moved, s, s0) - s).detach()
            z = lo + a * low / s
            z = z + (torch.where(moved, z.round().clamp(lo, hi), z0) - z).detach()
        else:
            s = s0 * torch.where(a * low > b * high, a * low, b * high) / torch.maximum(low, high)
            s, z = s + (torch.where(moved, s, s0) - s).detach(), z0
        return grid.code_value(w / wide(s) + v, wide(z)), s, z

    nearest = grid.code_value(w / wide(s0), wide(z0))
    best, best_q = rows_of((nearest - wide(z0)) * wide(s0), x, y) - base, nearest.clone()
    before, curve = best.sum().item(), []
    for t in range(steps + 1):
        q, s, z = codes()
        loss = rows_of((q - wide(z)) * wide(s), x, y) - base
        if t % PERIOD == 0 and t < steps:
            curve.append(loss.sum().item())
        better = loss.detach() < best
        best, best_q = torch.where(better, loss.detach(), best), torch.where(better[:, None], q.detach(), best_q)
        if t == steps:
            break
        v.grad = a.grad = b.grad = None
        loss.sum().backward()
        with torch.no_grad():
            part = rate * (steps - t) / steps
            v.sub_(part * v.grad.sign()).clamp_(-0.5, 0.5)
            for share in (a, b) if scale_rate else ():
                if share.grad is not None:
                    share.sub_(part * share.grad.sign()).clamp_(0, 1)
    print("auto", before, curve[0], curve[-1], best.sum().item(), f"{(best_q != nearest).float().mean().item():.3f} changed")
    return grid.codes(best_q), curve, before, best.sum().item()


def near_dtype(x, dt):
    return x.to(dt).float().detach() + (x - x.detach())


if __name__ == "__main__":
    keys = ["kind", "O", "I", "group", "bits", "zeros", "dtype", "shift", "steps", "rate", "scale_rate", "share", "floats"]
    out, codes = {}, b""
    for i, (name, c) in enumerate(CASES.items()):
        q, curve, before, after = learn(16 * i, *c)
        out[name] = dict(zip(keys, c), stream=16 * i, nearest=before, learned=after, curve=curve)
        codes += q.tobytes()
    (HERE / "curves.json").write_text(json.dumps(out, indent=1) + "\n")
    (HERE / "codes.bin").write_bytes(codes)
    (HERE / "MANIFEST.json").write_text(json.dumps({"seed": SEED, "torch": torch.__version__.split("+")[0],
                                                    "numpy": np.__version__}, indent=1) + "\n")
