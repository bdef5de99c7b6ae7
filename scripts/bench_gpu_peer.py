#!/usr/bin/env python3
"""bench_gpu_peer.py - times the reference algorithm of PyTorch on one decoder layer of given
shapes, by phase.

The script does the work of LLM Compressor 0.14 with GPTQModifier on a decoder layer, in the same
order: a calibration pass, sample by sample, that adds 2 x^T x in f32 for every Linear;
quantize_weight of the Linears; and a second pass through the layer. With --experts the layer is
that of a Qwen3-MoE, whose experts see all tokens in both passes, as with moe_calibrate_all_experts.

The solve is timed with two inner loops over the columns of a block: eager PyTorch with one weight
at a time, and a Triton kernel with a batch of weights of one shape, as with batched_quantization
"auto". Both loops are written here with the same ops as LLM Compressor's ("re-enacted"). If
llmcompressor is installed, its accumulate_hessian observes, and its quantize_weight is timed, too.
Prints one JSON object with the seconds per layer. "code" is "package" for LLM Compressor's own
solve, and "re-enacted" for the loops of this script. "left_out" names the loops that did not run,
with the reasons.

    bench_gpu_peer.py --hidden 4096 --intermediate 14336 --heads 32 --kv 8 --samples 512
                      --tokens 2048 [--device cuda]
    --experts 128 --topk 8 --head-dim 128   (--intermediate is each expert's)
    --measure-samples N   time the passes on N samples, and scale the time to --samples
    --measure-experts N   time the loops with one weight at a time on N experts, and scale the
                          time to all experts, which have equal shapes
    --check               time nothing, but compare the loops on small weights; they must give
                          equal bytes. Without a GPU Triton's interpreter runs the kernel
                          (--device cpu)
"""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

if "--check" in sys.argv and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads this variable when a kernel is defined
try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

GROUP, BLOCK, DAMP, BITS = 128, 128, 0.01, 4
LOW, HIGH = -(2 ** (BITS - 1)), 2 ** (BITS - 1) - 1
ROWS = 16  # rows of one program of the Triton kernel
SWITCH = "LLMCOMPRESSOR_DISABLE_GPTQ_TRITON"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("hidden", 4096), ("intermediate", 14336), ("heads", 32), ("kv", 8), ("samples", 512),
                        ("tokens", 2048), ("measure-samples", 16), ("experts", 0), ("topk", 8), ("head-dim", 0),
                        ("measure-experts", 8)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--device", default="cuda")
    p.add_argument("--check", action="store_true")
    return p.parse_args()


class Clock:
    """Measures the seconds between two calls. At each call, waits for the device's work."""

    def __init__(self, device):
        self.cuda = torch.device(device).type == "cuda"
        self.last = self.now()

    def now(self):
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def lap(self):
        before, self.last = self.last, self.now()
        return self.last - before


class Layer:
    """A decoder layer of Llama, or of Qwen3-MoE, in bf16 with random weights. Has the matrices by
    name, and the name of the input of each matrix."""

    def __init__(self, a):
        self.a, self.head = a, a.head_dim or a.hidden // a.heads
        head = self.head
        shapes = {"q": (head * a.heads, a.hidden), "k": (head * a.kv, a.hidden), "v": (head * a.kv, a.hidden),
                  "o": (a.hidden, head * a.heads)}
        for e in self.experts():
            shapes |= {f"gate{e}": (a.intermediate, a.hidden), f"up{e}": (a.intermediate, a.hidden),
                       f"down{e}": (a.hidden, a.intermediate)}
        self.w = {n: (torch.randn(s, device=a.device) * 0.02).to(torch.bfloat16) for n, s in shapes.items()}
        self.router = (torch.randn(a.experts, a.hidden, device=a.device) * 0.02).to(torch.bfloat16)
        position = torch.arange(a.tokens, device=a.device, dtype=torch.float32)
        inverse = 500000.0 ** (-torch.arange(0, head, 2, device=a.device, dtype=torch.float32) / head)
        angle = torch.cat([torch.outer(position, inverse)] * 2, dim=-1)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def experts(self, n=None):
        """Returns the endings of the names of experts, or [""] (for the MLP) without experts."""
        return [f".{e}" for e in range(min(n or self.a.experts, self.a.experts))] or [""]

    def norm(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    def rope(self, x):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * self.cos + turned * self.sin

    def forward(self, x, see=lambda name, x: None, all_experts=True):
        a = self.a

        def linear(name, x):
            see(name, x)
            return F.linear(x, self.w[name])

        def heads(x, n):
            return x.view(1, -1, n, self.head).transpose(1, 2)

        def mlp(e, x):
            return linear(f"down{e}", F.silu(linear(f"gate{e}", x)) * linear(f"up{e}", x))

        def sparse(x):
            """Runs every expert on every token, and sums the outputs of the chosen experts."""
            values, chosen = torch.topk(F.softmax(F.linear(x, self.router), dim=-1, dtype=torch.float), a.topk, dim=-1)
            weights = (values / values.sum(-1, keepdim=True)).to(x.dtype)
            mask, out = F.one_hot(chosen, a.experts).permute(2, 1, 0), torch.zeros_like(x)
            for e, ending in enumerate(self.experts()):
                at, tokens = torch.where(mask[e])
                y = mlp(ending, x)[tokens] if all_experts else mlp(ending, x[tokens])
                out.index_add_(0, tokens, y * weights[tokens, at, None])
            return out

        y = self.norm(x)
        turn = (lambda x: self.rope(self.norm(x))) if a.experts else self.rope
        q, k = (turn(heads(linear(n, y), c)) for n, c in (("q", a.heads), ("k", a.kv)))
        v = heads(linear("v", y), a.kv)
        k, v = (t.repeat_interleave(a.heads // a.kv, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear("o", y.transpose(1, 2).reshape(1, -1, a.heads * self.head))
        y = self.norm(x)
        return x + (sparse(y[0])[None] if a.experts else mlp("", y))


def accumulate(h, x):
    """Adds 2 x^T x of one sample to H, in f32. The solve divides H by the number of samples."""
    x = math.sqrt(2) * x.reshape(-1, x.shape[-1]).t().to(torch.float32)
    h += x.matmul(x.t())


def scales(w):
    """Returns the symmetric minmax scale of each group of a row."""
    groups = w.float().view(w.shape[0], -1, GROUP)
    top = groups.abs().amax(-1)
    return (top / ((2 ** BITS - 1) / 2)).clamp(min=torch.finfo(torch.float32).eps).to(w.dtype)


def block_eager(work, u, scale, out, error, losses):
    """Solves the columns of one block of W columns, for all B weights of a batch at a time. work
    and scale are [B, O, W], u is [B, W, W]."""
    low, high = (torch.tensor(float(v), device=work.device) for v in (LOW, HIGH))
    for i in range(work.shape[-1]):
        w, s = work[:, :, i], scale[:, :, i]
        q = torch.round(torch.clamp(w / s, low, high)).to(s.dtype) * s
        e = (w - q) / u[:, i, i][:, None]
        out[:, :, i] = q
        error[:, :, i] = e
        losses[:, :, i] = e.square()
        work[:, :, i:] -= e.unsqueeze(-1) * u[:, i, i:].unsqueeze(1)


if triton:
    @triton.jit
    def columns_kernel(work_p, u_p, scale_p, out_p, error_p, n_rows, u_batch, u_row, low, high, WIDTH: tl.constexpr,
                       ROWS: tl.constexpr, BF16: tl.constexpr, CAST: tl.constexpr):
        """Keeps ROWS rows of one weight in registers during the loop over the columns. Products and
        sums are not fused, so each is rounded as in block_eager. work, scale, out and error are
        contiguous. CAST: true if the cast to bf16 rounds. The cast of Triton's interpreter
        truncates, so then this function rounds the bits."""
        rows, cols = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
        inside = rows < n_rows
        line = (tl.program_id(0).to(tl.int64) * n_rows + rows) * WIDTH
        u_p += tl.program_id(0).to(tl.int64) * u_batch
        work = tl.load(work_p + line[:, None] + cols[None, :], mask=inside[:, None], other=0.0)
        for i in range(0, WIDTH):
            w = tl.sum(tl.where(cols[None, :] == i, work, 0.0), axis=1)
            s = tl.load(scale_p + line + i, mask=inside, other=1.0).to(tl.float32)
            code = tl.clamp(tl.div_rn(w, s), low, high)
            code = (code + 12582912.0) - 12582912.0  # 1.5 * 2^23: rounds to the nearest whole number, ties to even
            q = code * s
            if BF16 and CAST:
                q = q.to(tl.bfloat16).to(tl.float32)
            elif BF16:
                bits = q.to(tl.int32, bitcast=True)
                q = ((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000).to(tl.float32, bitcast=True)
            e = tl.div_rn(w - q, tl.load(u_p + i * u_row + i))
            tl.store(out_p + line + i, q, mask=inside)
            tl.store(error_p + line + i, e, mask=inside)
            u = tl.load(u_p + i * u_row + cols)
            work = tl.where(cols[None, :] > i, work - e[:, None] * u[None, :], work)


def block_triton(work, u, scale, out, error, losses):
    """Does the work of block_eager in one kernel; a block whose width is no power of two uses the
    eager loop."""
    n, rows, width = work.shape
    if width & (width - 1) or width > 256:
        return block_eager(work, u, scale, out, error, losses)
    columns_kernel[(n, triton.cdiv(rows, ROWS))](
        work, u, scale, out, error, rows, u.stride(0), u.stride(1), float(LOW), float(HIGH), WIDTH=width, ROWS=ROWS,
        BF16=scale.dtype == torch.bfloat16, CAST=work.is_cuda, num_warps=4, num_stages=2, enable_fp_fusion=False)
    losses.copy_(error.square())


def order(w, h):
    """Sorts columns by descending diag H (actorder static), in place. Returns the permutations."""
    rows, cols = w.shape[-2:]
    perm = torch.argsort(h.diagonal(dim1=-2, dim2=-1), dim=-1, descending=True)
    turned = torch.gather(h, -1, perm.unsqueeze(-2).expand(-1, cols, -1))
    h.copy_(torch.gather(turned, -2, perm.unsqueeze(-1).expand(-1, -1, cols)))
    w.copy_(torch.gather(w, -1, perm.unsqueeze(-2).expand(-1, rows, -1)))
    return perm


def factor(w, h):
    """Replaces H by the upper Cholesky factor of its inverse, weight by weight. (LLM Compressor
    does not batch fewer than 16 weights here.)"""
    diagonal = h.diagonal(dim1=-2, dim2=-1)
    dead = diagonal == 0
    if dead.any():
        diagonal.masked_fill_(dead, 1.0)
        w.masked_fill_(dead.unsqueeze(1), 0)
    info = torch.empty((), dtype=torch.int32, device=h.device)
    for one in h:
        one.diagonal().add_(DAMP * torch.mean(torch.diag(one)))
        torch.linalg.cholesky_ex(one, check_errors=False, out=(one, info))
        if info.item():
            # this never happens with random inputs, for which H is positive definite
            raise ValueError("H is not positive definite")
        torch.cholesky_inverse(one, out=one)
        torch.linalg.cholesky(one, upper=True, out=one)


def quantize(w, h, scale, block):
    """Returns dequantized weights and losses of a batch; overwrites w [B, O, I] in f32 and h [B, I,
    I]. scale [B, O, G]."""
    n, rows, cols = w.shape
    perm = order(w, h)
    group = torch.gather((torch.arange(cols, device=w.device) // GROUP).expand(n, -1), 1, perm)
    factor(w, h)
    losses = torch.zeros(n, rows, device=w.device)
    for i in range(0, cols, BLOCK):
        j = min(i + BLOCK, cols)
        work = w[:, :, i:j].clone()
        out, error, squares = (torch.zeros_like(work) for _ in range(3))
        window = torch.gather(scale, -1, group[:, i:j].unsqueeze(-2).expand(n, rows, j - i)).contiguous()
        block(work, h[:, i:j, i:j], window, out, error, squares)
        w[:, :, i:j] = out
        losses += torch.sum(squares, 2) / 2
        w[:, :, j:] -= torch.bmm(error, h[:, i:j, j:])
    return torch.gather(w, -1, torch.argsort(perm, dim=-1).unsqueeze(-2).expand(-1, rows, -1)), losses.sum(dim=1)


def package():
    """Returns quantize and accumulate of the installed LLM Compressor and its version, or None."""
    try:
        import llmcompressor
        from compressed_tensors.quantization import QuantizationArgs
        from llmcompressor.modifiers.gptq.gptq_quantize import quantize_weight
        from llmcompressor.modifiers.gptq.helpers import accumulate_hessian
    except ImportError:
        return None
    args = QuantizationArgs(num_bits=BITS, type="int", strategy="group", group_size=GROUP, symmetric=True,
                            actorder="static")
    linear, n = torch.nn.Linear(1, 1, device="meta"), torch.zeros(())

    def quantize_package(w, h, scale, triton_loop):
        os.environ[SWITCH] = "0" if triton_loop else "1"
        return quantize_weight(w, h, scale, torch.zeros_like(scale), None, args, BLOCK, DAMP)[:2]

    return quantize_package, lambda h, x: accumulate_hessian(x, linear, h, n), llmcompressor.__version__


def why_no_triton(device):
    """Returns the reason why the Triton loop cannot run, or None."""
    if not triton:
        return "triton is not installed"
    cuda = torch.device(device).type == "cuda"
    return None if cuda or os.environ.get("TRITON_INTERPRET") == "1" else f"no CUDA device: {device}"


def batches(w, batched):
    """Yields the names of the weights for one call. The weights of a call have one shape, and fit
    into three quarters of the free memory."""
    if not batched:
        return [[name] for name in w]
    shapes = {}
    for name, t in w.items():
        shapes.setdefault(tuple(t.shape), []).append(name)
    found = []
    for (rows, cols), names in shapes.items():
        each = 4 * max(cols ** 2 + 3 * rows * cols + 4 * rows * BLOCK, 3 * cols ** 2 + 2 * rows * cols)
        cuda = w[names[0]].device.type == "cuda"
        most = max(1, int(torch.cuda.mem_get_info()[0] * 0.75) // each) if cuda else 1
        found += [names[i:i + most] for i in range(0, len(names), most)]
    return found


def solve(w, hessians, n_samples, how, batched):
    """Solves all weights of a layer: stacks them, quantizes them, and converts them back to their
    dtype."""
    done = {}
    for names in batches(w, batched):
        h = torch.stack([hessians[name] / n_samples for name in names])
        stacked = torch.empty(len(names), *w[names[0]].shape, device=h.device)
        torch.stack([w[name] for name in names], out=stacked)
        out, losses = how(stacked, h, torch.stack([scales(w[name]) for name in names]))
        for i, name in enumerate(names):
            done[name] = out[i].to(w[name].dtype)
            losses[i].item()
    return done


def loops(device, found):
    """Returns (loop, code, quantize(w, h, scale)) for loops that can run, and reasons for the
    others."""
    runs, left_out = [("eager", "re-enacted", lambda *a: quantize(*a, block_eager))], {}
    reason = why_no_triton(device)
    if reason:
        left_out["triton"] = reason
    else:
        runs.append(("triton", "re-enacted", lambda *a: quantize(*a, block_triton)))
    if found:
        runs.append(("eager", "package", lambda *a: found[0](*a, False)))
        if torch.device(device).type == "cuda" and not reason:
            runs.append(("triton", "package", lambda *a: found[0](*a, True)))
    else:
        left_out["package"] = "llmcompressor is not installed"
    return runs, left_out


def check(device):
    """Checks every loop on small batches. The batches have more rows than one program of the
    kernel, a last block of 96 columns, and scales of bf16 and f32."""
    runs, left_out = loops(device, package())
    for n, rows, cols, dtype in ((2, 24, 256, torch.bfloat16), (1, 17, 384, torch.float32), (3, 5, 128, torch.bfloat16),
                                 (2, 20, 352, torch.bfloat16)):
        torch.manual_seed(rows)
        w = (torch.randn(n, rows, cols, device=device) * 0.02).to(dtype)
        x = torch.randn(n, 2 * cols, cols, device=device) * torch.linspace(0.5, 2, cols, device=device)
        h = 2 * x.transpose(1, 2) @ x
        h[:, 7, :] = h[:, :, 7] = 0  # no input reaches this column
        padded = F.pad(w, (0, -cols % GROUP))
        scale = torch.stack([scales(one) for one in padded])
        want = None
        for loop, code, how in runs:
            out, losses = how(w.to(torch.float32, copy=True), h.clone(), scale)
            if want is None:
                want, first = (out, losses), f"{loop} {code}"
            elif not torch.equal(out, want[0]) or not torch.equal(losses, want[1]):
                differ = (out != want[0]).float().mean().item()
                sys.exit(f"[{n}, {rows}, {cols}] {dtype}: {loop} {code} differs from {first} in {differ:.2%} of the weights")
    check_experts(device)
    print(json.dumps({"equal": [f"{loop} {code}" for loop, code, _ in runs], "left_out": left_out}))


def check_experts(device):
    """Checks that the output of a layer is the same if experts run on all tokens and if they run on
    their routed tokens."""
    torch.manual_seed(1)
    layer = Layer(argparse.Namespace(hidden=64, intermediate=32, heads=4, kv=2, head_dim=32, experts=6, topk=2, tokens=24,
                                     device=device))
    x, seen = torch.randn(1, 24, 64, device=device).to(torch.bfloat16), {}
    every = layer.forward(x, lambda name, y: seen.update({name: y.numel() // y.shape[-1]}))
    own = layer.forward(x, all_experts=False)
    if set(seen) != set(layer.w) or set(seen.values()) != {24}:
        sys.exit(f"the Linears got {seen} tokens, want 24 for each")
    if (every - own).abs().max() > 0.02 * own.abs().max():
        sys.exit("the output of the layer differs if the experts run on all tokens")


def time_solve(layer, hessians, n, how, batched, clock):
    """Returns the seconds of a solve. A loop with one weight at a time is timed on some of the
    experts."""
    a = layer.a
    most = a.measure_experts if a.experts and not batched else None
    parts = [({k: layer.w[k] for k in "qkvo"}, 1),
             ({k + e: layer.w[k + e] for e in layer.experts(most) for k in ("gate", "up", "down")},
              len(layer.experts()) / len(layer.experts(most)))]
    if batched:
        parts = [(layer.w, 1)]
    warm = layer.w if batched else {"k": layer.w["k"]}  # warms up, because kernels are compiled for each shape
    solve(warm, hessians, n, how, batched)
    seconds = 0
    for weights, times in parts:
        clock.lap()
        solve(weights, hessians, n, how, batched)
        seconds += clock.lap() * times
    return seconds


def main():
    a = arguments()
    if a.check:
        return check(a.device)
    torch.manual_seed(0)
    layer, clock, n = Layer(a), Clock(a.device), min(a.measure_samples, a.samples)
    x = [torch.randn(1, a.tokens, a.hidden, device=a.device).to(torch.bfloat16) for _ in range(n)]
    hessians = {k: torch.zeros(w.shape[1], w.shape[1], device=a.device) for k, w in layer.w.items()}
    found = package()
    add = found[1] if found else accumulate
    with torch.no_grad():
        layer.forward(x[0])  # warms up, because the first calls choose kernels
        clock.lap()
        for i in range(n):
            layer.forward(x[i])
        passes = clock.lap() / n * a.samples
        for i in range(n):
            layer.forward(x[i], lambda name, y: add(hessians[name], y))
        seconds = {"observe": clock.lap() / n * a.samples, "propagate": passes}
        runs, left_out = loops(a.device, found)
        solves = []
        for loop, code, how in runs:
            batched = loop == "triton"
            seconds_of = time_solve(layer, hessians, n, how, batched, clock)
            solves.append({"loop": loop, "code": code, "batched": batched, "seconds": seconds_of})
    print(json.dumps({"device": torch.cuda.get_device_name() if clock.cuda else a.device, "torch": torch.__version__,
                      "llmcompressor": found[2] if found else None, "triton": triton.__version__ if triton else None,
                      "samples": a.samples, "tokens": a.tokens, "measured_samples": n, "seconds_a_layer": seconds,
                      "solves_a_layer": solves, "left_out": left_out}))


if __name__ == "__main__":
    main()
