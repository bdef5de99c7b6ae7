# quality.sh - --quality best. The bytes do not depend on threads, batch and the spelling of the
# flag. No step raises a module's loss. The error of the outputs is smaller than with gptq. The
# memory is as predicted. A kill does not change the result.
set -euo pipefail
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
run() { # arguments: output, flags
    out=$1
    shift
    ${before:-} "$ONESHOT" --model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 5 \
        --max-seq-length 96 --progress none --output "$out" "$@" >/dev/null
    sha256sum "$out/model.safetensors" | cut -d' ' -f1
}
flags=(--scheme W3A16 --ignore lm_head)
base=$(run base "${flags[@]}" --quality best --threads 1)
[ "$(run more "${flags[@]}" --quality best --threads 3 --batch-size 4)" = "$base" ] || fail "threads or batch count"
cat >best.yaml <<'YAML'
quant_stage:
  quant_modifiers:
    QuantizationModifier: {scheme: W3A16, ignore: [lm_head], quality: best}
YAML
[ "$(run recipe --recipe best.yaml)" = "$base" ] || fail "a recipe's quality: best is another"
sed -i 's/, quality: best//' best.yaml
[ "$(run flag --recipe best.yaml --quality best)" = "$base" ] || fail "--quality best on a recipe is another"
[ "$(run gptq "${flags[@]}" --quality gptq)" = "$(run method "${flags[@]}" --method gptq)" ] || fail "gptq is not gptq"
[ "$(run gptq1 --recipe best.yaml --quality gptq)" != "$base" ] || fail "best changes nothing"
"$ONESHOT" --model "$model" --recipe best.yaml --quality fast --output fast --progress none >/dev/null || fail "fast wants data"
"$ONESHOT" plan --model "$model" "${flags[@]}" --quality best --method gptq 2>message && fail "two words for one thing"
grep -q -e "--method and --quality exclude each other" message || fail "$(cat message)"

python3 - <<'PYTHON'
import json
modules = json.load(open("base/oneshot-report.json"))["modules"]
assert len(modules) == 28, len(modules)
for m in modules:
    losses = [x["loss"] for x in m["losses"]]
    assert [x["step"] for x in m["losses"]] == ["solve", "rescale", "descend", "fit_scales"], m
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] and m["objective"] == losses[-1], m
    assert 0 < m["relative_output_error"] < 0.5, m
plain = json.load(open("gptq/oneshot-report.json"))["modules"]
better = sum(a["objective"] < b["objective"] for a, b in zip(modules[:4], plain[:4]))  # of the same inputs: the first q, k, v
assert better >= 3, better
PYTHON

# After a kill, the next run gives the same bytes. Its report has the losses of the work before the
# kill.
losses() { sed -n '/"modules"/,$p' "$1/oneshot-report.json" | grep -E '"(name|step|loss|objective|relative_output_error)"'; }
before="env INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so" run counted "${flags[@]}" --quality best --threads 1 >/dev/null
taken_up=0
for part in 3 5; do
    if before="env INJECT_AT=$(($(cat calls) * part / 6)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so" \
        run resumed "${flags[@]}" --quality best --threads 1 >/dev/null 2>&1; then fail "it was not killed"; fi
    [ ! -e resumed.oneshot-partial ] || taken_up=$((taken_up + 1))
    [ "$(run resumed "${flags[@]}" --quality best --threads 1)" = "$base" ] || fail "killed at $part/6: other bytes"
    [ "$(losses resumed)" = "$(losses base)" ] || fail "killed at $part/6: $(diff <(losses base) <(losses resumed))"
    rm -rf resumed
done
[ $taken_up = 2 ] || fail "only $taken_up kills left finished work"

[ -n "$SANITIZED" ] && exit 0 # a sanitizer's memory is not the program's
"$OSH_TOOLS/make_model" wide hidden=1024 intermediate=4096 heads=8 kv=4 layers=1 vocab=40000 samples=4 tokens=64
job=(--model wide --dataset wide/calibration.jsonl --scheme W4A16_ASYM --quality best --ignore lm_head --threads 2)
"$ONESHOT" plan "${job[@]}" --json >plan.json
predicted=$(sed -n '/"memory"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1)
"$OSH_TOOLS/watch_memory" watched "$ONESHOT" "${job[@]}" --progress none --output out >/dev/null
read -r peak _ <watched
echo "predicted $predicted, measured $peak"
[ "$peak" -le "$predicted" ] && [ $((predicted * 100)) -le $((peak * 115)) ] || fail "predicted $predicted, measured $peak"
