# descriptors.sh - runs jobs with closed standard descriptors. No file of the output may get the
# number of a standard descriptor, because messages would be written into that file.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
one() {
    "$ONESHOT" --model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl" \
        --num-calibration-samples 2 --max-seq-length 32 --max-shard-size 2MB --progress line --log-level info --threads 2 \
        --output "$@"
}
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
one plain >plain.said 2>plain.told
[ -s plain.said ] && [ -s plain.told ] || { echo "no message: the test cannot fail"; exit 1; }
sums plain >want
check() { # arguments: closed descriptors, exit code
    [ "$2" = 0 ] || { echo "with $1 closed: exit $2"; exit 1; }
    sums out >got
    diff -u want got || { echo "with $1 closed: other files"; exit 1; }
    "$ONESHOT" verify out --model "$model" >log || { echo "with $1 closed:"; cat log; exit 1; }
    rm -r out
}
code=0; one out 0<&- >/dev/null 2>&1 || code=$?; check "0" $code
code=0; one out 1>&- 2>/dev/null || code=$?; check "1" $code
code=0; one out 2>&- >/dev/null || code=$?; check "2" $code
code=0; one out 0<&- 1>&- 2>/dev/null || code=$?; check "0, 1" $code
code=0; one out 0<&- 2>&- >/dev/null || code=$?; check "0, 2" $code
code=0; one out 1>&- 2>&- || code=$?; check "1, 2" $code
code=0; one out 0<&- 1>&- 2>&- || code=$?; check "0, 1, 2" $code
