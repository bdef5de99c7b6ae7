# data_files.sh - tests data files. Tests that the same rows give the same output as .jsonl, .json,
# .csv and .parquet, and as compressed files. Tests that an error names a missing file.
set -euo pipefail
fail() { echo "$*"; exit 1; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
python3 - "$model/data/calibration.jsonl" <<'P'
import csv, gzip, json, sys
rows = [json.loads(line) for line in open(sys.argv[1])][:40]
json.dump(rows, open("c.json", "w"), indent=1, ensure_ascii=False)
with open("c.csv", "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["id", "body"])
    w.writerows([i, r["text"]] for i, r in enumerate(rows))
for name in ["c.json", "c.csv"]:
    gzip.open(name + ".gz", "wb").write(open(name, "rb").read())
P
head -n 40 "$model/data/calibration.jsonl" >c.jsonl
zstd -q c.json c.csv
job=(--model "$model" --scheme W4A16 --method gptq --num-calibration-samples 4 --max-seq-length 48 --progress none
     --sequential-targets Linear --shuffle-calibration-samples)
for data in c.jsonl c.json c.json.gz c.json.zst c.csv c.csv.gz c.csv.zst; do
    column=()
    case $data in *.csv*) column=(--text-column body) ;; esac
    "$ONESHOT" "${job[@]}" --dataset $data "${column[@]}" --output out --overwrite --restart >/dev/null
    [ -e want ] || cp out/model.safetensors want
    cmp out/model.safetensors want || fail "$data: the output has other bytes"
done
mkdir folder
head -n 15 c.jsonl | head -c -1 >folder/1.jsonl # the file has no newline at its end
tail -n 25 c.jsonl | gzip >folder/2.jsonl.gz
"$ONESHOT" "${job[@]}" --dataset folder --output out --overwrite --restart >/dev/null
cmp out/model.safetensors want || fail "a folder: the output has other bytes"
# A .parquet file, and a directory of such files, give the same bytes as a .jsonl file with the same
# rows.
parquet=$OSH_SOURCE_DIR/tests/golden/parquet/folder
head -n 8 c.jsonl >eight.jsonl
head -n 5 c.jsonl >five.jsonl
for data in eight.jsonl "$parquet" five.jsonl "$parquet/0.parquet"; do
    "$ONESHOT" "${job[@]}" --dataset "$data" --output out --overwrite --restart >/dev/null
    case $data in *.jsonl) cp out/model.safetensors from_jsonl ;; *) cmp out/model.safetensors from_jsonl || fail "$data: the output has other bytes" ;; esac
done
if "$ONESHOT" "${job[@]}" --dataset "$parquet" --text-column body --output other 2>err; then fail "a missing column is accepted"; fi
grep -q "no column 'body', found 'text'; while reading $parquet/[01].parquet row [1-5]$" err || fail "$(cat err)"
if "$ONESHOT" "${job[@]}" --dataset c.csv --output other 2>err; then fail "a missing column is accepted"; fi
grep -q "c.csv: no column 'text' among id, body: want its name as --text-column" err || fail "$(cat err)"
[ ! -e other ] || fail "there is an output"
head -n 20 c.jsonl | tail -n 10 >part.jsonl
"$ONESHOT" "${job[@]}" --dataset part.jsonl --output part >/dev/null
"$ONESHOT" "${job[@]}" --dataset c.csv --text-column body --splits 'train[25%:50%]' --output slice >/dev/null
cmp part/model.safetensors slice/model.safetensors || fail "train[25%:50%]: the output has other bytes"
for data in c.json c.csv; do
    "$ONESHOT" eval --model "$model" --dataset $data --text-column $([ $data = c.csv ] && echo body || echo text) \
        --max-seq-length 64 --max-windows 4 --progress none >$data.eval
done
tail -n 1 c.json.eval | grep -q '^perplexity [0-9]' && cmp c.json.eval c.csv.eval || fail "eval: $(cat c.json.eval c.csv.eval)"
# With --reference, eval prints the perplexity of the reference next to that of the model.
"$ONESHOT" eval --model out --reference "$model" --dataset c.json --max-seq-length 64 --max-windows 4 --progress none >both.eval
[ "$(sed -n 's/^reference //p' both.eval)" = "$(tail -n 1 c.json.eval)" ] || fail "not the reference's: $(cat both.eval)"
if tail -n 1 both.eval | cmp -s - <(tail -n 1 c.json.eval); then fail "both files have the same perplexity: $(cat both.eval)"; fi
"$ONESHOT" eval --model out --reference "$model" --dataset c.json --max-seq-length 64 --max-windows 4 --progress none --json >both.json
python3 -c 'import json; e = json.load(open("both.json")); assert 1 < e["reference_perplexity"] != e["perplexity"] > 1, e'
# A line end inside a string is not valid JSON.
printf '[{"text": "one\ntwo"}]' >raw.json
if "$ONESHOT" "${job[@]}" --dataset raw.json --output raw 2>err; then fail "a line end in a string is not refused"; fi
grep -q 'raw.json: a line ends inside a string, at row 1' err || fail "$(cat err)"
# Several data sets, each with a share of the samples, are interleaved. The output is the same as
# for one file with the interleaved rows.
head -n 20 c.jsonl >first.jsonl
tail -n 20 c.jsonl >last.jsonl
# this is the order of samples for shares of 0.7 and 0.3
{ sed -n 1p first.jsonl; sed -n 1p last.jsonl; sed -n 2,3p first.jsonl; } >mixed.jsonl
job=(--model "$model" --scheme W4A16 --method gptq --num-calibration-samples 4 --max-seq-length 48 --progress none)
"$ONESHOT" "${job[@]}" --dataset mixed.jsonl --output mixed >/dev/null
two=("${job[@]}" --dataset first.jsonl --dataset last.jsonl:0.3)
"$ONESHOT" "${two[@]}" --output two --batch-size 3 --threads 2 >/dev/null
cmp two/model.safetensors mixed/model.safetensors || fail "two data sets: the output has other bytes"
"$ONESHOT" verify two --model "$model" >/dev/null || fail "verify fails"
grep -q '^| Data set | last.jsonl: 1 samples, [0-9]* tokens, a share of 0.3 |$' two/README.md || fail "$(cat two/README.md)"
grep -q '<td>first.jsonl</td><td>3 samples, ' two/oneshot-report.html || fail "the report does not list the data sets"
"$ONESHOT" plan --verbose "${two[@]}" >plan
grep -q '^ *first.jsonl: 3 samples, .* a share of 0.7' plan || fail "$(cat plan)"
"$ONESHOT" plan "${two[@]}" --json >plan.json
python3 - <<'P'
import json
for name in ["plan.json", "two/oneshot-report.json"]:
    r = json.load(open(name))
    assert [(s["name"], s["share"], s["samples"]) for s in r["data_sets"]] == \
        [("first.jsonl", 0.7, 3), ("last.jsonl", 0.3, 1)], r["data_sets"]
assert r["options"]["dataset"] == ["first.jsonl", "last.jsonl:0.3"], r["options"]
assert "--dataset first.jsonl --dataset last.jsonl:0.3" in r["command"], r["command"]
P
"$ONESHOT" "${two[@]}" --output two | grep -q 'is finished' || fail "the same command does not find the finished output"
if "$ONESHOT" "${job[@]}" --dataset first.jsonl --dataset last.jsonl:0.4 --output two 2>err; then fail "another share is not refused"; fi
grep -q "of this run data set 1 is 'first.jsonl, a share of 0.6, " err || fail "$(cat err)"
# A stopped run continues only with the same data sets.
mv two kept
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${two[@]}" --output counted >/dev/null
if INJECT_AT=$(($(cat calls) * 3 / 5)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${two[@]}" --output two \
    >/dev/null 2>&1; then fail "the run was not killed"; fi
[ -d two.oneshot-partial ] || fail "the failed run leaves no unfinished output"
if "$ONESHOT" "${job[@]}" --dataset last.jsonl:0.3 --dataset first.jsonl --output two 2>err; then fail "another order of the data sets is not refused"; fi
grep -q 'was begun by another run: data set 1 is ' err || fail "$(cat err)"
"$ONESHOT" "${two[@]}" --output two >/dev/null && cmp two/model.safetensors kept/model.safetensors || fail "resumed: the output has other bytes"
# Tests --num-calibration-tokens. Also tests that a run does not overwrite a file that it reads.
"$ONESHOT" plan --json --model "$model" --scheme W4A16 --method gptq --max-seq-length 16 --dataset c.jsonl \
    --num-calibration-tokens 100 | python3 -c 'import json, sys; d = json.load(sys.stdin)["data_sets"]; assert d[0]["tokens"] == 112, d'
if "$ONESHOT" "${two[@]}" --output other --profile last.jsonl 2>err; then fail "a run with its data set as --profile is not refused"; fi
grep -q -- '--profile last.jsonl would overwrite last.jsonl, and --dataset reads that file' err || fail "$(cat err)"
