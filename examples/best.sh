#!/usr/bin/env bash
# best.sh - compresses to 3-bit weights in groups of 64 with --quality best, on 64 passages. The
# loss is much smaller than with GPTQ, and the size is the same. Prints the perplexity of the
# result.
# Usage: examples/best.sh [output directory]
# Last line: perplexity 70.63
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-best}

"$oneshot" --model "$model" --recipe "$here/best-w3a16.yaml" --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 64 --max-seq-length 512 --sequential-targets Linear --output "$out" --overwrite
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512
