"""bench_table.py - prints the tables of scripts/bench.sh from its directory OUT. In a turn,
bench.sh runs each program once. A run that has not ended is left out.

Usage: bench_table.py OUT RUNS"""
import json
import pathlib
import statistics
import sys

out, runs = pathlib.Path(sys.argv[1]), range(1, int(sys.argv[2]) + 1)


def median(values):
    return statistics.median(list(values))


def figures(name):
    """Returns {turn: (seconds, MiB, busy processors)}."""
    rows = {}
    for i in runs:
        path = out / f"{name}.{i}.time"
        if path.exists():
            seconds, kib, user, system = (float(x) for x in path.read_text().split())
            seconds = max(seconds, 0.01) # the resolution of the measured time
            rows[i] = seconds, kib / 1024, (user + system) / seconds
    return rows


def perplexity(name):
    path = out / f"{name}.perplexity"
    return path.read_text().strip() if path.exists() else ""


def table(ours):
    print(f"{'':16}{'seconds':>10}{'each':>28}{'MiB':>8}{'times ours':>12}{'memory':>8}{'perplexity':>12}")
    for name in ("oneshot", "llm-compressor", "llama-imatrix", "llama-quantize"):
        f = figures(name)
        both = [i for i in f if i in ours]
        if not both:
            continue
        each = " ".join(f"{f[i][0]:.1f}" for i in both)
        time, memory = (median(f[i][k] / ours[i][k] for i in both) for k in (0, 1))
        print(f"{name:16}{median(f[i][0] for i in both):10.1f}{each:>28}{median(f[i][1] for i in both):8.0f}"
              f"{time:12.2f}{memory:8.2f}{perplexity(name):>12}")
    if perplexity("dense"):
        print(f"{'dense':16}{perplexity('dense'):>78}")
    print(f"medians of {len(ours)} of {len(runs)} turns")


def phases(ours):
    peaks, after, reports = ([json.loads((out / f"{name}.{i}.json").read_text()) for i in ours]
                             for name in ("peak", "peak-after", "report"))
    both = [(p["bf16_flops"], a["bf16_flops"]) for p, a in zip(peaks, after)]
    peak, threads = median((p + a) / 2 for p, a in both), peaks[0]["threads"]
    print(f"\n{peaks[0]['isa']}, {threads} threads: products at most {peak / 1e9:.1f} GFLOP/s"
          f" ({', '.join(f'{p / 1e9:.1f} before, {a / 1e9:.1f} after' for p, a in both)});"
          f" processors busy {median(f[2] for f in ours.values()) / threads * 100:.0f} % of the time")
    print(f"{'phase':16}{'seconds':>10}{'GFLOP':>12}{'GFLOP/s':>10}{'of peak':>9}")
    flops = {}
    for part in reports[0]["subgraphs"]:
        for phase, g in part["gflop"].items():
            flops[phase] = flops.get(phase, 0) + g
    seconds = {k: median(r["seconds"][k] for r in reports) for k in reports[0]["seconds"]}
    seconds["process"] = median(f[0] for f in ours.values())
    flops["process"] = sum(flops.values())
    for phase, s in seconds.items():
        if phase == "total" or s < 0.005:
            continue
        g = flops.get(phase)
        rate = f"{g:12.0f}{g / s:10.1f}{g * 1e9 / s / peak:9.2f}" if g else ""
        print(f"{phase:16}{s:10.2f}{rate}")


finished = figures("oneshot")
if finished:
    table(finished)
    phases(finished)
else:
    print("bench.sh: no run of oneshot is complete", file=sys.stderr)
