# generate.sh - tests oneshot generate. The tokens must not depend on the number of threads, the
# budget or the cache. Sampled tokens must depend only on the seed. A compressed model must give the
# ids that transformers gives. Also tests the sources of the prompt, the output of the text, and the
# end of the text.
set -euo pipefail
fail() { echo "$*"; exit 1; }
cp -r "$OSH_SOURCE_DIR/examples/docs-llama-3m" model
sed -i 's/"bfloat16"/"float32"/' model/config.json # F32, so that no two logits are equal
model=model
gen() { "$ONESHOT" generate "$@" --max-new-tokens 12; }
ids() { sed -n 's/.*"new_ids": \[\([^]]*\)\].*/\1/p'; }

# Tests threads, the cache, and a prompt on standard input. Standard output has only the text.
want=$(gen "$model" "The option" --json --threads 1)
[ "$want" = '{"prompt_ids": [464, 628], "new_ids": [297, 515, 293, 489, 267, 468, 878, 16, 383, 603, 297, 223], "text": " is used to use the file system. The default is ", "stop_reason": "max_new_tokens"}' ] ||
    fail "other tokens: $want"
text=$(gen "$model" "The option" --threads 3 2>err; echo .)
[ "$text" = " is used to use the file system. The default is ." ] && [ ! -s err ] || fail "text '$text', $(cat err)"
[ "$(gen "$model" "The option" --json --use-cache false --threads 2)" = "$want" ] || fail "another text without a cache"
[ "$(echo "The option" | gen "$model" --json --threads 2)" = "$want" ] || fail "another text from standard input"
[ "$(printf 'The option' | gen "$model" - --json --threads 2)" = "$want" ] || fail "another text from -"
[ "$(gen "$model" --input-ids 464,628 --json --threads 2)" = "$want" ] || fail "another text from ids"

# A budget that is too small must be refused with a message that names the smallest budget that is
# enough. With this budget, the run must work. It reads the weights again for each token.
if gen "$model" "The option" --threads 2 --host-memory 1MiB 2>err; then fail "a budget of 1 MiB is not refused"; fi
least=$(sed -n 's/.*want at least --host-memory \([0-9]*\)MiB.*/\1/p' err)
[ -n "$least" ] || fail "no smallest budget: $(cat err)"
for more in 0 2; do
    budget=$((least + more))MiB
    got=$("$OSH_TOOLS/watch_memory" watched "$ONESHOT" generate "$model" "The option" --max-new-tokens 12 --json --threads 2 --host-memory $budget 2>err) ||
        fail "$budget: $(cat err)"
    [ "$got" = "$want" ] || fail "another text with $budget"
    grep -q 'each token reads [0-9.]* MB of the checkpoint again' err || fail "no warning with $budget: $(cat err)"
    read -r peak _ <watched
    echo "budget $budget, measured $((peak >> 20)) MiB: $(cat err)"
    [ "$SANITIZED" ] || [ $peak -le $(((least + more) << 20)) ] || fail "measured $peak, budget $budget"
done
# The budget in the message is exact to 1 MiB.
if gen "$model" "The option" --threads 2 --host-memory $((least - 2))MiB 2>err; then fail "a budget of 2 MiB less than the smallest is not refused"; fi

# Tests tokens that are drawn at random.
a=$(gen "$model" "The" --temperature 0.9 --top-k 40 --top-p 0.9 --seed 5 --threads 1 --json | ids)
b=$(gen "$model" "The" --temperature 0.9 --top-k 40 --top-p 0.9 --seed 5 --threads 3 --json | ids)
c=$(gen "$model" "The" --temperature 0.9 --top-k 40 --top-p 0.9 --seed 6 --threads 3 --json | ids)
greedy=$(gen "$model" "The" --json --threads 3 | ids)
[ "$a" = "$b" ] || fail "threads change a draw: $a, $b"
[ "$a" != "$c" ] && [ "$a" != "$greedy" ] || fail "the seed changes nothing: $a, $c, $greedy"
[ "$(gen "$model" "The" --temperature 2 --top-k 1 --json | ids)" = "$greedy" ] || fail "--top-k 1 is not the most likely token"
[ "$(gen "$model" "The" --temperature 2 --top-p 1e-9 --json | ids)" = "$greedy" ] || fail "--top-p 1e-9 is not the most likely token"

# Tests --chat, and end tokens. The end tokens come from the first file that names end tokens.
gen "$model" "Hello" --chat --json >got
grep -q '"prompt_ids": \[[^]]*\], ' got || fail "no chat: $(cat got)"
cp -r "$model" ends
echo '{"eos_token_id": [7, 878]}' >ends/generation_config.json
got=$(gen ends "The option" --json)
case $got in *'"new_ids": [297, 515, 293, 489, 267, 468, 878], "text": " is used to use the file", "stop_reason": "eos_token"}') ;;
*) fail "does not end at 878: $got" ;; esac
rm ends/generation_config.json
sed -i 's/"eos_token_id": 0/"eos_token_id": 468/' ends/config.json
gen ends "The option" --json | grep -q '"new_ids": \[297, 515, 293, 489, 267, 468\]' || fail "the text does not end at eos_token_id of config.json"
sed -i 's/"eos_token_id": 468,//' ends/config.json
sed -i 's/"eos_token": "[^"]*"/"eos_token": "The"/' ends/tokenizer_config.json
gen ends "The option" --json | grep -q '"new_ids": \[297, 515, 293, 489, 267, 468, 878, 16, 383' || fail "another text"
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 8/' ends/config.json
gen ends "The option" --json | grep -q '"new_ids": \[297, 515, 293, 489, 267, 468, 878\], .*"stop_reason": "max_positions"' || fail "the text does not end at the last of 8 positions"

# Without a tokenizer, prompt and output are ids. A run without a cache must give the same tokens as
# a run with a cache, also for models with recurrent states or experts.
for case in qwen3_next granite_hybrid llama4; do
    "$OSH_TOOLS/tiny_model" $case $case float32
    a=$(gen $case --input-ids 3,1,4,1,5 --threads 2)
    b=$(gen $case --input-ids 3,1,4,1,5 --threads 1 --use-cache false)
    [ "$a" = "$b" ] && [ "$(echo "$a" | wc -w)" -ge 2 ] || fail "$case: '$a', without a cache '$b'"
done

# Tests wrong calls.
refused() { # message, arguments
    local part=$1 rc=0
    shift
    "$ONESHOT" generate "$@" </dev/null >out 2>err || rc=$?
    [ $rc = 2 ] && grep -qF "$part" err || fail "$*: exit $rc, $(cat err)"
    [ ! -s out ] || fail "$*: text on standard output"
}
refused 'generate wants a checkpoint directory and a prompt'
refused 'temperature is 0' "$model" x --top-k 4
refused 'top_p' "$model" x --temperature 1 --top-p 1.5
refused 'has no tokenizer.json: want --input-ids' llama4 x
for ids in 3,x 3,,4 ,3 3, "" "3 4"; do refused "want whole numbers from 0" llama4 --input-ids "$ids"; done
refused 'the prompt: byte 4 is 0xff, which is not UTF-8' "$model" $'The \xff option'
refused 'the prompt: byte 4 is 0xc3, which is not UTF-8' "$model" $'The \xc3'
refused 'got a prompt and --input-ids' "$model" x --input-ids 3
cp -r $model plain
rm plain/tokenizer_config.json
refused 'has no chat template' plain x --chat
refused 'unexpected argument' "$model" x y
refused 'the prompt has 9 tokens, and the model has 8 positions' ends --input-ids 1,2,3,4,5,6,7,8,9

# For a compressed model in F32, the ids equal those of transformers 5.17 (eager attention).
"$ONESHOT" --model "$model" --scheme W4A16 --method rtn --ignore lm_head --output w4 --progress none >/dev/null
[ "$(gen w4 "The option" --json | ids)" = "297, 515, 293, 489, 267, 468, 878, 16, 383, 468, 297, 267" ] || fail "W4A16: other tokens"

# Tests --sample. The answers of source and output must equal those of the command `generate`. The
# run must print both answers side by side, and the report must have both.
prompt='How do I <list> files?'
run() {
    ${watch:-} "$ONESHOT" --model $model --scheme W4A16 --quality gptq --dataset $model/data/calibration.jsonl \
        --num-calibration-samples 2 --max-seq-length 64 --output asked --progress none --threads 2 "$@" >said 2>err
}
answer() { "$ONESHOT" generate "$1" "$prompt" --chat --max-new-tokens 64; }
if run --sample "$prompt" --host-memory 1MiB; then fail "a budget of 1 MiB for answers is not refused"; fi
[ ! -e asked ] || fail "there is an output"
[ "$SANITIZED" ] || grep -q 'because source and output answer --sample after the run' err || fail "$(cat err)" # a sanitizer needs more memory
least=$(sed -n 's/.*want at least --host-memory \([0-9]*MiB\).*/\1/p' err)
[ -z "$SANITIZED" ] || least=500MiB # a sanitizer keeps memory that the run has freed
watch="$OSH_TOOLS/watch_memory watched" run --sample "$prompt" --host-memory "$least" || fail "$least: $(cat err)"
read -r peak _ <watched
[ "$SANITIZED" ] || [ "$peak" -le $((${least%MiB} << 20)) ] || fail "measured $peak, budget $least"
SOURCE=$(answer $model) OUTPUT=$(answer asked) PROMPT=$prompt python3 - <<'P' || fail "$(cat said)"
import html, json, os
want = {k: os.environ[k.upper()] for k in ("prompt", "source", "output")}
sample = json.load(open("asked/oneshot-report.json"))["sample"]
assert {k: v.rstrip("\n") for k, v in sample.items()} == want, (sample, want) # the shell drops newlines at the end
page = open("asked/oneshot-report.html").read()
assert page.count('<table id="sample">') == 1 and all(html.escape(want[k], quote=False) in page for k in ("prompt", "source", "output"))
lines = open("said").read().splitlines()
assert lines[1] == "sample     " + want["prompt"] and lines[2].split() == ["source", "output"], lines
assert all(len(line) <= 80 for line in lines[1:]) and len(lines) > 4
left = "".join("".join(line[:41] for line in lines[3:]).split()) # a long word may be cut
assert left == "".join(want["source"].split()), (left, want["source"])
P
cp said first
run --sample "$prompt" # the output is finished, so the run prints the answers of the report
cmp <(sed 1d said) <(sed 1d first)
run --sample "The option" # the answers to another prompt replace the answers in the report
python3 -c 'import json; s = json.load(open("asked/oneshot-report.json"))["sample"]; assert s["prompt"] == "The option", s'
[ "$(grep -o '<table id="sample">' asked/oneshot-report.html | wc -l)" = 1 ] || fail "the report does not have one table of answers"
"$ONESHOT" verify asked --model $model >/dev/null
"$ONESHOT" eval --model asked --reference $model --dataset "$OSH_SOURCE_DIR/examples/docs-llama-3m/data/evaluation.txt" \
    --max-windows 1 --max-seq-length 16 --sample "$prompt" --json --progress none >said
OUTPUT=$(answer asked) SOURCE=$(answer $model) python3 -c 'import json, os; s = json.load(open("said"))["sample"]; e = os.environ
assert s["model"].rstrip("\n") == e["OUTPUT"] and s["reference"].rstrip("\n") == e["SOURCE"], s'
mv asked/tokenizer.json kept
if "$ONESHOT" eval --model asked --dataset kept --sample x 2>err; then fail "reads a text without a tokenizer"; fi
grep -q -e '--sample: asked has no tokenizer.json' err || fail "$(cat err)"
rm plain/tokenizer.json
if "$ONESHOT" plain --scheme W4A16 --sample x --output none 2>err; then fail "answers without a tokenizer"; fi
grep -q -e '--sample: plain has no tokenizer.json' err && [ ! -e none ] || fail "$(cat err)"
