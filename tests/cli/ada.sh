# ada.sh - tests AdaRound, AdaQuant and AutoRound with one Linear as unit. The output bytes do not
# depend on threads, batch, tier, budget or a kill. The predicted memory is enough. verify finds no
# fault. With AdaRound and AdaQuant, the KL divergence from the original model is smaller than with
# rounding to nearest. The report has the losses. The plan for a GPU says that the host learns.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64)
recipe() { printf 's_stage:\n  s_modifiers:\n    %s: {scheme: %s, ignore: [lm_head, "re:.*layers.[123]"]%s}\n' "$2" "$3" "$4" >"$1.yaml"; }
recipe rounded QuantizationModifier W3A16 ""
steps=40
[ -z "$SANITIZED" ] || steps=12
recipe ar AdaRoundModifier W3A16 ", num_iterations: $steps, drop_ratio: 0.5"
recipe aq AdaQuantModifier W3A16 ", num_iterations: 20, learning_rate: 2e-4, selective_update: true"
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
recipe au AutoRoundModifier W4A16_ASYM ", iters: 20, batch_size: 8"
recipe fp AutoRoundModifier NVFP4A16 ", iters: 20"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
head -c 10000 "$model/data/evaluation.txt" >evaluation.txt
"$ONESHOT" --model "$model" --recipe rounded.yaml --progress none --output rounded >/dev/null
[ -n "$SANITIZED" ] || b=$(kl rounded)
# The other recipes run the same code as AdaRound. So they run only once more, with other threads
# and another batch; the outputs must be equal.
recipes=(ar aq au fp)
[ -z "$SANITIZED" ] || recipes=(ar)
for r in "${recipes[@]}"; do
    one $r plain --threads 1 --sequential-targets Linear --log-level debug >/dev/null 2>log
    grep -q "layers.0.mlp.up_proj: step 0: loss" log || fail "$r: no losses in the log"
    sums plain >want
    "$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
    python3 - $r <<'P'
import json, os, sys
report = json.load(open("plain/oneshot-report.json"))
m = report["memory"]
assert os.environ["SANITIZED"] or m["peak_bytes"] <= m["predicted_peak_bytes"], m["peak_bytes"]
for x in report["modules"]:
    before, after = (s["loss"] for s in x["losses"])
    assert [s["step"] for s in x["losses"]] == ["nearest", "learned"] and after < before, x
P
    if [ -z "$SANITIZED" ]; then
        a=$(kl plain)
        [ $r = au ] || [ $r = fp ] || awk "BEGIN {exit !($a < 0.95 * $b)}" || fail "$r: KL divergence $a, rounded $b"
    fi
    rm -rf plain
    one $r out --threads 3 --batch-size 4 --sequential-targets Linear >/dev/null
    same out want "$r, threads and batch"
    [ $r = ar ] || continue
    least=$("$ONESHOT" plan --model "$model" --recipe $r.yaml "${data[@]}" --sequential-targets Linear --json |
        sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
    one $r out --mem-opt-level 2 --device-memory $((least + 60000)) --sequential-targets Linear >/dev/null
    same out want "$r, the smallest device memory"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one $r out --mem-opt-level 2 --sequential-targets Linear \
        >log 2>&1
    same out want "$r, counted"
    if INJECT_AT=$(($(cat calls) * 70 / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
        one $r out --mem-opt-level 2 --sequential-targets Linear >log 2>&1; then fail "$r: the run was not killed"; fi
    one $r out --mem-opt-level 2 --sequential-targets Linear >log 2>&1 || { cat log; fail "$r: the run does not continue"; }
    same out want "$r, killed"
done
# --target-bits must choose bits by the loss of rounding to nearest, even if the modifier is
# AutoRound.
recipe few AutoRoundModifier W4A16 ", iters: 1"
recipe near QuantizationModifier W4A16 ""
for r in few near; do
    one $r chosen --target-bits 3.5 2>/dev/null | grep 'bits a weight' >$r.chosen
    rm -rf chosen
done
diff few.chosen near.chosen || fail "the losses of a survey are not those of rounding"
# With 0 iterations, AutoRound gives the bytes of rounding to nearest.
recipe none AutoRoundModifier W4A16 ", iters: 0"
for r in none near; do "$ONESHOT" --model "$model" --recipe $r.yaml --progress none --output $r.out >/dev/null 2>log; done
cmp none.out/model.safetensors near.out/model.safetensors || fail "iters 0 gives other bytes than rounding to nearest"
"$ONESHOT" plan --model "$model" --recipe ar.yaml "${data[@]}" --device-model h100 --verbose >msg 2>&1 || { cat msg; fail "the plan fails"; }
grep -q "not in the estimate: the host learns the codes of Linears" msg || { cat msg; fail "the plan does not name the work of the host"; }
# If learning diverges, modules are rounded to nearest, with a warning. With --strict the run fails.
for unit in linear block; do
    recipe far AdaQuantModifier W8A8 ", num_iterations: 3, learning_rate: 0.1, unit: $unit"
    rm -rf out
    one far out >/dev/null 2>err || fail "diverged: $(cat err)"
    grep -q 'diverged: rounded to nearest; want a smaller' err || fail "no warning: $(cat err)"
    "$ONESHOT" verify out --model "$model" >log 2>&1 || fail "diverged, $unit: $(cat log)"
    rm -rf out
    if one far out --strict >/dev/null 2>err; then fail "--strict accepts a fallback to rounding"; fi
    rm -rf out out.oneshot-partial
done
echo "the same bytes, nearer than rounded"
