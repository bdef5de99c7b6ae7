# reproducible.sh - tests that the bytes do not depend on threads and batch size. Without error
# propagation, `--pipeline sequential` must give the same bytes as `--pipeline basic`, also with
# smaller or larger sequential targets.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
"$OSH_TOOLS/make_model" small hidden=256 intermediate=512 heads=4 kv=2 layers=2 vocab=512 samples=7 tokens=96 ragged=1
run() { # arguments: output, flags
    out=$1
    shift
    "$ONESHOT" --model small --scheme W4A16 --method gptq --ignore lm_head --dataset small/calibration.jsonl \
        --num-calibration-samples 7 --max-seq-length 96 --progress none --output "$out" "$@" >/dev/null
    sha256sum "$out/model.safetensors" | cut -d' ' -f1
}
base=$(run base --threads 1)
all=("--threads 3" "--batch-size 16 --threads 2" "--threads 2" "--threads 2 --batch-size 1" "--threads 4" "--batch-size 3")
[ -z "$SANITIZED" ] || all=("${all[@]:0:2}") # builds with sanitizers are slow
for flags in "${all[@]}"; do
    got=$(run "o${flags// /_}" $flags)
    [ "$got" = "$base" ] || { echo "$flags changes the bytes"; exit 1; }
done
# The default batch size is a multiple of the number of threads. The default is 1 if memory is
# scarce.
batch() { # arguments: flags; prints the batch size of the plan
    "$ONESHOT" plan --verbose --model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl" \
        --num-calibration-samples 7 --max-seq-length 96 --json "$@" | sed -n 's/^ *"batch_size": \([0-9]*\),*$/\1/p'
}
[ "$(batch --threads 1) $(batch --threads 2) $(batch --threads 3) $(batch --threads 8)" = "1 4 6 1" ] || { echo "batches"; exit 1; }
[ "$(batch --threads 2 --batch-size 5) $(batch --threads 2 --device-memory 2.5MiB)" = "5 1" ] || { echo "batches in a budget"; exit 1; }
# --sum-groups sets the number of groups in which samples are summed. The bytes depend on this
# number, but not on threads or batches.
[ "$(run groups.8 --sum-groups 8 --threads 2 --batch-size 7)" = "$base" ] || { echo "8 groups of 7 samples are not 7"; exit 1; }
sums=
all_groups=(1 2 3)
[ -z "$SANITIZED" ] || all_groups=(2)
for groups in "${all_groups[@]}"; do
    want=$(run groups.$groups --sum-groups $groups --threads 1 --batch-size 1)
    all=("--threads 3 --batch-size 5" "--threads 2" "--batch-size 16" "--mem-opt-level 2")
    for flags in "${all[@]}"; do
        got=$(run "g$groups${flags// /_}" --sum-groups $groups $flags)
        [ "$got" = "$want" ] || { echo "$groups groups: $flags changes the bytes"; exit 1; }
    done
    sums="$sums $(run basic.$groups --sum-groups $groups --pipeline basic --batch-size 5)"
    [ "${sums##* }" = "$(run cut.$groups --sum-groups $groups --propagate-error false)" ] ||
        { echo "$groups groups: basic and sequential without error propagation differ"; exit 1; }
    sums="$sums $want"
done
[ "$(printf '%s\n' $sums | sort -u | wc -l)" = $((2 * ${#all_groups[@]})) ] || { echo "groups change nothing: $sums"; exit 1; }
whole=$(run basic --pipeline basic)
cut=$(run cut --propagate-error false)
[ "$whole" = "$cut" ] || { echo "basic and sequential without error propagation differ"; exit 1; }
[ "$whole" != "$base" ] || { echo "error propagation changes nothing"; exit 1; }
fine=$(run fine --sequential-targets Linear --propagate-error false --batch-size 2)
[ "$fine" = "$cut" ] || { echo "Linear targets without error propagation differ from decoder layers"; exit 1; }
two=$(run two --sequential-targets Linear --sequential-targets-per-subgraph 3)
[ "$two" != "$fine" ] || { echo "Linear targets propagate nothing"; exit 1; }
"$ONESHOT" plan --verbose --model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 2 --sequential-targets Linear --json >plan.json
grep -q '"name": "model.layers.3.mlp.down_proj"' plan.json
