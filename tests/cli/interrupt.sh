# interrupt.sh - sends SIGTERM in each phase of a run and to each command. The program must print a
# message, begin no later phase, and exit with 1. After the signal it must use less than a second of
# processor time. The same command must then continue and give the same bytes. The signal is sent at
# a record of the profile or at a read, so that it arrives in the intended phase. The program must
# not wait for a call that never returns.
set -euo pipefail
fail() { echo "$*"; exit 1; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
most=1 # seconds of processor time that a command may need to stop, with one thread
if [ "$SANITIZED" ]; then most=5; fi
may_be=  # "done" if the command may finish before the signal stops it, else empty
stopped() { # arguments: label, words of the command, which must stop after the signal
    local code=0
    rm -f after
    INJECT_AFTER=after LD_PRELOAD=$OSH_TOOLS/inject.so timeout -s KILL 300 "$ONESHOT" "${@:2}" >said 2>log || code=$?
    [ -e after ] || fail "$1: it was not asked to stop (exit $code): $(tail -c 500 log)"
    [ $code = 0 ] && [ "$may_be" ] || { [ $code = 1 ] && grep -qE '^(oneshot: |.*"exit":1,"text":")interrupted' log; } || fail "$1: exit $code: $(tail -c 500 log)"
    awk -v s="$(cat after)" -v most=$most 'BEGIN { exit !(s < most) }' || fail "$1: the run ends $(cat after) s after the signal"
}
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"

# Interrupts a compression run.
calibrated=(--scheme W4A16 --method gptq --mem-opt-level 2 --dataset "$model/data/calibration.jsonl"
            --num-calibration-samples 3 --max-seq-length 32)
declare -A steps=(
    [calibrated]="plan|load model.embed_tokens|propagate model.embed_tokens|load model.layers.1|observe model.layers.1|
                  solve model.layers.1|propagate model.layers.1|copy|seal"
    [rounded]="plan|round|copy|seal")
for kind in calibrated rounded; do
    job=(--model "$model" --ignore lm_head --progress none --threads 1 --output out --profile profile.yaml)
    if [ $kind = calibrated ]; then job+=("${calibrated[@]}"); else job+=(--scheme W8A16); fi
    rm -rf out
    "$ONESHOT" "${job[@]}" >/dev/null
    sums out >want
    grep -o '^- step: ".* Start"$' profile.yaml >all || true
    IFS='|' read -r -d '' -a list <<<"${steps[$kind]//$'\n'/}" || true
    for step in "${list[@]}"; do
        step=$(echo $step)
        grep -q "\"$step Start\"" all || fail "no phase '$step': $(cat all)"
        rm -rf out
        INJECT_STEP="\"$step Start\"" INJECT_WHAT=TERM stopped "$step" "${job[@]}"
        after=$(sed -n "/\"$step Start\"/,\$p" profile.yaml | grep ' Start"$' | grep -v 'read ahead' | tail -n +2)
        [ -z "$after" ] || fail "begun after the signal in '$step': $after"
        [ ! -e out ] || fail "$step: there is an output"
        [ ! -e out.oneshot-partial ] || grep -q '^hint: the same command continues from out.oneshot-partial$' log ||
            fail "$step: no hint: $(cat log)"
        "$ONESHOT" "${job[@]}" >log 2>&1 || fail "$step: the same command does not continue: $(cat log)"
        sums out | cmp - want || fail "$step: the output has other bytes"
    done
done

# Tests a write to the output that never returns.
rm -rf out
INJECT_CALLS=pwrite INJECT_AT=10 INJECT_WHAT=hang stopped "a call that hangs" "${job[@]}"
grep -q 'interrupted before the work was complete' log && grep -q '^hint: the same command continues' log || fail "$(cat log)"
INJECT_CALLS=pwrite INJECT_AT=10 INJECT_WHAT=hang stopped "a call that hangs" "${job[@]/%none/json}"
tail -n 1 log | grep -q '"resume":"out.oneshot-partial"}$' || fail "$(cat log)"
"$ONESHOT" "${job[@]}" >log 2>&1 && sums out | cmp - want || fail "after a call that hangs: $(cat log)"

# Interrupts other commands at their first read and at a later read.
reads() { # arguments: words of the command; prints the number of its reads
    INJECT_CALLS=reads INJECT_COUNT=count LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "$@" >/dev/null && cat count
}
"$ONESHOT" --model "$model" --ignore lm_head --scheme W8A16 --max-shard-size 1MB --output sharded --progress none >/dev/null
while read -r -a command; do
    n=$(reads "${command[@]}")
    for at in 1 $((n / 2)) "$n"; do
        [ "$at" != "$n" ] || may_be=done
        INJECT_CALLS=reads INJECT_AT=$at INJECT_WHAT=TERM stopped "read $at of $n: ${command[*]}" "${command[@]}"
        may_be=
    done
done <<COMMANDS
plan --model $model --ignore lm_head --scheme W8A16
graph --model sharded --dot
inspect sharded
verify sharded --model $model --threads 1
eval --model $model --dataset $model/data/evaluation.txt --max-seq-length 64 --progress none --threads 1
tokenize --model $model $model/data/evaluation.txt
COMMANDS

# Interrupts the reading of long texts that have only newlines, one line, or one word.
bytes=30000000
[ -z "$SANITIZED" ] || bytes=4000000
lines() { head -c $bytes < <(yes 'all of it is one line ') | tr -d '\n'; }
head -c $bytes /dev/zero | tr '\0' '\n' >newlines.jsonl
{ printf '{"text": "'; lines; printf '"}\n'; } >line.jsonl
lines >line.txt
head -c $bytes /dev/zero | tr '\0' x >word.txt
chunks=$((bytes >> 18)) # each chunk is one read
for text in newlines.jsonl line.jsonl; do
    INJECT_CALLS=reads INJECT_AT=$((chunks / 2)) INJECT_WHAT=TERM stopped $text --model "$model" --scheme W4A16 \
        --method gptq --ignore lm_head --num-calibration-samples 2 --max-seq-length 32 --dataset $text --threads 1 \
        --progress none --output out2
done
for text in line.txt word.txt; do
    INJECT_CALLS=reads INJECT_AT=$((chunks / 2)) INJECT_WHAT=TERM stopped $text eval --model "$model" --dataset $text \
        --max-seq-length 32 --progress none --threads 1
    INJECT_CALLS=reads INJECT_AT=6 INJECT_WHAT=TERM stopped $text tokenize --model "$model" $text
done
