#!/usr/bin/env bash
# low-memory.sh - runs GPTQ with the least memory. A subgraph is the nodes of one Linear instead of
# a decoder layer, so only one weight and one Hessian are in memory at a time. Values between
# subgraphs are on the disk. The run takes longer. The result differs, because the inputs of a
# Linear depend on more weights that are already quantized.
# Usage: examples/low-memory.sh [output directory]
# Last line: perplexity 70.12
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-low}
job=(--model "$model" --recipe "$here/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 32 --max-seq-length 512)

"$oneshot" plan "${job[@]}" | grep '^memory'
"$oneshot" plan "${job[@]}" --sequential-targets Linear --mem-opt-level 2 | grep '^memory'
"$oneshot" "${job[@]}" --sequential-targets Linear --mem-opt-level 2 --output "$out" --overwrite
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512 --max-windows 16
