# largest_layer.sh - tests two flags. plan --largest-layer must name the subgraph with the highest
# predicted memory. --only-largest-layer must run only this subgraph, and leave no file. The memory
# of this run must be at most the predicted memory, and close to the peak of the whole run.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
args=(--model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl"
      --num-calibration-samples 24 --max-seq-length 256 --batch-size 4)
"$ONESHOT" plan "${args[@]}" --json >plan.json
"$ONESHOT" plan "${args[@]}" --largest-layer --json >largest.json
"$ONESHOT" plan "${args[@]}" --largest-layer >largest.txt
mkdir work && cd work
for flags in "" "--sequential-targets Linear" "--pipeline basic" "--mem-opt-level 2"; do
    # shellcheck disable=SC2086 # the flags are several words
    "$ONESHOT" "${args[@]}" $flags --output out --only-largest-layer --json --progress none >../try.json
    python3 -c '
import json, os
t = json.load(open("../try.json"))
assert os.environ["SANITIZED"] or 0 < t["measured_bytes"] <= t["predicted_bytes"], t
assert t["measured_bytes"] > 8 << 20, t'
    [ -z "$(ls -A)" ] || { echo "left behind:"; ls -A; exit 1; }
done
# runs without --output
"$ONESHOT" "${args[@]}" --only-largest-layer --json --progress none >../try.json
"$ONESHOT" --model "$model" --scheme W8A16 --ignore lm_head --only-largest-layer --progress none >../datafree.txt
[ -z "$(ls -A)" ] || { echo "left behind:"; ls -A; exit 1; }
cd ..
grep -Eq '^model.layers.[0-9]+.mlp.[a-z_]+: predicted peak .* nothing is kept$' datafree.txt
"$ONESHOT" "${args[@]}" --output out --progress none >/dev/null
python3 - <<'P'
import json, os, sys
plan, largest, tried = (json.load(open(f)) for f in ["plan.json", "largest.json", "try.json"])
best = max(plan["subgraphs"], key=lambda s: s.get("host_bytes", 0))
assert largest["name"] == best["name"] == tried["name"] == open("largest.txt").read().split(":")[0], (largest, best)
assert abs(largest["host_bytes"] - best["host_bytes"] - largest["base_bytes"]) <= 1, (largest, best)
if os.environ["SANITIZED"]: # a sanitizer keeps freed memory, so the peaks are too large
    sys.exit(0)
run = json.load(open("out/oneshot-report.json"))["memory"]
assert run["predicted_peak_bytes"] >= run["peak_bytes"]
assert abs(tried["measured_bytes"] - run["peak_bytes"]) < 0.15 * run["peak_bytes"], (tried, run["peak_bytes"])
P
