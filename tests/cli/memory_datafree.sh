# memory_datafree.sh - tests that runs without calibration data keep the smallest budgets of the
# plan, to the byte. Each run is repeated, because the peak depends on the order in which threads
# finish.
set -euo pipefail
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
[ -z "$SANITIZED" ] || { echo "a sanitizer's memory is not the program's"; exit 77; }
"$OSH_TOOLS/make_model" model hidden=128 intermediate=128 heads=4 kv=2 layers=2 vocab=500 samples=2 tokens=8 experts=8 topk=2
cat >pruned.yaml <<'Y'
s_modifiers:
  MagnitudePruningModifier: {init_sparsity: 0.0, final_sparsity: 0.5, targets: ['re:.*layers.*']}
  QuantizationModifier: {scheme: NVFP4A16, targets: Linear, ignore: ["re:.*lm_head"]}
Y
exact() { # arguments: flags
    "$ONESHOT" plan --model model "$@" --json >plan.json 2>log || fail "the plan fails: $*"
    for kind in device host; do
        least=$(sed -n "/\"smallest_budgets\"/,/}/s/^ *\"${kind}_bytes\": \([0-9]*\),*\$/\1/p" plan.json)
        for _ in 1 2 3 4; do
            "$ONESHOT" --model model "$@" --progress none --output out --$kind-memory "$least" >log 2>&1 ||
                fail "--$kind-memory $least is not enough: $*"
            rm -rf out
        done
        [ $kind = host ] || ! "$ONESHOT" --model model "$@" --output out --device-memory $((least - 1)) >log 2>&1 ||
            fail "a byte less than $least is enough: $*"
    done
}
for threads in 1 4; do
    exact --scheme W8A8 --ignore lm_head --threads $threads
    exact --scheme NVFP4A16 --ignore lm_head --threads $threads
done
exact --recipe pruned.yaml --threads 2
