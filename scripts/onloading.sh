#!/usr/bin/env bash
# onloading.sh - runs one job three times, for docs/explanation/sequential-onloading.md: with the
# whole model at once, layer by layer, and Linear by Linear. Prints a table in Markdown, and draws
# the memory of each run over time (OUT/TITLE-{basic,layer,linear}.svg).
#
# Usage: scripts/onloading.sh --model DIR --recipe FILE --dataset FILE --out DIR [options]
#                             [-- flags of oneshot]
#   --oneshot BINARY     program to run (default: build/release/oneshot)
#   --title TITLE        used in the names of the pictures (default: the name of the model's
#                        directory)
#   --samples N          number of samples (default: 16)
#   --length N           largest number of tokens of a sample (default: 512)
#   --targets LIST       --sequential-targets of the third run (default: Linear)
# Other work on the machine changes the times, but not the memory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=$here/../build/release/oneshot model= recipe= dataset= out= title= samples=16 length=512 targets=Linear
. "$here/options.sh"
options "oneshot model recipe dataset out title samples length targets" "$@"
needed model recipe dataset out
title=${title:-$(basename "$model")}
mkdir -p "$out"
echo "| | weights | statistics | values at rest | peak, predicted | peak, measured | time |"
echo "|---|---|---|---|---|---|---|"
for way in basic layer linear; do
    case $way in
        basic) cut=(--pipeline basic) ;;
        layer) cut=() ;;
        linear) cut=(--sequential-targets "$targets") ;;
    esac
    job=(--model "$model" --recipe "$recipe" --dataset "$dataset" --num-calibration-samples "$samples"
         --max-seq-length "$length" ${cut[@]+"${cut[@]}"} ${flags[@]+"${flags[@]}"})
    "$oneshot" plan "${job[@]}" --json >"$out/plan.json"
    rm -f "$out/$way.yaml"
    "$oneshot" "${job[@]}" --output "$out/compressed" --overwrite --restart --progress none --profile "$out/$way.yaml" >"$out/log" 2>&1 ||
        { cat "$out/log" >&2; exit 1; }
    "$oneshot" report "$out/$way.yaml" --format svg >"$out/$title-$way.svg"
    python3 - "$way" "$out/plan.json" "$out/compressed/oneshot-report.json" <<'P'
import json
import sys
way, (plan, report) = sys.argv[1], (json.load(open(f)) for f in sys.argv[2:])
most = [max(s[key] for s in plan["subgraphs"]) for key in ("peak_weight_bytes", "statistics_bytes", "value_bytes")]
peaks = report["memory"]["predicted_peak_bytes"], report["memory"]["peak_bytes"]
cells = [f"{n / 1e6:.1f} MB" for n in (*most, *peaks)] + [f"{report['seconds']['total']:.1f} s"]
n = len(plan["subgraphs"])
print(f"| {way}, {n} subgraph{'s' * (n > 1)} | " + " | ".join(cells) + " |")
P
done
