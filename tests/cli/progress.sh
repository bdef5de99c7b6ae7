# progress.sh - tests --progress json, the log file, --checkpoint and --profile. Every line of JSON
# must be an object with the documented keys. After a tenth of the work, the predicted remaining
# time must be within 20 % of the true time. Memory peaks must be reported even without a budget.
# The log file must have whole lines, and lines for the stages.
#
# Other programs may use the machine at the same time. Therefore the test uses the CPU time or the
# wall time of the process, whichever fits better, and tries up to three runs. If all these runs had
# to share the processors, the test does not compare the remaining time. With sanitizers it never
# compares the remaining time.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
one() {
    last_wins "$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" \
        --dataset "$model/data/calibration.jsonl" --max-seq-length 256 --overwrite "$@"
}
cat >check.py <<'P'
import json, os, sys
events = [json.loads(line) for line in open("progress.jsonl")]
keys = {"event": str, "step": int, "n_steps": int, "name": str, "phase": str, "done": int, "total": int,
        "elapsed_s": float, "cpu_s": float, "peak_bytes": int, "finished": bool}
also = {"error": float, "loss_of_rtn": float, "tokens_per_s": float, "eta_s": float, "bytes_per_s": float, "fraction": float, "budget_bytes": int}
for e in events:
    assert e["event"] == "progress", e
    for k, t in keys.items():
        assert isinstance(e[k], t) or (t is float and isinstance(e[k], int)), (k, e)
    assert not set(e) - set(keys) - set(also), e
assert [e["name"] for e in events if e["finished"]][-1] == "the output"
assert any(e.get("tokens_per_s", 0) > 0 for e in events)
assert events[-1]["peak_bytes"] > 1 << 20
for a, b in zip(events, events[1:]):
    assert b["elapsed_s"] >= a["elapsed_s"] and b["step"] >= a["step"], (a, b)
wall, cpu = events[-1]["elapsed_s"], events[-1]["cpu_s"]
# The rate is the number of tokens divided by the seconds of the whole run, including the plan.
tokens = json.load(open("out/oneshot-report.json"))["tokens"]
part = events[-1]["tokens_per_s"] * wall / tokens
assert 1 <= part < 1.5, ("tokens per second", events[-1], tokens)
parts = [e["fraction"] for e in events if "fraction" in e]
assert len(parts) > 10 and parts[0] < 0.5 and parts[-1] == 1, parts
def off(key, total):
    """How far the estimate was off, at the first event behind a tenth of the time."""
    e = next(e for e in events if e[key] >= 0.1 * total and "eta_s" in e)
    left = e["eta_s"] * e[key] / e["elapsed_s"]
    return abs(left / (total - e[key]) - 1)
best = min(off("elapsed_s", wall), off("cpu_s", cpu))
print(f"wall {wall:.2f} s off by {off('elapsed_s', wall):.2f}, cpu {cpu:.2f} s off by {off('cpu_s', cpu):.2f}")
shared = wall > 1.6 * cpu / len(os.sched_getaffinity(0))
sys.exit(0 if best <= 0.2 or os.environ["SANITIZED"] else 3 if shared else 1)
P
ok= shared=0 samples=128
if [ "$SANITIZED" ]; then samples=24; fi # builds with sanitizers are slow
for try in 1 2 3; do
    one --num-calibration-samples $samples --output out --progress json --profile p.yaml --log-file run.log \
        --checkpoint half=model.layers.2 --checkpoint 're:model.layers.[01]$' >/dev/null 2>progress.jsonl
    code=0
    python3 check.py || code=$?
    case $code in
        0) ok=1 && break ;;
        3) shared=$((shared + 1)) ;;
    esac
done
[ -n "$ok" ] || [ "$shared" = 3 ] || { echo "the time to go is off by more than a fifth"; exit 1; }

# The profile has Quark's keys, the checkpoints and the bytes of the output.
python3 - <<'P'
import json, os, re
text = open("p.yaml").read()
steps = re.findall(r'^- step: "(.*)"$', text, re.M)
assert steps[0] == "Start" and steps[-1] == "End", steps
for s in ["plan Start", "observe model.layers.1 Start", "solve model.layers.1 End", "propagate model.layers.1 End",
          "half", "model.layers.0", "model.layers.1", "seal End"]:
    assert steps.count(s) == 1, s
assert steps.index("half") == steps.index("propagate model.layers.2 End") + 1, steps
for s in steps:
    if s.endswith(" Start"):
        assert s[:-5] + "End" in steps, s
for key in ["timestamp", "relative_time_secs", "cpu_memory_mb", "gpu_memory_mb", "disk_read_mb", "disk_write_mb"]:
    assert len(re.findall(rf"^  {key}: [0-9.]+$", text, re.M)) == len(steps), key
for key in ["total_quantization_time_seconds", "peak_memory_mb", "peak_gpu_memory_mb", "total_disk_read_mb",
            "total_disk_write_mb"]:
    assert len(re.findall(rf"^{key}: [0-9.]+$", text, re.M)) == 1, key
report = json.load(open("out/oneshot-report.json"))
assert [c["name"] for c in report["checkpoints"]] == ["model.layers.0", "model.layers.1", "half"]
s = report["seconds"]
assert abs(sum(v for k, v in s.items() if k != "total") - s["total"]) < 0.01 * s["total"], s
assert report["memory"]["peak_bytes"] >= max(b for _, b, live in report["memory"]["points"]) > 0
assert max(live for _, _, live in report["memory"]["points"]) == report["memory"]["used_peak_bytes"] > 0
assert len(report["memory"]["points"]) <= 1000
assert report["io"]["written_bytes"] >= os.path.getsize("out/model.safetensors")
assert report["options"]["checkpoint"] == ["half=model.layers.2", "re:model.layers.[01]$"]
assert report["options"]["model"] == "docs-llama-3m"  # no directory of this machine
assert [x["name"] for x in report["subgraphs"]][1:] == [f"model.layers.{i}" for i in range(4)]
P
grep -q ' stage   observe model.layers.3 Start, ' run.log
tail -n 1 run.log | grep -q ' done '
[ ! -e out/oneshot.log ]

# By default the log is in the output directory. The log of a failed run has the error.
one --num-calibration-samples 2 --output out --progress none >/dev/null
grep -q ' stage   seal End, ' out/oneshot.log
if one --num-calibration-samples 2 --output out --progress none --log-file run2.log --checkpoint x=model.layer.0 2>err; then
    echo "a checkpoint that names nothing was accepted"; exit 1
fi
grep -q 'model.layer.0 matches no subgraph' err
grep -q ' failed .*matches no subgraph' run2.log
if one --output elsewhere --progress json --model nowhere 2>err; then exit 1; fi
python3 -c 'import json; e = json.loads(open("err").readlines()[-1]); assert e["event"] == "error" and e["exit"] == 1 and "nowhere" in e["text"], e'
# After a kill the log has whole lines, and the profile is a list of whole records.
# The script starts the program itself, because $! of a function would be the process of a shell.
samples=256
if [ "$SANITIZED" ]; then samples=48; fi
killed=(--model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --output killed
        --dataset "$model/data/calibration.jsonl" --max-seq-length 256 --num-calibration-samples $samples)
"$ONESHOT" "${killed[@]}" --progress none --profile k.yaml --log-file k.log >/dev/null 2>&1 &
pid=$!
for i in $(seq 6000); do grep -q 'observe model.layers.2 Start' k.log 2>/dev/null && break; sleep 0.05; done
kill -9 $pid
wait $pid || true
[ "$(tail -c 1 k.log | od -An -c | tr -d ' ')" = '\n' ] || [ $(($(stat -c %s k.log) % 4096)) = 0 ]
# the profile has a line each for model, method and memory_usage, then records of eleven lines
[ $(($(grep -vcE '^(#|$)' k.yaml) % 11)) = 3 ]
# In a resumed run, the finished fraction includes the work of the killed run, but the rate does
# not.
"$ONESHOT" "${killed[@]}" --progress json >/dev/null 2>resumed.jsonl
python3 - <<'P'
import json
events = [e for e in map(json.loads, open("resumed.jsonl")) if e["event"] == "progress"]
first, last = next(e for e in events if "fraction" in e), events[-1]
report = json.load(open("killed/oneshot-report.json"))
tokens = report["tokens"]
assert report["resumed"] == 1 and "The run was resumed once." in open("killed/oneshot-report.html").read()
assert 0.2 < first["fraction"] < 0.9 and last["fraction"] == 1, (first, last)
part = last["tokens_per_s"] * last["elapsed_s"] / tokens
assert 0.1 < part < 0.8, (part, last)
P
# The rate of eval counts the passes of the model and of the reference. Surveys report the remaining
# time. Without a terminal, tuning prints lines.
"$ONESHOT" eval --model "$model" --reference "$model" --dataset "$model/data/evaluation.txt" --max-windows 4 --max-seq-length 128 \
    --progress json >/dev/null 2>eval.jsonl
cat >best.yaml <<'END'
s_stage:
  s_modifiers:
    SparseGPTModifier: {sparsity: 0.5, sparsity_profile: owl, owl_m: 5, owl_lmbda: 0.08, targets: Linear, ignore: [lm_head]}
END
one --num-calibration-samples 4 --recipe best.yaml --output owl --progress json >/dev/null 2>owl.jsonl
sed 's/SparseGPTModifier.*/GPTQModifier: {scheme: W4A16, targets: Linear, ignore: [lm_head], quality: best, tune: 9}/' best.yaml >tune.yaml
one --num-calibration-samples 4 --recipe tune.yaml --max-seq-length 64 --output tuned --progress line >/dev/null 2>lines
grep -qE '<b>The output (predicts|is|differs).*</b>' tuned/oneshot-report.html &&
    grep -q 'For 1 sample that tuning held back, the KL divergence' tuned/oneshot-report.html || { echo "no verdict"; exit 1; }
[ "$(grep -c '\[.*the output   tune [0-9]*/9 .*   eta ' lines)" = 8 ] || { cat lines; exit 1; }
python3 - <<'P'
import json
read = lambda name: [e for e in map(json.loads, open(name)) if e["event"] == "progress"]
events = read("eval.jsonl")
# tokens_per_s = tokens * fraction / (elapsed_s - begin). The events of the model and those of the
# reference must all give the same time `begin`.
begin = [e["elapsed_s"] - 4 * 128 * e["fraction"] / e["tokens_per_s"] for e in events if e["fraction"] > 0]
assert len(begin) >= 11 and events[-1]["phase"] == "score" and max(begin) - min(begin) < 0.05, begin
survey = [e for e in read("owl.jsonl") if e["phase"] == "outliers"]
assert [e["step"] for e in survey if e["finished"]] == [1, 2, 3, 4, 5]
assert sum("eta_s" in e for e in survey) >= 4, survey
P
