#!/usr/bin/env bash
# fp8.sh - compresses to 8-bit floats, for Ada, Hopper and later GPUs. FP8_DYNAMIC needs no data,
# because the scales of activations are computed at run time.
# Usage: examples/fp8.sh [output directory]
# Last line: perplexity 69.88
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-fp8}

"$oneshot" --model "$model" --scheme FP8_DYNAMIC --output "$out" --overwrite
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512 --max-windows 16
