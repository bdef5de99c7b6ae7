# ranks_times.sh - tests the times of a job under mpirun. The report must have the times of each
# rank, and the log must name a slow rank. `plan --json` must have the bytes that ranks send each
# other for each subgraph.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/ranks.sh"
fail() { echo "$1"; [ ! -e log ] || cat log; exit 1; }
"$OSH_TOOLS/make_model" model hidden=128 intermediate=256 heads=4 kv=2 layers=2 vocab=256 samples=8 tokens=48
one="--model model --scheme W4A16 --method gptq --dataset model/calibration.jsonl --num-calibration-samples 8 --max-seq-length 48"
mpi=${mpis[0]}
# Rank 0 stops for 5 seconds in a pass that takes hundredths of a second on an idle machine.
start $mpi 3 ./on 0 LD_PRELOAD="$OSH_TOOLS/inject.so" INJECT_STEP="observe model.layers.0 Start" \
    INJECT_WHAT='(sleep 5; kill -CONT $PPID) & kill -STOP $PPID' -- \
    "$ONESHOT" $one --output out --threads 1 --progress none --profile profile.yaml >log 2>&1 || fail "the run of 3 ranks fails"
[ -n "$SANITIZED" ] || grep -q 'rank 0 of 3 on .* is slow: it runs [0-9]* tokens per second' log || fail "the slow rank is not named"
grep -q 'observe on 3 ranks: .* of work, imbalance' out/oneshot.log || fail "the log has no times of ranks"
grep -q 'table id="ranks"' out/oneshot-report.html || fail "the page has no ranks"
"$ONESHOT" plan $one --output out --json >plan.json --ranks 3
start $mpi 2 "$ONESHOT" --model model --scheme W4A16 --method rtn --max-shard-size 200kB --threads 1 --output rtn --progress none \
    >log 2>&1 || fail "the run of 2 ranks fails"
python3 - <<'END'
import json
report = json.load(open("out/oneshot-report.json"))
ranks = report["ranks"]
assert len(ranks) == 3, ranks
assert all(r["node"] and r["tokens"] > 0 and r["sent_bytes"] > 0 for r in ranks), ranks
assert ranks[0]["seconds"]["observe"] > 5 and ranks[0]["waited_seconds"]["observe"] < ranks[0]["seconds"]["observe"]
assert max(r["waited_seconds"]["observe"] for r in ranks[1:]) > 2, "the other ranks do not wait"
assert 1 < report["imbalance"]["observe"] <= 3, report["imbalance"]
plan = json.load(open("plan.json"))
wire, sent = sum(s["wire_bytes"] for s in plan["subgraphs"]), sum(r["sent_bytes"] for r in ranks)
assert 0.8 * sent < wire < 1.2 * sent, (wire, sent)
assert plan["ranks"]["divided"] == "samples" and plan["ranks"]["node_bytes"] == 3 * plan["ranks"]["host_bytes"]
rtn = json.load(open("rtn/oneshot-report.json"))
assert len(rtn["ranks"]) == 2 and rtn["ranks"][1]["seconds"]["round"] > 0, rtn["ranks"]
END
