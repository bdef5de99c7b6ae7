#!/usr/bin/env bash
# adaround.sh - compresses to 4-bit weights in groups of 128. AdaRound learns for each weight if it
# is rounded down or up.
# Usage: examples/adaround.sh [output directory]
# Last line: perplexity 70.03
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-adaround}

"$oneshot" --model "$model" --recipe "$here/w4a16-adaround.yaml" --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 32 --max-seq-length 512 --output "$out" --overwrite
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512 --max-windows 16
