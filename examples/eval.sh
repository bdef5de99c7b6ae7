#!/usr/bin/env bash
# eval.sh - perplexity of a checkpoint; here of the small model as it was trained.
# Usage: examples/eval.sh [checkpoint directory]
# Last line: perplexity 69.97
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=${1:-$here/docs-llama-3m}

"$oneshot" eval --model "$model" --dataset "$here/docs-llama-3m/data/evaluation.txt" --max-seq-length 512
