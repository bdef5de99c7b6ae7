#!/usr/bin/env bash
# nvfp4.sh - compresses to 4-bit floats in groups of 16, for Blackwell GPUs. The weights need no
# data; the scales of activations are measured on some passages.
# Usage: examples/nvfp4.sh [output directory]
# Last line: perplexity 71.68
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-nvfp4}

"$oneshot" --model "$model" --scheme NVFP4 --dataset "$model/data/calibration.jsonl" --num-calibration-samples 16 \
    --max-seq-length 512 --output "$out" --overwrite
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512 --max-windows 16
