# independent.sh - tests --pipeline independent. Each modifier that needs data has its own traversal
# of the model, after the previous modifiers have changed it. The output must be that of separate
# runs with one modifier each. The output bytes must not depend on threads, batch, tier, budget or a
# kill. The predicted memory must be enough. Impossible jobs must be refused.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
recipe() { # arguments: file, modifiers; writes a stage per modifier, because a stage cannot have
           # two modifiers with the same name
    for ((k = 2; k <= $#; k++)); do printf 's%d_stage:\n  m_modifiers:\n    %s\n' $k "${!k}"; done >"$1.yaml"
}
smooth="SmoothQuantModifier: {}"
attention="GPTQModifier: {scheme: W8A8, targets: ['re:.*self_attn.*']}"
gates="QuantizationModifier: {scheme: FP8, targets: ['re:.*gate_proj', 're:.*up_proj']}"
down="GPTQModifier: {scheme: W4A16, targets: ['re:.*down_proj']}"
recipe four "$smooth" "$attention" "$gates" "$down"
recipe pair "$attention" "$down"
recipe first "$attention"
recipe second "$down"
recipe ranges "$gates" "$down"
recipe gates "$gates"
recipe smooth "$smooth" "QuantizationModifier: {scheme: W8A8, ignore: [lm_head]}"
recipe pruned "SparseGPTModifier: {sparsity: 0.5, targets: ['re:.*down_proj']}" "$down"
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64)
one() { # arguments: recipe, output, flags
    rm -rf "$2"
    last_wins "$ONESHOT" --model "$model" --recipe "$1.yaml" "${data[@]}" --progress none --pipeline independent \
        --output "$2" "${@:3}" >log 2>&1
}
must() { one "$@" || { cat log; fail "$1: the run fails"; }; }
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
cat >same.py <<'P'
"""same.py A B PATTERN: how many tensors of A have names that match, and how many of them are other bytes in B"""
import json, pathlib, re, struct, sys
def tensors(out):
    raw = pathlib.Path(out, "model.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]
            for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__" and re.search(sys.argv[3], k)}
a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
print(len(a), sum(a[k] != b.get(k) for k in a))
P
tensors() { [ "$(python3 same.py "$1" "$2" "$3")" = "$4" ] || fail "$1, $2, $3: $(python3 same.py "$1" "$2" "$3")"; }

# Before a modifier begins, the modifier before it has changed all layers.
must pair pair
must first first
"$ONESHOT" --model first --recipe second.yaml --only 're:.*down_proj' "${data[@]}" --progress none --output chain >log 2>&1
tensors pair chain '.' '62 0'
# GPTQ must not see the rounding by the modifier before it. The ranges of a modifier must not depend
# on GPTQ after it.
must ranges ranges && must gates gates && must second second
tensors ranges gates 'input_scale' '8 0'
tensors ranges second 'down_proj' '12 0'
must pair joint --pipeline sequential
# only the weights of layer 0 are equal in both outputs, because no Linear is solved before layer 0
tensors pair joint 'self_attn.q_proj.weight$' '4 3'
must four four && must smooth smooth
tensors four smooth 'layernorm' '8 0'
echo "as runs behind each other"

"$ONESHOT" plan --verbose --model "$model" --recipe four.yaml "${data[@]}" --pipeline independent >plan.txt
grep -q '^pipeline independent' plan.txt && [ "$(grep -c '^traversal [1-4] of 4: ' plan.txt)" = 4 ] ||
    { cat plan.txt; fail "the plan does not list the traversals"; }
"$ONESHOT" verify four --model "$model" >verify.txt || { cat verify.txt; fail "verify fails"; }
python3 - <<'P'
import json, os
r = json.load(open("four/oneshot-report.json"))
names = [t["modifier"] for t in r["traversals"]]
assert names == ["SmoothQuantModifier", "GPTQModifier", "QuantizationModifier", "GPTQModifier"], names
assert all(t["seconds"] > 0 for t in r["traversals"]) and r["pipeline"] == "independent", r["traversals"]
assert os.environ["SANITIZED"] or r["memory"]["peak_bytes"] <= r["memory"]["predicted_peak_bytes"], r["memory"]
P
sums four >want
must four out --threads 1 --batch-size 1 && same out want "one thread"
must four out --threads 3 --batch-size 4 && same out want "threads and batch"
least=$("$ONESHOT" plan --model "$model" --recipe four.yaml "${data[@]}" --pipeline independent --json |
    sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
must four out --mem-opt-level 2 --threads 2 --device-memory $((least + 60000)) && same out want "the least memory"
# The plan names the smallest budget. A plan with this budget works; one byte less is refused.
plan_with() { "$ONESHOT" plan --verbose --model "$model" --recipe four.yaml "${data[@]}" --pipeline independent --device-memory "$1"; }
plan_with "$least" >log 2>&1 || { cat log; fail "the plan refuses the smallest device memory that it names, $least bytes"; }
plan_with $((least - 1)) >log 2>&1 && fail "the plan accepts less than the smallest device memory that it names, $least bytes"
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one four out --mem-opt-level 2 && same out want "counted"
for share in 40 65 88; do
    if INJECT_AT=$(($(cat calls) * share / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
        one four out --mem-opt-level 2; then fail "the run was not killed"; fi
    "$ONESHOT" --model "$model" --recipe four.yaml "${data[@]}" --progress none --pipeline independent --output out \
        --mem-opt-level $((share % 2 * 2)) >log 2>&1 || { cat log; fail "killed at $share %: the run does not continue"; }
    same out want "killed at $share %"
done
echo "same bytes"

if one pruned out; then fail "a recipe that prunes and then quantizes is not refused"; fi
grep -q 'down_proj is changed by SparseGPTModifier and by GPTQModifier' log || { cat log; fail "the message does not name the two modifiers"; }
echo "refused with a reason"
