#!/usr/bin/env bash
# rtn.sh - rounds to 4-bit weights in groups of 128, which needs no data. Prints the perplexity of
# the result.
# Usage: examples/rtn.sh [output directory]
# Last line: perplexity 70.70
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-rtn}

"$oneshot" --model "$model" --recipe "$here/w4a16-rtn.yaml" --output "$out" --overwrite
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512
