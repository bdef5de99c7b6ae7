#!/usr/bin/env bash
# host-memory.sh - compresses a checkpoint that is larger than the memory budget: 336 MB of weights,
# 64 MB of memory. Before a weight is read, the plan checks that the budget is enough, and names the
# smallest budget.
# Usage: examples/host-memory.sh [directory of the checkpoint that is made]
# Last line: the peak stayed below 64 MB
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=$here/docs-llama-3m
big=${1:-big}

python3 "$here/make-model.py" "$big" --layers 4 --hidden 2048 --intermediate 4096
"$oneshot" plan --model "$big" --scheme W4A16 --host-memory 64MB | tail -4
"$oneshot" --model "$big" --scheme W4A16 --host-memory 64MB --output "$big-w4a16" --overwrite
"$oneshot" verify "$big-w4a16" --model "$big"
peak=$(sed -n 's/.*"peak_bytes": *\([0-9]*\).*/\1/p' "$big-w4a16/oneshot-report.json" | head -1)
[ "$peak" -lt 64000000 ] && echo "the peak stayed below 64 MB"
