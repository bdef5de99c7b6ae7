#!/usr/bin/env bash
# profile.sh - shows time and memory of a run: a profile in the format of AMD Quark with a
# checkpoint of the user, the report as a page for a browser, and a picture of the graph and its
# subgraphs.
# Usage: examples/profile.sh [output directory]
# Last line: profile, report and graph are there
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-profiled}

"$oneshot" --model "$model" --recipe "$here/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 32 --max-seq-length 256 --profile "$out.yaml" --checkpoint half=model.layers.1 \
    --output "$out" --overwrite
sed -n '/^total_quantization/,$p' "$out.yaml"
"$oneshot" graph --model "$model" --dot >"$out.dot"
command -v dot >/dev/null && dot -Tsvg "$out.dot" -o "$out.svg" # from the package graphviz
grep -q '"half"' "$out.yaml" && grep -q '</html>' "$out/oneshot-report.html" && grep -q '^digraph' "$out.dot" &&
    echo "profile, report and graph are there"
