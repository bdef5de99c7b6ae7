# memory_loading.sh - tests --host-memory while data are read. The budget is respected for lines of
# 40 MB, for rows that are not used, and for texts that are partly used. A normalizer that makes a
# text much longer is refused. A text that cannot be split is an error with the line number. Reading
# and tokenizing can be interrupted.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
text() { head -c "$1" < <(yes 'All of the words that are here, 12 times a line: none of them is new. ' | tr -d '\n'); }
held() { # arguments: name, MiB, then the arguments of oneshot; the run must not exceed this budget
    local name=$1 budget=$2
    shift 2
    # the measured memory includes that of a sanitizer
    [ -z "$SANITIZED" ] || budget=$((budget + 8000))
    rm -rf out
    "$OSH_TOOLS/watch_memory" watched "$ONESHOT" "$@" --host-memory "${budget}MiB" >got 2>err || fail "$name: $(cat err)"
    read -r peak _ <watched
    echo "$name: $((peak >> 10)) KiB of $budget MiB"
    [ "$SANITIZED" ] || [ "$peak" -le $((budget << 20)) ] || fail "$name: $peak bytes under $budget MiB"
}
size=40000000
[ -z "$SANITIZED" ] || size=4000000
text $size >text
{ printf '{"other": [1, {"text": 2}], "text": "'; cat text; printf '"}\n{"text": "short"}\n'; } >line.jsonl
{ cat text; printf '\nshort\n'; } >line.txt
job=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --num-calibration-samples 4 --max-seq-length 64
     --threads 2 --output out --progress none)
held "a line of text" 48 "${job[@]}" --dataset line.txt
held "a row" 48 "${job[@]}" --dataset line.jsonl
held "its plan" 48 plan "${job[@]}" --dataset line.jsonl
held "a text" 48 eval --model "$model" --dataset line.txt --max-windows 2 --max-seq-length 64 --threads 2 --progress none
held "ids" 24 tokenize --model "$model" line.txt
# A prompt is in memory as a whole, so a prompt that is too long for the budget must be refused.
code=0
"$OSH_TOOLS/watch_memory" watched "$ONESHOT" generate "$model" --host-memory 20MiB <line.txt >got 2>err || code=$?
[ "$SANITIZED" ] || { [ $code = 2 ] && grep -q 'while holding --host-memory 20MiB' err; } || fail "a prompt of $size bytes: $code, $(cat err)"
read -r peak _ <watched
[ "$SANITIZED" ] || [ $peak -le $((24 << 20)) ] || fail "a prompt takes $peak bytes"
# The first tokens of a long text equal the tokens of its beginning.
head -c 4000 line.txt >begin.txt
want=$("$ONESHOT" eval --model "$model" --dataset begin.txt --max-windows 2 --max-seq-length 64 --threads 2 --progress none)
[ "$("$ONESHOT" eval --model "$model" --dataset line.txt --max-windows 2 --max-seq-length 64 --threads 2 --progress none)" \
    = "$want" ] || fail "another perplexity of a long text"
# Tests rows that the run does not choose.
row=$(text 60000)
for i in $(seq $((size / 60000))); do printf '{"text": "%s %s"}\n' "$i" "$row"; done >rows.jsonl
for flags in "" "--concatenate-data"; do
    held "rows $flags" 48 "${job[@]}" --dataset rows.jsonl --shuffle-calibration-samples $flags
done

# If a text has no position at which it can certainly be split, it is refused. The message has the
# number of its line. The whole text is never in memory.
mkdir one && cp "$model"/*.json one
sed 's/"pre_tokenizer": *{/"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?<=x)y"},"behavior":"Isolated","invert":false},"was":{/' \
    "$model/tokenizer.json" >one/tokenizer.json
if [ -z "$SANITIZED" ]; then
    code=0
    "$OSH_TOOLS/watch_memory" watched "$ONESHOT" tokenize --model one line.txt --host-memory 24MiB >got 2>err || code=$?
    read -r peak _ <watched
    [ $code = 2 ] || fail "a line in one piece: exit $code, $(cat err)"
    grep -q 'cannot cut them; while reading line.txt line 1; while holding --host-memory 24MiB' err ||
        fail "$(cat err)"
    [ "$peak" -le $((24 << 20)) ] || fail "$peak bytes before it was refused"
fi
# Eight normalizers each make the text ten times as long.
python3 - "$model/tokenizer.json" >one/tokenizer.json <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
t["normalizer"] = {"type": "Sequence", "normalizers":
                   [{"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 10}] * 8}
json.dump(t, sys.stdout)
PY
if "$ONESHOT" tokenize --model one begin.txt 2>err >got; then fail "text that grows to 10^8 times"; fi
grep -q "normalizers make more than" err || fail "$(cat err)"

# A data file of 64 GiB that is not text is refused after its first bytes.
truncate -s 64G endless.txt
if "$ONESHOT" eval --model "$model" --dataset endless.txt >got 2>err; then fail "NULs are taken for text"; fi
grep -q 'endless.txt: a NUL in line 1, at byte 0' err || fail "$(cat err)"

# Reading this file would take minutes. An interrupt ends the reading.
"$ONESHOT" tokenize --model "$model" endless.txt >got 2>err &
pid=$!
sleep 0.3
kill -TERM $pid 2>/dev/null || fail "it has ended by itself: $(cat err)"
code=0
wait $pid || code=$?
[ $code = 1 ] && grep -q interrupted err || fail "interrupted: exit $code, $(cat err)"

# The message names the smallest budget that would be enough. The job works with this budget, and
# smaller budgets are refused.
[ -z "$SANITIZED" ] || exit 0
for flags in "--batch-size 4" "--mem-opt-level 1" "--sequential-targets Linear"; do
    asked=(plan "${job[@]}" --dataset line.txt $flags)
    if "$ONESHOT" "${asked[@]}" --host-memory 1MiB 2>err >got; then fail "1 MiB is enough: $flags"; fi
    least=$(sed -n 's/.*want at least --host-memory \([0-9]*\)MiB.*/\1/p' err)
    [ -n "$least" ] || fail "no smallest budget: $(cat err)"
    "$ONESHOT" "${asked[@]}" --host-memory "${least}MiB" >got || fail "the smallest budget, $least MiB, is refused: $flags"
    for less in 2 4 8; do # the measured base may be wrong by up to 1 MiB
        if "$ONESHOT" "${asked[@]}" --host-memory $((least - less))MiB 2>err >got; then fail "a budget of $less MiB less than the smallest is not refused: $flags"; fi
    done
done
