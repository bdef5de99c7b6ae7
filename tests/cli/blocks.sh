# blocks.sh - tests AutoRound with one block (a decoder layer) as unit. Tests that the output bytes
# do not depend on threads, batch, tier, budget or a kill. Tests that the predicted memory is
# enough, and that verify finds no fault. In the last step of learning, the error of each quantized
# layer's output must be smaller than in the first step. If a block cannot be learned, each of its
# Linears must be learned alone, or the job must be refused.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 7 --max-seq-length 48)
recipe() { # arguments: name, scheme, more keys; layers that are not learned
    printf 's_stage:\n  s_modifiers:\n    AutoRoundModifier: {scheme: %s, ignore: [lm_head, "re:.*layers.[%s]"]%s}\n' "$2" "${4:-02}" "$3" >"$1.yaml"
}
recipe au W4A16_ASYM ", iters: 21, batch_size: 3, log_period: 20"
recipe block W4A16 ", iters: 2, unit: block"
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
same() { # arguments: output, label
    sums "$1" | diff -u want - >diff.txt || { cat diff.txt; fail "$2: the output has other bytes"; }
    rm -rf "$1"
}
one au plain --threads 1 --log-level debug --profile p.yaml >/dev/null 2>log
tuned() { # the profile shows learning as a phase and a stage
    grep -q 'step: "learn model.layers.1 End"' p.yaml && ! grep -q 'step: "solve ' p.yaml &&
        awk -F'[:,]' '/stage: "Fast Finetune"/ { s = $4 } END { exit !(s > 0) }' p.yaml || { cat p.yaml; fail "the profile has no time of the stage Fast Finetune"; }
}
tuned
[ "$(grep -c 'layers.[13]: step 2*0: loss' log)" = 4 ] || { cat log; fail "the log lacks losses of steps"; }
sed -n 's/^model.*output \([0-9.e-]*\) in the last step, \([0-9.e-]*\) in the first$/\1 \2/p' log >losses
awk '{ n++; if ($1 >= 0.8 * $2) bad = 1 } END { exit !(n == 2 && !bad) }' losses || { cat losses; fail "learning lowers a loss by less than a fifth"; }
sums plain >want
"$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "verify fails"; }
memory_suffices() {
    python3 - <<'P'
import json, os
m = json.load(open("plain/oneshot-report.json"))["memory"]
assert os.environ["SANITIZED"] or m["peak_bytes"] <= m["predicted_peak_bytes"], m
P
}
memory_suffices
one au out --seed 7 >/dev/null 2>&1 # another seed chooses other samples for the steps
sums out | cmp -s want - && fail "--seed changes no byte"
rm -rf plain out
one au out --threads 3 --batch-size 4 >/dev/null 2>&1
same out "threads and batch"
least=$("$ONESHOT" plan --model "$model" --recipe au.yaml "${data[@]}" --json 2>/dev/null |
    sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
least_memory=(--mem-opt-level 2 --device-memory $((least + 60000)))
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one au out "${least_memory[@]}" >log 2>&1
same out "the smallest device memory"
# Kills the run between the writes of two modules of a block.
if [ -z "$SANITIZED" ]; then
    if INJECT_AT=$(($(cat calls) * 80 / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
        one au out "${least_memory[@]}" >log 2>&1; then fail "the run was not killed"; fi
    one au out "${least_memory[@]}" >log 2>&1 || { cat log; fail "the run does not continue"; }
    same out "killed"
fi
# With NVFP4, the scales of groups are learned. A resumed run must use the same global scale for q,
# k and v.
recipe fp NVFP4A16 ", iters: 30, batch_size: 3" 023
one fp plain --threads 1 --log-level info >/dev/null 2>log
sed -n 's/^model.*output \([0-9.e-]*\) in the last step, \([0-9.e-]*\) in the first$/\1 \2/p' log >losses
awk '{ n++; if ($1 >= 0.9 * $2) bad = 1 } END { exit !(n == 1 && !bad) }' losses || { cat losses; fail "fp: learning lowers the loss by less than a tenth"; }
sums plain >want
"$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "fp: verify fails"; }
memory_suffices
rm -rf plain
if [ -z "$SANITIZED" ]; then
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one fp out --threads 3 --batch-size 4 --mem-opt-level 2 >log 2>&1
    same out "fp: threads, batch and tier"
    if INJECT_AT=$(($(cat calls) * 80 / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
        one fp out --mem-opt-level 2 >log 2>&1; then fail "fp: the run was not killed"; fi
    one fp out >log 2>&1 || { cat log; fail "fp: the run does not continue"; }
    same out "fp: killed"
fi
# With `unit: block`, too, the observer imatrix_mse uses the importance of the input channels: the
# scales before the first step must equal those of QuantizationModifier.
observed='{ignore: [lm_head, "re:.*layers.[02]"], config_groups: {g: {targets: [Linear], weights: {num_bits: 4, group_size: 128, strategy: group, observer: imatrix_mse}}}'
printf 's_stage:\n  s_modifiers:\n    AutoRoundModifier: %s, iters: 1, unit: block, enable_minmax_tuning: false}\n' "$observed" >weighed.yaml
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier: %s}\n' "$observed" >nearest.yaml
for r in weighed nearest; do one $r $r >/dev/null 2>log || { cat log; fail "$r"; }; done
python3 - <<'P'
import json, os, struct
def scales(folder):
    with open(folder + "/model.safetensors", "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, data = json.loads(f.read(n)), f.read()
    return {k: data[slice(*v["data_offsets"])] for k, v in head.items() if "layers.1" in k and k.endswith("weight_scale")}
assert len(scales("weighed")) == 7 and scales("weighed") == scales("nearest"), "scales are not weighed"
m = json.load(open("weighed/oneshot-report.json"))["memory"]
assert os.environ["SANITIZED"] or m["peak_bytes"] <= m["predicted_peak_bytes"], m
P
rm -rf weighed nearest
# AdaRound and AdaQuant stop early, and compare the losses of all samples. Their bytes do not depend
# on threads and batch.
for m in AdaRound AdaQuant; do
    printf 's_stage:\n  s_modifiers:\n    %sModifier: {scheme: W4A16, ignore: [lm_head, "re:.*layers.[02]"], unit: block, %s}\n' \
        $m "num_iterations: 30, batch_size: 3, drop_ratio: 0.5, early_stop: true, num_batches: 3, selective_update: true, lr_adjust: [1.0e-9, 1.0e-4]" >ad.yaml
    one ad plain --threads 1 --log-level info --profile p.yaml >/dev/null 2>log
    tuned
    [ $m = AdaRound ] || [ "$(grep -c 'layers.[13]: stopped after step [0-9]* of 30' log)" -gt 0 ] || { cat log; fail "$m: no module stops early"; }
    [ "$(grep -c 'layers.[13]: mean squared error of all samples .* with rounding to nearest' log)" = 2 ] || { cat log; fail "$m: the log does not compare with rounding to nearest"; }
    sums plain >want
    rm -rf plain
    [ -n "$SANITIZED" ] && continue
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one ad out --threads 3 --batch-size 4 --mem-opt-level 2 >log 2>&1
    same out "$m: threads, batch and tier"
    [ $m = AdaRound ] || continue
    for part in 70 85; do # a resumed run restores the values that drop_ratio uses
        if INJECT_AT=$(($(cat calls) * part / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
            one ad out --threads 3 --batch-size 4 --mem-opt-level 2 >log 2>&1; then fail "the run was not killed"; fi
        one ad out --mem-opt-level 2 >log 2>&1 || { cat log; fail "$m: the run does not continue"; }
        same out "$m: killed at $part %"
    done
    sed 's/drop_ratio: 0.5, //' ad.yaml >whole.yaml
    one whole out >/dev/null 2>&1
    sums out | cmp -s want - && fail "drop_ratio changes no byte"
    rm -rf out
done
"$ONESHOT" plan --model "$model" --recipe au.yaml "${data[@]}" --sequential-targets Linear --log-level info >log 2>&1
grep -q "learns from the output of each Linear and not of decoder layers" log || { cat log; fail "the log does not say why learning uses single Linears"; }
sed 's/batch_size: 3/batch_size: 3, unit: linear/' au.yaml >linear.yaml
for r in au linear; do "$ONESHOT" plan --model "$model" --recipe $r.yaml "${data[@]}" --log-level info >$r.said 2>&1; done
grep -q "batch_size 3 has no effect" linear.said && ! grep -q "batch_size 3 has no effect" au.said || fail "$(cat linear.said au.said)"
# Tests learned biases. All six biases of an OPT layer must change, and verify must accept them.
# Threads, tier and a kill must not change the bytes.
"$OSH_TOOLS/tiny_model" opt opt
tiny() { # arguments: output, flags
    "$ONESHOT" --model opt --recipe bias.yaml --dataset opt/calibration.jsonl --progress none --output "$@"
}
printf 's_stage:\n  s_modifiers:\n    AdaQuantModifier:\n      config_groups: {g: {targets: [Linear], weights: {num_bits: 4, strategy: group, group_size: 8}}}\n' >bias.yaml
printf '      {ignore: [lm_head]}\n' | tr -d '{}' >>bias.yaml
printf '      %s\n' "unit: block" "update_bias: true" "num_iterations: 30" "batch_size: 2" >>bias.yaml
tiny plain --threads 1 >/dev/null
"$ONESHOT" verify plain --model opt >verify.txt || { cat verify.txt; fail "verify of an output with biases fails"; }
python3 - <<'P'
import json
changed = {t["name"] for t in json.load(open("plain/oneshot-manifest.json"))["tensors"] if t["rule"] == "changed"}
assert len(changed) == 12 and "model.decoder.layers.1.fc2.bias" in changed, changed
P
sums plain >want
rm -rf plain
if [ -z "$SANITIZED" ]; then
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so tiny out --threads 3 --mem-opt-level 2 >log 2>&1
    same out "biases: threads and tier"
    for part in 55 70 85; do
        if INJECT_AT=$(($(cat calls) * part / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
            tiny out --threads 3 --mem-opt-level 2 >log 2>&1; then fail "the run was not killed"; fi
        tiny out >log 2>&1 || { cat log; fail "the run does not continue"; }
        same out "biases: killed at $part %"
    done
fi
code=0
"$ONESHOT" plan --model "$model" --recipe block.yaml "${data[@]}" --sequential-targets Linear >msg 2>&1 || code=$?
[ $code = 1 ] && grep -q -- "--sequential-targets are not the decoder layers" msg || { cat msg; fail "the run is not refused"; }
echo "the same bytes, nearer than rounded"
