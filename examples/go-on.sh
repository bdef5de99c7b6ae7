#!/usr/bin/env bash
# go-on.sh - stops a run and continues it. A run that is stopped (Ctrl-C, a kill, a full disk) loses
# nothing. The same command continues, and gives the same files as a run that was not stopped.
# Usage: examples/go-on.sh [output directory]
# Last line: the same bytes
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
out=${1:-docs-llama-3m-gone-on}
job=(--model "$model" --recipe "$here/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 32 --max-seq-length 256)
rm -rf "$out" "$out.whole"

mkfifo "$out.progress"
"$oneshot" "${job[@]}" --progress line --output "$out" 2>"$out.progress" &
while read -r line; do
    echo "$line"
    [[ $line != *"[2/"* ]] || kill -INT $! || : # like Ctrl-C, when the second subgraph is finished
done <"$out.progress"
rm "$out.progress"
wait $! && echo "it was faster than the signal"
"$oneshot" "${job[@]}" --progress line --output "$out" --log-level info
"$oneshot" "${job[@]}" --output "$out.whole" --progress none
cmp "$out/model.safetensors" "$out.whole/model.safetensors" && echo "the same bytes"
