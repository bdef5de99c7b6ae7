# What SpinQuantModifier's R4 and QuIPModifier leave to be rotated while the model runs: calibration, eval and verify do
# that; the same bytes for any threads, batch, cut and kill; without transform_config the model says noise.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
recipe() { # file, modifier, what comes behind it
    printf 's_stage:\n  s_modifiers:\n    %s\n    %s\n' "$2" "$3" >"$1.yaml"
}
recipe alone "SpinQuantModifier: {rotations: [R1, R2, R4]}" ""
recipe gptq "QuIPModifier: {rotations: [v, u]}" "GPTQModifier: {scheme: W4A16, ignore: [lm_head]}"
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64)
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
head -c 12000 "$model/data/evaluation.txt" >evaluation.txt
ppl() { "$ONESHOT" eval --model "$1" --dataset evaluation.txt --progress none --max-seq-length 128 | sed -n 's/^perplexity //p'; }
close() { awk "BEGIN {exit !(($1 - $2)^2 < $3)}"; }
dense=$(ppl "$model")

for r in alone gptq; do
    one $r plain --threads 1 >log 2>&1
    grep -q 'rotated while the model runs. vLLM does that on one NVIDIA card' log || fail "$r: no warning: $(cat log)"
    "$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify"; }
    sums plain >want.$r
    rm -rf out.$r && mv plain out.$r
    grep -q '"transform_config": {$' out.$r/config.json || fail "$r: no transform_config"
    one $r out --threads 3 --batch-size 4 --mem-opt-level 2 >/dev/null 2>&1
    same out want.$r "$r, threads and tier"
done
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one gptq out --threads 1 >log 2>&1
same out want.gptq "counted"
if INJECT_AT=$(($(cat calls) * 6 / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one gptq out --threads 1 >log 2>&1
then fail "not killed"; fi
one gptq out --threads 2 >log 2>&1 || { cat log; fail "does not go on"; }
same out want.gptq "killed"
echo "same bytes"

p=$(ppl out.alone)
close "$dense" "$p" 0.25 || fail "perplexity $dense became $p"
p=$(ppl out.gptq)
close "$dense" "$p" 9 || fail "perplexity $dense became $p with 4 bits"
mkdir noise && cp out.alone/{model.safetensors,tokenizer*} noise/ && cp "$model/config.json" noise/
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' noise/config.json
p=$(ppl noise)
awk "BEGIN {exit !($p > 1000)}" || fail "perplexity $p without what acts"
echo "rotated while it runs"

if one gptq again --model out.alone >log 2>&1; then fail "compressed again"; fi
grep -q 'R4 acts while the model runs: such a model is not compressed again' log || { cat log; fail "no reason"; }
if "$ONESHOT" --model "$model" --recipe gptq.yaml "${data[@]}" --device cuda --output cuda >log 2>&1; then fail "on a card"; fi
"$ONESHOT" plan --model "$model" --recipe gptq.yaml "${data[@]}" 2>/dev/null >plan.txt
grep -q 'v in blocks of 512 at input while the model runs' plan.txt || { cat plan.txt; fail "the plan does not say it"; }
grep -q 'vLLM on one NVIDIA card, which alone' plan.txt || { cat plan.txt; fail "the plan does not say who loads it"; }
echo "refused, and said"
