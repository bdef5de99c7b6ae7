#!/usr/bin/env bash
# steps.sh - runs a large job step by step: the plan; the largest subgraph alone, to check the
# predicted memory; the run; a check of the output; and the perplexity of the output.
# Usage: examples/steps.sh [output directory]
# Last line: perplexity 78.70
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-steps}
job=(--model "$model" --recipe "$here/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 32 --max-seq-length 256 --output "$out")

"$oneshot" plan "${job[@]}" --largest-layer
"$oneshot" "${job[@]}" --only-largest-layer
"$oneshot" "${job[@]}" --overwrite
"$oneshot" verify "$out" --model "$model"
"$oneshot" eval --model "$out" --reference "$model" --dataset "$model/data/evaluation.txt" --max-seq-length 512 \
    --max-windows 8
