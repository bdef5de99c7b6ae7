#!/usr/bin/env bash
# proportion.sh - measures the time of GPTQ per batch and per Linear, in models with a thousand, ten
# thousand and forty thousand Linears (tiny experts). The work for one Linear does not depend on the
# number of Linears, so the columns of the table are constant.
#
# Usage: scripts/proportion.sh --make-model BINARY --out DIR [options] [-- flags of oneshot]
#   --oneshot BINARY     program to run (default: build/release/oneshot)
#   --make-model BINARY  build/release/tests/make_model, which is built with the tests
#   --layers LIST        number of layers of each model (default: "3 26 105")
#   --experts N          number of experts of a layer (default: 128; a layer then has 388 Linears)
#   --runs N             number of runs, of which the shortest time counts (default: 3)
# Takes a minute on two idle cores.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=$here/../build/release/oneshot make_model= out= runs=3 layers="3 26 105" experts=128
. "$here/options.sh"
options "oneshot make_model out layers experts runs" "$@"
needed make_model out
mkdir -p "$out"
printf '%8s %10s %10s %10s %12s %12s %12s\n' Linears "total s" "plan s" MB "us a Linear" "us to plan" "ms a batch"
for n in $layers; do
    dir=$out/model.$n
    rm -rf "$dir"
    "$make_model" "$dir" hidden=32 intermediate=32 heads=2 kv=2 head_dim=16 layers="$n" experts="$experts" topk=2 \
        vocab=64 samples=4 tokens=16
    for ((run = 0; run < runs; run++)); do
        "$oneshot" --model "$dir" --scheme W4A16 --group-size 32 --method gptq --threads 1 --progress none --overwrite \
            --dataset "$dir/calibration.jsonl" --output "$out/compressed" ${flags[@]+"${flags[@]}"} >"$out/log" 2>&1 ||
            { cat "$out/log" >&2; exit 1; }
        cp "$out/compressed/oneshot-report.json" "$out/report.$n.$run.json"
    done
    # The last columns: time of the solve per Linear, time of the plan per Linear, and time of the
    # phases observe and propagate per layer and batch.
    python3 - "$n" "$out"/report."$n".*.json <<'P'
import json, sys
layers = int(sys.argv[1])
r = min((json.load(open(f)) for f in sys.argv[2:]), key=lambda r: r["seconds"]["total"])
s, n, batches = r["seconds"], len(r["modules"]), r["samples"]
print("%8d %10.2f %10.2f %10.1f %12.1f %12.1f %12.3f" % (
    n, s["total"], s["plan"], r["memory"]["peak_bytes"] / 1e6, 1e6 * s["solve"] / n, 1e6 * s["plan"] / n,
    1e3 * (s["observe"] + s["propagate"]) / (layers * batches)))
P
    rm -rf "$dir"
done
