# eval_memory.sh - runs eval with --host-memory. Tests that a budget that is too small is refused
# with a message. The message must name the smallest budget that is enough, and a number of windows
# that needs less memory. With the named budget, eval must give the same numbers as without a
# budget. Runs with a dense model, a quantized model, and both models in one comparison.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
"$ONESHOT" --model "$model" --scheme W4A16 --method rtn --ignore lm_head --output quantized --progress none >/dev/null
head -c 20000 "$OSH_SOURCE_DIR/docs/explanation/numerics.md" >text.txt
check() { # arguments: flags
    local job=(eval --dataset text.txt --max-seq-length 128 --threads 2 --progress none "$@")
    if "$ONESHOT" "${job[@]}" --host-memory 4MiB 2>err; then fail "4 MiB are enough: $*"; fi
    least=$(sed -n 's/.*want at least --host-memory \([0-9]*\)MiB.*/\1/p' err)
    [ -n "$least" ] || fail "no smallest budget: $(cat err)"
    want=$("$ONESHOT" "${job[@]}")
    "$OSH_TOOLS/watch_memory" watched "$ONESHOT" "${job[@]}" --host-memory "${least}MiB" >got || fail "$least MiB: $*"
    [ "$(cat got)" = "$want" ] || fail "another result under a budget: $*"
    read -r peak _ <watched
    echo "at most $least MiB, measured $((peak >> 20)): $*"
    [ "$SANITIZED" ] || [ $peak -le $((least << 20)) ] || fail "measured $peak, budget $least MiB: $*"
    if "$ONESHOT" "${job[@]}" --host-memory $((least - 3))MiB 2>err; then fail "3 MiB less are enough: $*"; fi
    windows=$(sed -n 's/.*: --max-windows \([0-9]*\)$/\1/p' err)
    [ -n "$windows" ] || fail "no number of windows: $(cat err)"
    "$ONESHOT" "${job[@]}" --host-memory $((least - 2))MiB --max-windows "$windows" >/dev/null || fail "$windows windows: $*"
}
[ "$SANITIZED" ] || check --model "$model" # with sanitizers, only the last check of this file runs
[ "$SANITIZED" ] || check --model quantized --batch-size 8
# With --sample, the budget that the message names must be enough for the scores and for the
# answers.
sampled=(eval --model quantized --reference "$model" --dataset text.txt --max-seq-length 256 --max-windows 2 --threads 2
         --sample Hi --progress none)
if "$ONESHOT" "${sampled[@]}" --host-memory 1MiB 2>err; then fail "1 MiB is enough for answers"; fi
least=$(sed -n 's/.*answers --sample: want at least --host-memory \([0-9]*\)MiB.*/\1/p' err)
[ -n "$least" ] || fail "no smallest budget: $(cat err)"
# AddressSanitizer keeps memory that was freed after the scores, so the answers would need a larger
# budget.
[ -n "$SANITIZED" ] || "$ONESHOT" "${sampled[@]}" --host-memory "${least}MiB" >got || fail "$least MiB: not enough for scores and answers"
# Doubles the text, so that the outputs of the model and of the reference take most of the memory.
cp text.txt half.txt && cat half.txt >>text.txt
check --model quantized --reference "$model"
