#!/usr/bin/env bash
# w8a8.sh - compresses weights and activations to 8-bit integers. SmoothQuant makes the activations
# easier to quantize, then GPTQ solves the weights. Both run in one traversal of the model.
# Usage: examples/w8a8.sh [output directory]
# Last line: perplexity 69.82
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-w8a8}

"$oneshot" --model "$model" --recipe "$here/w8a8-smoothquant.yaml" --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 32 --max-seq-length 512 --output "$out" --overwrite
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512 --max-windows 16
