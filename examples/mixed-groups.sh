#!/usr/bin/env bash
# mixed-groups.sh - compresses each kind of module with its own scheme: 8 bits in the attention, and
# 4 bits in the MLP. One layer stays dense.
# Usage: examples/mixed-groups.sh [output directory]
# Last line: perplexity 70.50
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-mixed}

"$oneshot" --model "$model" --recipe "$here/mixed-groups.yaml" --output "$out" --overwrite
"$oneshot" inspect "$out" | tail -4
"$oneshot" eval --model "$out" --dataset "$model/data/evaluation.txt" --max-seq-length 512 --max-windows 16
