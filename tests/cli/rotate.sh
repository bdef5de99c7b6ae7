# rotate.sh - tests SpinQuantModifier before rounding and before GPTQ. The output bytes do not
# depend on threads, batch, tier, budget or a kill. verify rotates the source before it compares.
# Without quantization, a rotation does not change the predictions of the model. A tied head gets a
# weight of its own.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
recipe() { # arguments: file, keys of SpinQuantModifier, modifiers after it
    printf 's_stage:\n  s_modifiers:\n    SpinQuantModifier: {%s}\n    %s\n' "$2" "$3" >"$1.yaml"
}
recipe gptq "" "GPTQModifier: {scheme: W4A16, ignore: [lm_head]}"
recipe rtn "transform_type: random-hadamard" "QuantizationModifier: {scheme: W4A16, ignore: [lm_head, 're:.*o_proj']}"
recipe nvfp4 "" "QuantizationModifier: {scheme: NVFP4A16, ignore: [lm_head]}"
recipe alone "" ""
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64)
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"

"$ONESHOT" plan --verbose --model "$model" --recipe gptq.yaml "${data[@]}" >plan.txt
grep -q 'SpinQuantModifier: R1 in blocks of 256, R2 in blocks of 64, 39 weights rotated or fused with norms; the head is no' \
    plan.txt || { cat plan.txt; fail "the plan does not list the rotations"; }

for r in gptq rtn nvfp4 alone; do
    one $r plain --threads 1 >/dev/null 2>&1
    sums plain >want.$r
    "$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
    grep -q 'rule": "changed"' plain/oneshot-manifest.json || fail "$r: nothing is called changed"
    grep -q '"tie_word_embeddings": false' plain/config.json || fail "$r: the head is still tied"
    rm -rf out.$r && mv plain out.$r
    one $r out --threads 3 --batch-size 4 --mem-opt-level 2 >/dev/null 2>&1
    same out want.$r "$r, threads and tier"
    least=$("$ONESHOT" plan --verbose --model "$model" --recipe $r.yaml "${data[@]}" --threads 1 2>/dev/null |
        sed -n 's/^smallest budgets: .*host memory \([0-9.]*\) MB.*/\1/p')
    one $r out --threads 1 --host-memory "$(awk "BEGIN {printf \"%d\", $least * 1e6 + ${SANITIZED:+8e6 + }2e6}")" >/dev/null 2>&1
    same out want.$r "$r, host memory"
done
echo "same bytes"

for r in gptq rtn; do
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one $r out --threads 1 >log 2>&1
    same out want.$r "$r, counted"
    for share in 30 70 90; do
        if INJECT_AT=$(($(cat calls) * share / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one $r out \
            --threads 1 >log 2>&1; then fail "$r: the run was not killed"; fi
        one $r out >log 2>&1 || { cat log; fail "$r: the run does not continue"; }
        same out want.$r "$r, killed at $share %"
    done
done
echo "killed, and the same"

# The perplexity stays the same except for roundings of BF16. A missing rotation changes it by
# thousands.
head -c $([ -z "$SANITIZED" ] && echo 20000 || echo 5000) "$model/data/evaluation.txt" >evaluation.txt
nll() { "$ONESHOT" eval --model "$1" --dataset evaluation.txt --progress none --max-seq-length 128 | tail -1 | sed 's/.* //'; }
a=$(nll "$model") b=$(nll out.alone)
awk "BEGIN {exit !(($a - $b)^2 < 0.01)}" || fail "perplexity $a became $b"

# verify finds a wrong recipe and wrong norms.
cp -r out.alone broken
sed 's/R1/R2/; s/{}/{rotations: R2}/' alone.yaml >broken/recipe.yaml
! "$ONESHOT" verify broken --model "$model" >found.txt 2>&1 || fail "another recipe is not found"
grep -q 'embed_tokens.weight: differs from byte' found.txt || { cat found.txt; fail "verify does not name the embedding"; }
echo "verified"
