# tune.sh - tests the key `tune` of GPTQModifier. The output bytes do not depend on threads, batch,
# tier, budget or a kill. The predicted memory is not exceeded. Tuned values are written only if
# they are better on the held-back samples. verify accepts changed norms. Modules that cannot be
# tuned are refused. With `--quality best` they are not tuned, and a message says so.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
recipe() { # arguments: name, scheme, keys of tune
    printf 's_stage:\n  s_modifiers:\n    GPTQModifier: {scheme: %s, ignore: [lm_head], scale_search: ldl,
        refine: [rescale, descend, fit_scales], tune: %s}\n' "$2" "$3" >"$1.yaml"
}
recipe good W2A16 '{steps: 8, rows: 2, code_rate: 0.02, rate: 0.004}'
recipe wild W2A16 '{steps: 3, rows: 1, code_rate: 0.5, rate: 0.2}'
recipe none W2A16 0
job() { # arguments: recipe, output, flags
    "$ONESHOT" --model "$model" --dataset "$model/data/calibration.jsonl" --recipe "$1.yaml" --num-calibration-samples 24 \
        --max-seq-length 96 --progress none --output "$2" "${@:3}"
}
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
same() { # arguments: output, label
    sums "$1" | diff -u want - >diff.txt || { cat diff.txt; fail "$2: the output has other bytes"; }
    rm -rf "$1"
}
field() { sed -n "/\"tuned\"/,/}/s/^ *\"$2\": \([^,]*\),*$/\1/p" "$1/oneshot-report.json"; }

INJECT_CALLS=pwrite INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so job good base --threads 1 >/dev/null
sums base >want
"$ONESHOT" verify base --model "$model" >verify.txt || { cat verify.txt; fail "verify fails"; }
grep -q '"rule": "changed"' base/oneshot-manifest.json || fail "no norm is called changed"
[ "$(field base kept)" = true ] || fail "learned scales are not kept"
awk -v a="$(field base kl_divergence)" -v b="$(field base kl_divergence_before)" 'BEGIN { exit !(a < b && a > 0) }' ||
    fail "$(grep -A8 '"tuned"' base/oneshot-report.json)"
job none none --threads 1 >/dev/null
job wild wild --threads 1 >/dev/null
[ "$(field wild kept)" = false ] || fail "kept: $(grep -A8 '"tuned"' wild/oneshot-report.json)"
cmp none/model.safetensors wild/model.safetensors || fail "a rejected result changed the output"
! cmp -s none/model.safetensors base/model.safetensors || fail "learned scales are not in the output"
"$ONESHOT" verify wild --model "$model" >verify.txt || { cat verify.txt; fail "verify of a rejected result"; }
rm -rf none wild

# Runs are killed while the tuned tensors are written, before their file is renamed, while the tuned
# tensors replace the old tensors, and after that.
kills=("pwrite $(($(cat calls) - 150))" "rename 2")
[ -z "$SANITIZED" ] || kills=()
for kill in "${kills[@]}" "pwrite $(($(cat calls) - 60))"; do
    if INJECT_CALLS=${kill% *} INJECT_AT=${kill#* } INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
        job good out --threads 1 >log 2>&1; then fail "the run was not killed at $kill"; fi
    ls out.oneshot-partial >left
    # the last kill happens while the tuned tensors replace the old tensors
    if [ "$kill" = "pwrite $(($(cat calls) - 60))" ]; then
        tuned=out.oneshot-partial/oneshot-tuned
        cp $tuned keep
        printf x | dd of=$tuned bs=1 seek=1000 conv=notrunc status=none
        code=0
        job good out >log 2>&1 || code=$?
        [ $code = 1 ] && grep -q 'oneshot-tuned differs from the written bytes: want --restart' log || { cat log; fail "a tensor file of other bytes is not refused"; }
        cp keep $tuned
    fi
    job good out --threads 2 >log 2>&1 || { cat log; fail "killed at $kill: the run does not continue"; }
    same out "killed at $kill, with $(tr '\n' ' ' <left)"
done

plan() { "$ONESHOT" plan --verbose --model "$model" --dataset "$model/data/calibration.jsonl" --recipe "$1.yaml" \
    --num-calibration-samples 24 --max-seq-length 96 "${@:2}"; }
plan good --threads 2 >plan.txt
grep -q 'then codes, scales and norms are tuned: 8 steps of 2 samples, 3 held back' plan.txt || { cat plan.txt; fail "plan"; }
plan none >plan.txt
! grep -q tuned plan.txt || { cat plan.txt; fail "the plan lists tuning with tune: 0"; }

# A run works with the smallest host memory of the plan; one MiB less is refused.
if [ -z "$SANITIZED" ]; then
    plan good --threads 3 --host-memory 30MiB >msg 2>&1 && fail "a budget of 30 MiB is not refused"
    least=$(sed -n 's/.*--host-memory \([0-9]*\)MiB\(;.*\)*$/\1/p' msg | tail -1)
    [ "$least" ] || fail "the message names no smallest budget: $(cat msg)"
    grep -q 'tuning needs this memory (tune: 0 disables it)' msg || fail "the message does not name tuning: $(cat msg)"
    job good out --threads 3 --batch-size 4 --host-memory "${least}MiB" >log 2>&1 || { cat log; fail "--host-memory ${least}MiB"; }
    same out "threads, batch and the smallest host memory"
    "$OSH_TOOLS/make_model" wide hidden=640 intermediate=2048 heads=5 kv=5 layers=1 vocab=512 samples=4 tokens=16
    recipe wide W4A16 '{steps: 1, rows: 1}'
    wide=(--model wide --dataset wide/calibration.jsonl --recipe wide.yaml --threads 2)
    predicted=$("$ONESHOT" plan "${wide[@]}" --json | sed -n '/"memory"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' | head -1)
    "$OSH_TOOLS/watch_memory" watched "$ONESHOT" "${wide[@]}" --progress none --output out >/dev/null
    read -r peak _ <watched
    echo "predicted $predicted, measured $peak"
    [ "$peak" -le "$predicted" ] && [ $((predicted * 100)) -le $((peak * 115)) ] || fail "predicted $predicted, measured $peak"
    rm -rf out
fi

# `--quality best` does not tune if tuning takes more than 2e13 operations.
"$OSH_TOOLS/make_model" large hidden=1024 intermediate=1024 heads=8 kv=8 layers=1 vocab=64 samples=128 tokens=768
large() { "$ONESHOT" plan --verbose --model large --dataset large/calibration.jsonl --scheme W4A16 --quality best "$@" >plan.txt; }
large
grep -q 'are not tuned: quality best limits it to 2e13 operations' plan.txt || { cat plan.txt; fail "the plan does not say why it leaves out tuning"; }
large --max-seq-length 512
grep -q 'then codes, scales and norms are tuned: 192 steps of 4 samples, 16 held back' plan.txt || { cat plan.txt; fail "best"; }
rm -rf large

refused() { # arguments: recipe text after GPTQModifier, part of the message, flags
    printf 's_stage:\n  s_modifiers:\n    GPTQModifier: {ignore: [lm_head], %s}\n' "$1" >bad.yaml
    code=0
    plan bad "${@:3}" >msg 2>&1 || code=$?
    [ $code -gt 0 ] && grep -qF -- "$2" msg || { cat msg; fail "not refused: $1"; }
}
refused 'scheme: W8A8, tune: 4' 'it does not support quantized activations'
refused 'scheme: FP8_DYNAMIC, tune: 4' 'it does not support quantized activations'
refused 'scheme: W4A16, tune: fast' "tune 'fast': want a number of steps, or a map"
refused 'scheme: W4A16, tune: {step: 4}' "tune does not support this value or key 'step'"
refused 'scheme: W4A16, tune: {steps: 4, rate: 3}' 'rate'
