# chat.sh - tests data with conversations, and templates that combine columns of a row. The output
# must be the same as for a file with the rendered texts. Errors must name the fault.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
fail() { echo "$*"; exit 1; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
python3 - "$model/data/calibration.jsonl" <<'P'
import csv, json, sys
texts = [json.loads(line)["text"] for line in open(sys.argv[1])][:8]
talks = [[("user", t[:60]), ("assistant", t[60:200])] for t in texts]
write = lambda name, rows: open(name, "w").writelines(json.dumps(r) + "\n" for r in rows)
write("text.jsonl", ({"text": "".join(f"<|{r}|>\n{c}<|endoftext|>\n" for r, c in t)} for t in talks))
write("messages.jsonl", ({"id": 1, "messages": [{"role": r, "content": c} for r, c in t]} for t in talks))
write("turns.jsonl", ({"conversations": [{"from": "human" if r == "user" else "gpt", "value": c} for r, c in t]} for t in talks))
write("pairs.jsonl", ({"prompt": t[0][1], "response": t[1][1]} for t in talks))
write("asked.jsonl", ({"question": t[0][1], "answer": t[1][1]} for t in talks))
write("alpaca.jsonl", ({"id": 1, "instruction": t[0][1], "input": "", "output": t[1][1]} for t in talks))
write("plain.jsonl", ({"text": f"Q: {t[0][1]} A: {t[1][1]}"} for t in talks))
with open("pairs.csv", "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["prompt", "response"])
    w.writerows([t[0][1], t[1][1]] for t in talks)
P
job=(--model "$model" --scheme W4A16 --method gptq --max-seq-length 48 --progress none --sequential-targets Linear
     --overwrite --restart)
same() { # arguments: reference output, then data and flags
    "$ONESHOT" "${job[@]}" --output out --dataset "${@:2}" 2>err >/dev/null || fail "$* $(cat err)"
    [ -e "$1.want" ] || cp out/model.safetensors "$1.want"
    cmp out/model.safetensors "$1.want" || fail "$*: the output has other bytes"
}
same chat text.jsonl
same chat messages.jsonl --log-level info
grep -q 'messages.jsonl: conversations, rendered by the chat template' err || fail "$(cat err)"
same chat turns.jsonl
same chat pairs.jsonl
same chat asked.jsonl
same chat alpaca.jsonl
same columns plain.jsonl
same columns pairs.csv --text-template 'Q: {{ prompt }} A: {{ response }}'
if cmp -s chat.want columns.want; then fail "two data sets, one output"; fi
for data in text messages; do
    "$ONESHOT" eval --model "$model" --dataset $data.jsonl --max-seq-length 64 --progress none 2>/dev/null >$data.eval
done
cmp text.eval messages.eval

refused() { # arguments: part of the message, then flags
    if last_wins "$ONESHOT" "${job[@]}" --output no --dataset "${@:2}" 2>err >/dev/null; then fail "not refused: $*"; fi
    grep -qF -- "$1" err || fail "$* $(cat err)"
    [ ! -e no ] || fail "there is an output"
}
refused "text template line 1: 'propmt' is undefined; while reading pairs.jsonl line 1" pairs.jsonl --text-template '{{ propmt }}'
refused "text template line 1: the filter 'nosuch' is not supported" pairs.jsonl --text-template '{{ prompt|nosuch }}'
refused "the date is '2024-02-30', want one such as 2024-07-26" messages.jsonl --chat-date 2024-02-30
cp -r "$model" strange
printf '{%% for m in messages %%}\n{{ m.content | xmlattr }}{%% endfor %%}' >strange/chat_template.jinja
refused "chat template line 2: the filter 'xmlattr' is not supported; while reading the chat template of strange" \
    messages.jsonl --model strange
