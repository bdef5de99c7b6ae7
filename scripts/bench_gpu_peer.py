#!/usr/bin/env python3
"""bench_gpu_peer.py - the reference algorithm on one decoder layer of given shapes, as PyTorch runs it, timed by phase.

What LLM Compressor 0.14 does with GPTQModifier on a decoder layer, in its order: a calibration pass sample by sample
that adds x^T x in f32 for every Linear by itself, quantize_weight for each, a second pass through the quantized layer.
With llmcompressor installed its own accumulate/quantize functions are called (eager, and Triton where it runs); else
they are re-enacted op for op in eager PyTorch, and the output says "re-enacted". Prints one JSON object: seconds a
layer for each phase.

    bench_gpu_peer.py --hidden 4096 --intermediate 14336 --heads 32 --kv 8 --samples 512 --tokens 2048 [--device cuda]
    --measure-samples N   time the passes on N samples and scale: they are linear in them
"""
import argparse
import json
import math
import os
import time

import torch
import torch.nn.functional as F

GROUP, BLOCK, DAMP, BITS = 128, 128, 0.01, 4


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("hidden", 4096), ("intermediate", 14336), ("heads", 32), ("kv", 8), ("samples", 512),
                        ("tokens", 2048), ("measure-samples", 16)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--device", default="cuda")
    return p.parse_args()


class Clock:
    """Seconds between two calls, with the device drained at both."""

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
    """A Llama decoder layer in bf16 with random weights: matrices by name, inputs of each on the way."""

    def __init__(self, a):
        self.a, head = a, a.hidden // a.heads
        shapes = {"q": (a.hidden, a.hidden), "k": (head * a.kv, a.hidden), "v": (head * a.kv, a.hidden),
                  "o": (a.hidden, a.hidden), "gate": (a.intermediate, a.hidden), "up": (a.intermediate, a.hidden),
                  "down": (a.hidden, a.intermediate)}
        self.w = {n: (torch.randn(s, device=a.device) * 0.02).to(torch.bfloat16) for n, s in shapes.items()}
        position = torch.arange(a.tokens, device=a.device, dtype=torch.float32)
        inverse = 500000.0 ** (-torch.arange(0, head, 2, device=a.device, dtype=torch.float32) / head)
        angle = torch.cat([torch.outer(position, inverse)] * 2, dim=-1)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def norm(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    def rope(self, x):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * self.cos + turned * self.sin

    def forward(self, x, see=lambda name, x: None):
        a = self.a

        def linear(name, x):
            see(name, x)
            return F.linear(x, self.w[name])

        def heads(x, n):
            return x.view(1, -1, n, a.hidden // a.heads).transpose(1, 2)

        y = self.norm(x)
        q, k = (self.rope(heads(linear(n, y), c)) for n, c in (("q", a.heads), ("k", a.kv)))
        v = heads(linear("v", y), a.kv)
        k, v = (t.repeat_interleave(a.heads // a.kv, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear("o", y.transpose(1, 2).reshape(1, -1, a.hidden))
        y = self.norm(x)
        return x + linear("down", F.silu(linear("gate", y)) * linear("up", y))


def accumulate(h, x, n):
    """H of n samples and one more: rescaled, then 2/(n + 1) x^T x in f32, as the modifier adds it."""
    x = x.reshape(-1, x.shape[-1]).t()
    h *= n / (n + 1)
    x = math.sqrt(2 / (n + 1)) * x.float()
    h += x @ x.t()


def scales(w):
    """Symmetric minmax scale of each group of a row, and its column's group."""
    groups = w.float().view(w.shape[0], -1, GROUP)
    top = groups.abs().amax(-1)
    return (top / ((2 ** BITS - 1) / 2)).clamp(min=torch.finfo(torch.float32).eps).to(w.dtype)


def quantize_eager(w, h):
    """The column loop with lazy updates by block."""
    scale, w, h = scales(w), w.float(), h.clone()
    d = torch.arange(w.shape[1], device=w.device)
    dead = h[d, d] == 0
    h[dead, dead], w[:, dead] = 1, 0
    h[d, d] += DAMP * h.diagonal().mean()
    u = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    loss = torch.zeros(w.shape[0], device=w.device)
    for first in range(0, w.shape[1], BLOCK):
        last = min(first + BLOCK, w.shape[1])
        part, block = w[:, first:last].clone(), u[first:last, first:last]
        out, error, losses = torch.zeros_like(part), torch.zeros_like(part), torch.zeros_like(part)
        for i in range(last - first):
            column, s = part[:, i], scale[:, (first + i) // GROUP]
            code = torch.clamp(torch.round(column / s.float()), -(2 ** (BITS - 1)), 2 ** (BITS - 1) - 1)
            q = (code.to(s.dtype) * s).float()
            err = (column - q) / block[i, i]
            out[:, i], error[:, i], losses[:, i] = q, err, err.square()
            part[:, i:] -= err.unsqueeze(1) * block[i, i:].unsqueeze(0)
        w[:, first:last] = out
        loss += losses.sum(1) / 2
        w[:, last:] -= error @ u[first:last, last:]
    return w.to(torch.bfloat16), loss.sum()


def package():
    """quantize(w, h) of the installed LLM Compressor and its version, or None."""
    try:
        import llmcompressor
        from compressed_tensors.quantization import QuantizationArgs
        from llmcompressor.modifiers.gptq.gptq_quantize import quantize_weight
    except ImportError:
        return None
    args = QuantizationArgs(num_bits=BITS, type="int", strategy="group", group_size=GROUP, symmetric=True)

    def quantize(w, h):
        s = scales(w)
        out, loss, _ = quantize_weight(w[None].clone(), h[None].clone(), s[None], torch.zeros_like(s[None]), None, args,
                                       BLOCK, DAMP)
        return out[0], loss[0]

    return quantize, llmcompressor.__version__


def solve(layer, hessians, clock, quantize):
    clock.lap()
    for name, w in layer.w.items():
        layer.w[name], _ = quantize(w, hessians[name])
    return clock.lap()


def main():
    a = arguments()
    torch.manual_seed(0)
    layer, clock, n = Layer(a), Clock(a.device), min(a.measure_samples, a.samples)
    x = [torch.randn(1, a.tokens, a.hidden, device=a.device).to(torch.bfloat16) for _ in range(n)]
    hessians = {k: torch.zeros(w.shape[1], w.shape[1], device=a.device) for k, w in layer.w.items()}
    with torch.no_grad():
        layer.forward(x[0])  # first calls choose kernels
        clock.lap()
        for i in range(n):
            layer.forward(x[i])
        passes = clock.lap() / n * a.samples
        for i in range(n):
            layer.forward(x[i], lambda name, y, i=i: accumulate(hessians[name], y, i))
        observe = clock.lap() / n * a.samples
        found = package()
        dense, seconds = dict(layer.w), {"observe": observe, "propagate": passes}
        seconds["solve_eager_reenacted"] = solve(layer, hessians, clock, quantize_eager)
        if found:
            for name, off in (("solve_eager_package", "1"), ("solve_triton_package", "0")):
                os.environ["LLMCOMPRESSOR_DISABLE_GPTQ_TRITON"] = off
                layer.w = dict(dense)
                if off == "1" or clock.cuda:
                    solve(layer, hessians, clock, found[0])  # compiles
                    layer.w = dict(dense)
                    seconds[name] = solve(layer, hessians, clock, found[0])
    print(json.dumps({"device": torch.cuda.get_device_name() if clock.cuda else a.device, "torch": torch.__version__,
                      "llmcompressor": found[1] if found else None, "samples": a.samples, "tokens": a.tokens,
                      "measured_samples": n, "seconds_a_layer": seconds}))


if __name__ == "__main__":
    main()
