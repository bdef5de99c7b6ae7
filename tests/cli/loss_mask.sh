# loss_mask.sh - tests `--loss-mask answers`. With this option, statistics count only the tokens of
# answers. Generation blocks in the template mark the answers of a conversation. Without such
# blocks, the program finds the answers by rendering the messages before each answer. If the input
# of a Linear depends only on one token, text that does not count must not change the codes of the
# Linear. All methods must use the mask. The output bytes must not depend on threads, batch and
# budget. A run must not continue with another mask.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
fail() { echo "$*"; [ ! -e err ] || cat err; exit 1; }
for name in marked plain think deep late loud; do cp -r "$OSH_SOURCE_DIR/examples/docs-llama-3m" $name; done
python3 - plain/data/calibration.jsonl <<'P'
import json, sys
head = "{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}"
body, tail = "{{ m.content + eos_token + '\\n' }}", "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
put = lambda name, text: open(name + "/chat_template.jinja", "w").write(text)
put("plain", head + body + tail)
put("marked", head + "{% if m.role == 'assistant' %}{% generation %}" + body + "{% endgeneration %}{% else %}" + body + "{% endif %}" + tail)
# Only the last answer keeps its reasoning, as in Qwen3's template. The prompt for an answer ends
# with the first token of the reasoning, as in DeepSeek R1's template.
think = head + "{% if m.role == 'assistant' and loop.last %}{{ '<think>\\n' }}{% endif %}" + body
put("think", think + tail)
put("deep", think + tail.replace("assistant|>\\n", "assistant|>\\n<think>\\n"))
# This template adds a text before the last question only, as Mistral's template does.
put("late", head.replace("{{ '<|' +", "{% if loop.revindex == 2 %}{{ 'Late: ' }}{% endif %}{{ '<|' +") + body + tail)
put("loud", "{{ messages|length }}" + head + body.replace("m.content", "m.content|upper") + tail)
texts = [json.loads(line)["text"] for line in open(sys.argv[1])]
def talk(i, users):
    t, u = texts[i], texts[users + i]
    return {"messages": [{"role": "user", "content": u[:40]}, {"role": "assistant", "content": t[60:140]},
                         {"role": "user", "content": u[100:130]}, {"role": "assistant", "content": t[200:260]}]}
write = lambda name, rows: open(name, "w").writelines(json.dumps(r) + "\n" for r in rows)
write("a.jsonl", (talk(i, 100) for i in range(8)))
write("b.jsonl", (talk(i, 140) for i in range(8)))
write("bare.jsonl", ({"messages": talk(i, 100)["messages"][:1]} for i in range(2)))
write("text.jsonl", ({"text": t} for t in texts[:2]))
P
tokens() { # arguments: model, flags; prints the number of tokens that count
    "$ONESHOT" plan --model "$@" --scheme W4A16 --method gptq --loss-mask answers --json 2>err | sed -n 's/^ *"answer_tokens": \([0-9]*\),*$/\1/p'
}
n=$(tokens marked --dataset a.jsonl)
[ "$n" -gt 100 ] && [ "$n" = "$(tokens plain --dataset a.jsonl)" ] || fail "$n tokens of answers, or other ones without marks"
echo '<think>' >line
t=$("$ONESHOT" tokenize --model think line 2>/dev/null | wc -w)
more=$(($(tokens think --dataset a.jsonl) - n))
[ $more = $((8 * t)) ] || fail "$more tokens more in 8 rows, with reasoning of $t tokens" # ">\n" is one token
[ "$(tokens deep --dataset a.jsonl)" = "$n" ] || fail "$(tokens deep --dataset a.jsonl) tokens where the prompt has the reasoning"
[ "$(tokens late --dataset a.jsonl)" = "$n" ] || fail "$(tokens late --dataset a.jsonl) tokens with a text before the last question"
[ "$(tokens plain --dataset a.jsonl --max-seq-length 40)" -lt "$n" ] || fail "cut samples have as many tokens of answers as whole samples"
"$ONESHOT" plan marked --scheme W4A16 --method gptq --loss-mask answers --dataset a.jsonl | grep -q "count the $n tokens of answers" || fail "the plan does not count the tokens of answers"
first() { # arguments: model, data, mask; makes the output `out`
    "$ONESHOT" --model $1 --scheme W4A16 --method gptq --only 're:.*layers.0.self_attn.[qkv]_proj' --dataset $2.jsonl \
        --loss-mask $3 --output out --overwrite --restart --progress none >/dev/null 2>err || fail "$*"
    sha256sum <out/model.safetensors
}
want=$(first marked a answers)
[ "$want" = "$(first plain b answers)" ] || fail "questions change the codes"
[ "$(first plain a none)" != "$(first plain b none)" ] && [ "$want" != "$(first plain a none)" ] || fail "the mask changes nothing"
grep -q "Loss mask" out/README.md && fail "README.md names a loss mask that was not given"
refused() { # arguments: part of the message, data, flags
    if last_wins "$ONESHOT" --model plain --scheme W4A16 --method gptq --loss-mask answers --output no --progress none --dataset "${@:2}" \
        >/dev/null 2>err; then fail "not refused: $*"; fi
    grep -qF -- "$1" err || fail "$*"
    [ ! -e no ] || fail "there is an output"
}
refused "message 2: its text is not found in the rendered conversation" a.jsonl --model loud
refused "bare.jsonl: none of the" bare.jsonl
refused "the row is a text, want a conversation, or input_ids and loss_mask; while reading text.jsonl line 1" text.jsonl
refused "--loss-mask answers, but the recipe needs no calibration data" a.jsonl --method rtn
if "$ONESHOT" plan plain --scheme W4A16 --loss-mask answers 2>err; then fail "a loss mask without data is not refused"; fi
grep -q "the recipe needs no calibration data" err || fail "a loss mask without data is not refused"

# The number of tokens that count must not depend on later messages. The test cuts a long
# conversation before each question, and compares the numbers of tokens at the cuts.
python3 - <<'P'
import json
rows = [json.loads(line)["messages"] for line in open("a.jsonl")]
talk = [m for r in rows for m in r]
write = lambda name, talks: open(name, "w").writelines(json.dumps({"messages": t}) + "\n" for t in talks)
write("long.jsonl", [talk])
write("short.jsonl", [talk[i:i + 2] for i in range(0, len(talk), 2)])
P
n=$(tokens plain --dataset long.jsonl)
[ "$n" -gt 100 ] && [ "$n" = "$(tokens plain --dataset short.jsonl)" ] && [ "$n" = "$(tokens marked --dataset long.jsonl)" ] ||
    fail "$n tokens in one conversation, $(tokens plain --dataset short.jsonl) in its turns"

# Tests rows with input_ids, and every method.
"$OSH_TOOLS/make_model" model hidden=128 intermediate=128 heads=2 kv=1 layers=2 vocab=128 samples=6 tokens=24 seed=1
python3 - <<'P'
import json
rows = [json.loads(line) for line in open("model/calibration.jsonl")]
write = lambda name, mask: open(name, "w").writelines(json.dumps(r | mask(i, r)) + "\n" for i, r in enumerate(rows))
write("ones.jsonl", lambda i, r: {"loss_mask": [1] * len(r["input_ids"])})
write("some.jsonl", lambda i, r: {"loss_mask": [int(k % 3 == i % 3 and i != 2) for k in range(len(r["input_ids"]))]})
write("late.jsonl", lambda i, r: {"loss_mask": [int(i < 5)] * len(r["input_ids"])})
write("short.jsonl", lambda i, r: {"loss_mask": [1]})
write("two.jsonl", lambda i, r: {"loss_mask": [2] * len(r["input_ids"])})
write("none.jsonl", lambda i, r: {})
P
I='ignore: ["re:.*lm_head"]'
recipe() { # arguments: name, modifiers
    printf 's_stage:\n  s_modifiers:\n' >$1.yaml
    printf '    %s\n' "${@:2}" >>$1.yaml
}
recipe gptq "GPTQModifier: {scheme: W4A16, targets: Linear, $I}"
recipe best "GPTQModifier: {scheme: W4A16, targets: Linear, quality: best, tune: 4, $I}"
recipe awq "AWQModifier: {n_grid: 4}" "QuantizationModifier: {scheme: W4A16_ASYM, targets: Linear, $I}"
recipe static "SmoothQuantModifier: {smoothing_strength: 0.5}" "GPTQModifier: {scheme: FP8, targets: Linear, $I}"
recipe block "AutoRoundModifier: {scheme: W4A16, targets: Linear, iters: 3, $I}"
run() { # arguments: recipe, data, output, flags
    "$ONESHOT" --model model --recipe $1.yaml --dataset $2 --output $3 --overwrite --progress none "${@:4}" >/dev/null 2>err ||
        fail "$*"
}
for r in gptq best awq static block; do
    run $r model/calibration.jsonl all
    run $r ones.jsonl ones --loss-mask answers
    cmp all/model.safetensors ones/model.safetensors || fail "$r: a mask of all tokens makes other bytes"
    run $r some.jsonl some --loss-mask answers
    ! cmp -s all/model.safetensors some/model.safetensors || fail "$r: the mask changes nothing"
done
least=$("$ONESHOT" plan --model model --recipe gptq.yaml --dataset some.jsonl --loss-mask answers --json |
    sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p')
run gptq some.jsonl some --loss-mask answers --restart
for flags in "--threads 1 --batch-size 4" "--host-memory $((least + (1 << 20)))"; do
    run gptq some.jsonl again --loss-mask answers $flags
    cmp some/model.safetensors again/model.safetensors || fail "$flags: the output has other bytes"
done
grep -q '| Loss mask | statistics count the 40 tokens of answers |' some/README.md || fail "$(cat some/README.md)"
bad() { # arguments: part of the message, data, recipe
    if "$ONESHOT" --model model --recipe ${3:-gptq}.yaml --dataset $2 --output no --loss-mask answers --progress none >/dev/null 2>err; then fail "not refused: $2"; fi
    grep -qF -- "$1" err || fail "$2"
}
bad "'loss_mask' is not a list of 24 numbers, as long as 'input_ids'; while reading short.jsonl line 1" short.jsonl
bad "'loss_mask': item 1 is not 0 or 1" two.jsonl
bad "no column 'loss_mask', found" none.jsonl
bad "the held-back samples have no prediction that counts; while planning to tune" late.jsonl best

# A run does not continue with another mask.
code=0
"$ONESHOT" --model model --recipe gptq.yaml --dataset ones.jsonl --output again --loss-mask answers --progress none >/dev/null 2>err || code=$?
[ $code = 2 ] && grep -qF "of this run loss_mask is 'answers, 144 tokens" err || fail "exit $code"
