#!/usr/bin/env bash
# moe.sh - compresses a mixture of experts with random weights. Every expert is calibrated with
# every token. The router stays dense.
# Usage: examples/moe.sh [directory of the checkpoint that is made]
# Last line: moe-w4a16: 182 checksums agree, 56 modules checked, 9 tensors equal the source's; no findings
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
moe=${1:-moe}

python3 "$here/make-model.py" "$moe" --layers 2 --experts 8
"$oneshot" --model "$moe" --recipe "$here/moe.yaml" --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 8 --max-seq-length 128 --output "$moe-w4a16" --overwrite
"$oneshot" verify "$moe-w4a16" --model "$moe"
