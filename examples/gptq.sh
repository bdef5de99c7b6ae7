#!/usr/bin/env bash
# gptq.sh - compresses to 4-bit weights in groups of 128 by GPTQ on 256 passages. Prints the
# perplexity of the result.
# Usage: examples/gptq.sh [output directory]
# Last line: perplexity 70.11
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-gptq}

"$oneshot" --model "$model" --recipe "$here/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 256 --max-seq-length 512 --output "$out" --overwrite
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512
