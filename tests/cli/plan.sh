# plan.sh - tests that `oneshot plan` describes the run, and that plan and run report the same
# errors.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
fail() { echo "$*"; exit 1; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
job=(--model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 2 --max-seq-length 32)

# With `--pipeline basic`, the whole model is one subgraph, which is observed but not propagated.
"$ONESHOT" plan --verbose "${job[@]}" --pipeline basic >plan
[ "$(grep -c '^\[' plan)" = 1 ] || fail "the pipeline basic does not have one subgraph: $(cat plan)"
grep -Eq '^\[  1/1\] the whole model +[0-9]+ nodes, 28 quantized, weights 6.8[0-9] MB, Hessians 7.3[0-9] MB, passes: observe;' plan ||
    fail "basic: $(cat plan)"
"$ONESHOT" plan "${job[@]}" --pipeline basic --json >plan
[ "$(grep -c '"passes"' plan)" = 1 ] && grep -q '"name": *"the whole model"' plan || fail "the JSON of the pipeline basic does not have one subgraph"
"$ONESHOT" "${job[@]}" --pipeline basic --checkpoint 'end=the whole model' --output basic --progress line >/dev/null 2>err
grep -q '^\[1/2\] the whole model' err || fail "the run has other steps: $(cat err)"

# Similar subgraphs share a row, which says how many they are. The last line gives the needed
# memory.
rows() { last_wins "$ONESHOT" plan --verbose "${job[@]}" "$@" >plan; grep '^\[' plan >rows; }
rows
[ "$(wc -l <rows)" = 4 ] && grep -q '^\[  3/5\] model.layers.\*, 2 alike, each: .*live out: model.layers.\*.h$' rows || fail "sequential: $(cat rows)"
rows --sequential-targets Linear
[ "$(wc -l <rows)" -lt 12 ] && grep -q '^\[  7/18\] model.layers.\*.self_attn.o_proj, 3 alike' rows || fail "Linear: $(cat rows)"
n=0
while read -r row; do # the rows cover all subgraphs
    alike=$(sed -n 's/.*, \([0-9]*\) alike, each:.*/\1/p' <<<"$row")
    n=$((n + ${alike:-1}))
done <rows
[ $n = 18 ] || fail "$n of 18 subgraphs: $(cat rows)"
tail -n 1 plan | grep -qE '^needs: host memory [0-9.]+ MB, disk 3\.[0-9] MB; about [0-9ms]+ with [0-9]+ threads' || fail "needs: $(cat plan)"

# The run and the plan refuse the job with the same message. No file is left.
both() { # arguments: part of the message, flags
    local words=$1 code
    shift
    for command in "" plan; do
        code=0
        last_wins "$ONESHOT" $command "${job[@]}" --output out --progress none "$@" >/dev/null 2>err || code=$?
        [ $code = 2 ] && grep -qE -- "$words" err || fail "$command $*: exit $code, wanted /$words/: $(cat err)"
        [ -z "$(find . -name 'out*' -o -name 'aaa*')" ] || fail "$command $*: left something"
    done
}
both '--checkpoint nope=x: x matches no subgraph' --checkpoint nope=x
both '--checkpoint nope=model.layers.0: .* matches no subgraph' --pipeline basic --checkpoint nope=model.layers.0
both '--output is empty' --output ''
name=$(printf 'a%.0s' {1..239})
both 'a name of 239 bytes, want 238 at most' --output "$name"
"$ONESHOT" plan "${job[@]}" --output "${name:1}" >/dev/null
for again in 1 2; do # the second run replaces the output
    "$ONESHOT" --model "$model" --scheme W4A16 --ignore lm_head --output "${name:1}" --overwrite --progress none >/dev/null ||
        fail "a name of 238 bytes, time $again"
done
rm -r "${name:1}"

# For each subgraph, the plan has the steps that the run executes.
steps() { # arguments: subgraph
    sed -n "/\"name\": *\"$1\"/,/\"name\"/{/\"name\": *\"$1\"/!{/\"name\"/q};s/.*\"kind\": *\"\([a-z_]*\)\".*/\1/p}" plan | tr '\n' ' '
}
"$ONESHOT" plan "${job[@]}" --json >plan
[ "$(steps model.layers.0)" = 'open load pass solve load reload pass release ' ] || fail "steps of a layer: $(steps model.layers.0)"
[ "$(steps model.layers.3)" = 'open load pass solve release ' ] || fail "steps of the last layer: $(steps model.layers.3)"

# If the budget makes the run load weights group by group, it reads the weights of the layers twice,
# as the plan says.
"$ONESHOT" plan "${job[@]}" --json >plan
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan)
"$ONESHOT" plan "${job[@]}" --device-memory "$least" --json >plan
grep -q '"phases": "one group of modules at a time"' plan || fail "--device-memory $least needs no groups"
"$ONESHOT" "${job[@]}" --device-memory "$least" --progress none --output groups >/dev/null
python3 - "$(stat -L -c %s "$model/model.safetensors")" "$(stat -c %s groups/model.safetensors)" <<'P'
import json, sys
source, output = map(int, sys.argv[1:])
planned, io = json.load(open("plan"))["memory"]["read_bytes"], json.load(open("groups/oneshot-report.json"))["io"]
assert planned == io["planned_read_bytes"] > source, (planned, source)
assert 0 <= io["read_bytes"] - planned - output < output + 3000000, (io, planned, output)  # solved weights are read back
P

# The summary must have at most 12 lines of 80 columns, and must break lines only between words. It
# must count the rows that are left out, and name a --host-memory that is enough.
fits() { # arguments: those of plan; checks the rows with scales and memory, and the last line
    "$ONESHOT" plan "$@" >summary || fail "the plan fails: $*"
    awk 'length($0) > 80 || !/^[a-zA-Z ]/ { bad = 1 } END { exit bad || NR > 12 || NR < 8 }' summary &&
        grep -q '^quantized  ' summary && grep -q '^memory  .* the smallest --host-memory is [0-9.]*MB$' summary &&
        grep -Eq '^more       ([0-9]+ more rows: )?oneshot plan ... --verbose, or --json$' summary || fail "$*: $(cat summary)"
}
"$ONESHOT" --model "$model" --scheme FP8_BLOCK --progress none --output packed >/dev/null
cp "$model/data/calibration.jsonl" "$(printf 'long%.0s' {1..40}).jsonl"
mix=(--dataset "$model/data/calibration.jsonl" --dataset "$model/data/evaluation.txt:0.3" --max-seq-length 256)
mix+=(--num-calibration-samples 40)
for source in "$model" packed; do
    fits "$source" --scheme W4A16
    for scheme in W4A16 NVFP4; do
        fits "$source" --scheme $scheme --quality best "${mix[@]}" --tensor-parallel 2
        grep -q '^data sets  calibration.jsonl (70 %), evaluation.txt (30 %)$' summary || fail "no data sets: $(cat summary)"
        fits "$source" --scheme $scheme --quality best "${mix[@]}" --ranks 4 --ranks-per-node 2
        grep -q '^ranks      4, 2 on a node' summary && grep -q '^more       [1-9] more rows' summary || fail "no ranks: $(cat summary)"
        fits "$source" --scheme $scheme --quality gptq "${mix[@]}" --device-model rtx3060 --device-memory 200MB --tensor-parallel 2
        grep -q '^GPU .* of 12.9 GB; the smallest --device-memory is [0-9.]*MB$' summary || fail "the summary does not name the GPU: $(cat summary)"
    done
done
fits "$model" --scheme W4A16 --dataset long*.jsonl --dataset "$model/data/evaluation.txt" --num-calibration-samples 8 --quality gptq
fits "$model" --scheme W4A16 --quality gptq "${mix[@]}" --target-bits 4.5
grep -q '^before     a survey comes first: 28 modules' summary || fail "the summary does not name the survey: $(cat summary)"
fits "$model" --recipe "$OSH_SOURCE_DIR/examples/mixed-groups.yaml"
grep -q '^warning    25.0 % of the decoder blocks' summary || fail "no warning: $(cat summary)"
"$ONESHOT" plan "$model" --scheme W4A16 --quality gptq "${mix[@]}" --ranks 2 --tensor-parallel 2 --verbose >summary
grep -q '^ranks      2, 2 on a node' summary && grep -q '^parallel   28 modules' summary || fail "--verbose: $(tail summary)"
rm -r packed long*.jsonl
fits "${job[@]}"
grep -q '^model      LlamaForCausalLM, ' summary && grep -q '^data       ' summary && grep -q '^time       about ' summary ||
    fail "$(cat summary)"
# Without a budget, the plan names a --host-memory that is enough. This also holds for a job with
# the flags in `small`.
small=(--quality best --num-calibration-samples 2 --max-seq-length 32)
for flags in "" "${small[*]}"; do
    last_wins "$ONESHOT" plan "${job[@]}" $flags >summary
    least=$(sed -n 's/^memory .*smallest --host-memory is \([0-9.]*MB\)$/\1/p' summary)
    last_wins "$ONESHOT" plan "${job[@]}" $flags --host-memory "$least" >/dev/null || fail "$least is not enough: $(cat summary)"
done
"$ONESHOT" plan --model "$model" --scheme W4A16 | grep -q '^data       none' || fail "the plan of a recipe without data does not say so"

# All experts of a layer read the same input, so its Hessian counts once. If the plan gets only 63 %
# of the device memory that it uses without a limit, a few rounds are enough. Each round collects
# some of the Hessians.
"$OSH_TOOLS/make_model" mixture hidden=64 intermediate=64 heads=2 kv=2 layers=1 vocab=64 samples=4 tokens=16 experts=16 topk=2 head_dim=32
mixture=(--model mixture --scheme W4A16 --group-size 32 --method gptq --ignore lm_head --dataset mixture/calibration.jsonl
         --threads 1 --batch-size 1 --mem-opt-level 2)
"$ONESHOT" plan "${mixture[@]}" --json >plan.json
device=$(sed -n 's/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1)
"$ONESHOT" plan "${mixture[@]}" --device-memory $((device * 63 / 100)) --json >plan.json
grep -q '"phases": "statistics in several rounds"' plan.json || fail "no subgraph collects statistics in rounds: $(grep '"phases"' plan.json)"
