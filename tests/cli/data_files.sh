# data_files.sh - the same rows as .jsonl, .json and .csv, plain and compressed, give the same
# output; errors name the missing file.
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
    cmp out/model.safetensors want || fail "$data: other bytes"
done
mkdir folder
head -n 15 c.jsonl | head -c -1 >folder/1.jsonl # the file has no newline at its end
tail -n 25 c.jsonl | gzip >folder/2.jsonl.gz
"$ONESHOT" "${job[@]}" --dataset folder --output out --overwrite --restart >/dev/null
cmp out/model.safetensors want || fail "a folder: other bytes"
if "$ONESHOT" "${job[@]}" --dataset c.csv --output other 2>err; then fail "a missing column is accepted"; fi
grep -q "c.csv: no column 'text' among id, body: want its name as --text-column" err || fail "$(cat err)"
[ ! -e other ] || fail "an output"
head -n 20 c.jsonl | tail -n 10 >part.jsonl
"$ONESHOT" "${job[@]}" --dataset part.jsonl --output part >/dev/null
"$ONESHOT" "${job[@]}" --dataset c.csv --text-column body --splits 'train[25%:50%]' --output slice >/dev/null
cmp part/model.safetensors slice/model.safetensors || fail "train[25%:50%]: other bytes"
for data in c.json c.csv; do
    "$ONESHOT" eval --model "$model" --dataset $data --text-column $([ $data = c.csv ] && echo body || echo text) \
        --max-seq-length 64 --max-windows 4 --progress none >$data.eval
done
tail -n 1 c.json.eval | grep -q '^perplexity [0-9]' && cmp c.json.eval c.csv.eval || fail "eval: $(cat c.json.eval c.csv.eval)"
# With --reference, eval prints the perplexity of the reference beside the model's.
"$ONESHOT" eval --model out --reference "$model" --dataset c.json --max-seq-length 64 --max-windows 4 --progress none >both.eval
[ "$(sed -n 's/^reference //p' both.eval)" = "$(tail -n 1 c.json.eval)" ] || fail "not the reference's: $(cat both.eval)"
if tail -n 1 both.eval | cmp -s - <(tail -n 1 c.json.eval); then fail "one perplexity for both: $(cat both.eval)"; fi
"$ONESHOT" eval --model out --reference "$model" --dataset c.json --max-seq-length 64 --max-windows 4 --progress none --json >both.json
python3 -c 'import json; e = json.load(open("both.json")); assert 1 < e["reference_perplexity"] != e["perplexity"] > 1, e'
# A line end inside a string is not valid JSON.
printf '[{"text": "one\ntwo"}]' >raw.json
if "$ONESHOT" "${job[@]}" --dataset raw.json --output raw 2>err; then fail "a line end in a string"; fi
grep -q 'raw.json: a line ends inside a string, at row 1' err || fail "$(cat err)"
