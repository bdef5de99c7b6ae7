#!/usr/bin/env bash
# eval.sh - prints the perplexity of a checkpoint (default: the small model before compression).
# Usage: examples/eval.sh [checkpoint directory]
# Last line: perplexity 69.97
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=${1:-$here/docs-llama-3m}

"$oneshot" eval --model "$model" --dataset "$here/docs-llama-3m/data/evaluation.txt" --max-seq-length 512
