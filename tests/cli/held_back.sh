# held_back.sh - tests the measurement after a run. It measures the perplexity of source and output
# on rows that were not used for the calibration, one row for each 128 samples. The numbers must
# equal those of `oneshot eval` on these rows. The measurement must not change the bytes of the
# output. If no row is left, or if the budget is too small, nothing is measured, and the run must
# print one line with the reason.
set -euo pipefail
fail() { echo "$*"; exit 1; }
"$OSH_TOOLS/make_model" model hidden=64 intermediate=96 heads=2 kv=1 layers=2 vocab=96 samples=140 tokens=12 >/dev/null
head -n 128 model/calibration.jsonl >all.jsonl
job=(--model model --scheme W4A16 --group-size 32 --quality gptq --num-calibration-samples 128 --progress line)
run() { "$ONESHOT" "${job[@]}" "$@" 2>err || fail "$*: $(cat err)"; }
run --dataset model/calibration.jsonl --output out >said
grep -q '^perplexity .* of the source .* %), KL ' said && tr -s ' \n' ' ' <said | grep -qF '11 tokens of row 129 of calibration.jsonl, which were not used for calibration' ||
    fail "$(cat said)"
tail -n 1 err | grep -q 'the output   seal' || fail "progress after the run: $(tail -n 3 err)"
"$ONESHOT" eval --model out --reference model --dataset model/calibration.jsonl --splits 'rows[128:129]' --progress none --json >want
python3 - <<'P'
import json
want, got = json.load(open("want")), json.load(open("out/oneshot-report.json"))["evaluation"]
assert got.pop("data") == "row 129 of calibration.jsonl" and got == want, (want, got)
page = open("out/oneshot-report.html").read()
assert page.count('id="perplexity"') == 1 and "11 tokens of row 129 of calibration.jsonl" in page
P
"$ONESHOT" compare out >said
grep -q '11 tokens of row 129 of calibration.jsonl' said || fail "compare does not name the held-back row: $(cat said)"
run --dataset model/calibration.jsonl --output off --held-back false >said
if grep -q perplexity said; then fail "--held-back false: $(cat said)"; fi
for f in model.safetensors config.json recipe.yaml; do cmp out/$f off/$f; done
"$ONESHOT" verify out --model model >/dev/null || fail "verify fails"
"$ONESHOT" plan "${job[@]:0:10}" --dataset model/calibration.jsonl | grep -q '^held back  row 129, ' || fail "the plan does not name the held-back row"

# If the command is repeated, it prints the numbers without measuring. --eval replaces the numbers
# in the JSON and in the HTML report.
touch -d 2000-01-01 out/oneshot-report.html
run --dataset model/calibration.jsonl --output out >again
grep -q '^perplexity' again && [ "$(stat -c %Y out/oneshot-report.html)" = "$(date -d 2000-01-01 +%s)" ] || fail "the finished output is evaluated again: $(cat again)"
tail -n 3 model/calibration.jsonl >text.jsonl
run --dataset model/calibration.jsonl --output out --eval text.jsonl >said
grep -q '^text.jsonl: perplexity [0-9.]*, .* 33 tokens$' said || fail "--eval: $(cat said)"
"$ONESHOT" eval --model out --reference model --dataset text.jsonl --progress none --json >want
python3 - <<'P'
import json
want, got = json.load(open("want")), json.load(open("out/oneshot-report.json"))["evaluation"]
assert got.pop("data") == "text.jsonl" and got == want, (want, got)
page = open("out/oneshot-report.html").read()
assert page.count('id="perplexity"') == 1 and "33 tokens of text.jsonl" in page and "row 129" not in page
P

# A file with the same name in another directory counts as other data.
mkdir other && head -n 2 text.jsonl >other/text.jsonl
run --dataset model/calibration.jsonl --output out --eval other/text.jsonl >said
grep -q '^other/text.jsonl: perplexity .* 22 tokens$' said || fail "the file of --eval is not evaluated: $(cat said)"
run --dataset model/calibration.jsonl --output out --eval text.jsonl >said

# If the command is repeated without --eval, the result of --eval stays.
run --dataset model/calibration.jsonl --output out >said
if grep -q 'row 129' said || ! grep -q '"data": "text.jsonl"' out/oneshot-report.json; then fail "the file of --eval is replaced by the held-back row: $(cat said)"; fi

# arguments: reason, flags. Checks that nothing is measured, and that the run prints the reason
not() {
    run --output no --overwrite --restart "${@:2}" >said
    tr -s ' \n' ' ' <said | grep -qF "perplexity not measured: $1; --eval TEXT measures it" || fail "$*: $(cat said)"
    if grep -q '"evaluation"' no/oneshot-report.json; then fail "$*: the report has an evaluation"; fi
}
not 'calibration uses every row' --dataset all.jsonl
not 'the rows are shuffled' --dataset model/calibration.jsonl --shuffle-calibration-samples
not '--splits selects the rows' --dataset model/calibration.jsonl --splits 'x[:128]'
not 'calibration uses several data sets' --dataset all.jsonl --dataset text.jsonl:0.02
# With sanitizers, the process has more memory than its plan says.
if [ -z "$SANITIZED" ]; then
    least=$("$ONESHOT" plan "${job[@]:0:10}" --dataset model/calibration.jsonl --json | sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p')
    run --dataset model/calibration.jsonl --host-memory "$least" --output least >said
    cmp out/model.safetensors least/model.safetensors || fail "the smallest budget: the output has other bytes"
    grep -q '^perplexity ' said || fail "the smallest budget: $(cat said)"
fi
job[9]=127
run --dataset model/calibration.jsonl --output few >said
if grep -q perplexity said; then fail "too few samples are evaluated: $(cat said)"; fi
# Faults in data that the run does not read must cause no error. Tests a data set for a recipe that
# needs no data, and a bad row after the rows for calibration.
{ head -n 128 model/calibration.jsonl; echo '{"input_ids": [1, 99]}'; } >bad.jsonl # ids are below 96
"$ONESHOT" --model model --scheme FP8_DYNAMIC --dataset bad.jsonl --num-calibration-samples 128 --progress line \
    --output rounded >said 2>err || fail "a recipe without data: $(cat err)"
if grep -q perplexity said; then fail "a recipe without data: $(cat said)"; fi
job[9]=128
run --dataset bad.jsonl --output bad >said
if grep -q perplexity said; then fail "a held-back row is evaluated although it is bad: $(cat said)"; fi
