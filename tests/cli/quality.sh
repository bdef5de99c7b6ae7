# quality.sh - tests --quality best. The output bytes must not depend on threads, batch, a kill, or
# the spelling of the flag. No step may raise a module's loss. The error of the outputs must be
# smaller than with --quality gptq. The memory must be as predicted. --quality best must choose the
# values of flags that are not on the command line.
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
counted="env INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so"
base=$(before=$counted run base "${flags[@]}" --quality best --threads 1)
[ "$(run more "${flags[@]}" --quality best --threads 3 --batch-size 4)" = "$base" ] || fail "threads or batches change the bytes"
cmp base/README.md more/README.md || fail "README.md depends on threads"
grep -qE '^\| Loss \| at the outputs of 28 modules, [0-9.]+ % of' base/README.md || fail "README.md has no loss"
cat >best.yaml <<'YAML'
quant_stage:
  quant_modifiers:
    QuantizationModifier: {scheme: W3A16, ignore: [lm_head], quality: best}
YAML
[ "$(run recipe --recipe best.yaml)" = "$base" ] || fail "quality: best in a recipe gives other bytes than the flag"
sed -i 's/, quality: best//' best.yaml
[ "$(run flag --recipe best.yaml --quality best)" = "$base" ] || fail "--quality best with a recipe gives other bytes"
[ "$(run gptq "${flags[@]}" --quality gptq)" = "$(run method "${flags[@]}" --method gptq)" ] || fail "--quality gptq and --method gptq give different bytes"
[ "$(run gptq1 --recipe best.yaml --quality gptq)" != "$base" ] || fail "quality best gives the bytes of quality gptq"
"$ONESHOT" --model "$model" --recipe best.yaml --quality fast --output fast --progress none >/dev/null || fail "quality fast fails without data"
"$ONESHOT" plan --model "$model" "${flags[@]}" --quality best --method gptq 2>message && fail "--quality together with --method is not refused"
grep -q -e "--method and --quality exclude each other" message || fail "$(cat message)"

# `--quality best` chooses the values of flags that are not on the command line. With the same
# values on the command line, the output has the same bytes.
[ "$(run named "${flags[@]}" --quality best --sequential-targets Linear)" = "$base" ] || fail "best has other targets than Linear"
[ "$(run layers "${flags[@]}" --quality best --sequential-targets LlamaDecoderLayer)" != "$base" ] || fail "--sequential-targets has no effect"
"$OSH_TOOLS/make_model" odd hidden=192 intermediate=384 heads=3 kv=3 layers=1 vocab=96 samples=3 tokens=8 >/dev/null
job=(--model odd --dataset odd/calibration.jsonl --scheme W4A16 --quality best)
"$ONESHOT" "${job[@]}" --output chosen 2>/dev/null >stdout
grep -qx 'best       sets --sequential-targets Linear, --group-size 64 (128 does not' stdout || fail "the plan does not list the settings of quality best: $(cat stdout)"
grep -q '^data  *3 samples of 512 asked for$' stdout || fail "the plan does not count the samples: $(cat stdout)"
"$ONESHOT" "${job[@]}" --output quiet --progress none >stdout 2>stderr
[ "$(wc -l <stdout)" = 1 ] && [ ! -s stderr ] || fail "progress none: $(cat stdout stderr)"
"$ONESHOT" "${job[@]}" --output wanted --group-size 64 --sequential-targets Linear --max-seq-length 2048 --progress none >/dev/null
for f in model.safetensors config.json recipe.yaml; do
    cmp chosen/$f wanted/$f || fail "a file of the output differs from that with groups of 64"
    cmp quiet/$f wanted/$f || fail "with --progress none, a file of the output differs from that with groups of 64"
done
"$ONESHOT" verify chosen --model odd >/dev/null || fail "the chosen groups are not verified"
plan() { "$ONESHOT" plan "${job[@]}" "$@" >plan 2>message; }
plan --group-size 128 && fail "a named size is changed"
grep -q 'groups of 128 do not divide: want --group-size' message || fail "$(cat message)"
plan --ignore 're:.*(self_attn|gate|up).*'
if grep -q -e '--group-size' plan; then fail "the plan sets --group-size, although 128 divides all modules: $(cat plan)"; fi
plan --target-bits 4.6
grep -q -e '--group-size 64' plan || fail "with bits for each module: $(cat plan)"
for names in "0 4096" "3000 3000" "-1 2048"; do
    plan --max-seq-length "${names% *}"
    grep -q "at most ${names#* } each" plan || fail "--max-seq-length ${names% *}: $(cat plan)"
done
"$OSH_TOOLS/make_model" odd hidden=96 intermediate=160 heads=3 kv=3 layers=1 vocab=96 samples=3 tokens=8 >/dev/null
plan
grep -q -e '--group-size 32' plan || fail "the plan does not set groups of 32: $(cat plan)"
if "$ONESHOT" plan "${job[@]:0:6}" --quality gptq 2>message; then fail "quality gptq does not refuse groups that do not divide"; fi
printf 's_stage:\n  s_modifiers:\n    GPTQModifier: {scheme: W4A16, quality: best, ignore: [lm_head]}\n' >own.yaml
if "$ONESHOT" plan "${job[@]:0:4}" --recipe own.yaml 2>message; then fail "a recipe's groups are changed"; fi

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
better = sum(a["objective"] < b["objective"] for a, b in zip(modules[:4], plain[:4]))  # the first q, k and v have the same inputs
assert better >= 3, better
PYTHON

# After a kill, the next run gives the same bytes. The report of the next run has the losses of the
# work before the kill.
losses() { sed -n '/"modules"/,$p' "$1/oneshot-report.json" | grep -E '"(name|step|loss|objective|relative_output_error)"'; }
taken_up=0
for part in 3 5; do
    if before="env INJECT_AT=$(($(cat calls) * part / 6)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so" \
        run resumed "${flags[@]}" --quality best --threads 1 >/dev/null 2>&1; then fail "the run was not killed"; fi
    [ ! -e resumed.oneshot-partial ] || taken_up=$((taken_up + 1))
    [ "$(run resumed "${flags[@]}" --quality best --threads 1)" = "$base" ] || fail "killed at $part/6: the output has other bytes"
    [ "$(losses resumed)" = "$(losses base)" ] || fail "killed at $part/6: $(diff <(losses base) <(losses resumed))"
    cmp base/README.md resumed/README.md || fail "killed at $part/6: another README.md"
    rm -rf resumed
done
[ $taken_up = 2 ] || fail "only $taken_up kills left finished work"

[ -n "$SANITIZED" ] && exit 0 # the plan does not count the memory of a sanitizer
"$OSH_TOOLS/make_model" wide hidden=1024 intermediate=4096 heads=8 kv=4 layers=1 vocab=40000 samples=4 tokens=64
job=(--model wide --dataset wide/calibration.jsonl --scheme W4A16_ASYM --quality best --ignore lm_head --threads 2)
"$ONESHOT" plan "${job[@]}" --json >plan.json
predicted=$(sed -n '/"memory"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1)
"$OSH_TOOLS/watch_memory" watched "$ONESHOT" "${job[@]}" --progress none --output out >/dev/null
read -r peak _ <watched
echo "predicted $predicted, measured $peak"
[ "$peak" -le "$predicted" ] && [ $((predicted * 100)) -le $((peak * 115)) ] || fail "predicted $predicted, measured $peak"
