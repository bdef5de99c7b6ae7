#!/usr/bin/env bash
# reap.sh - removes a quarter of the experts of a mixture of experts with random weights.
# Usage: examples/reap.sh [directory of the checkpoint that is made]
# Last line: moe-reap: 58 checksums agree, 0 modules checked, 53 tensors equal the source's; no findings
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
moe=${1:-moe}

python3 "$here/make-model.py" "$moe" --layers 2 --experts 8
"$oneshot" --model "$moe" --recipe "$here/reap.yaml" --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 8 --max-seq-length 128 --output "$moe-reap" --overwrite
"$oneshot" verify "$moe-reap" --model "$moe"
