# gptq_float4.sh - tests GPTQ with NVFP4 and MX. The output bytes must not depend on threads, batch,
# budget or a kill. The predicted memory must be enough, and verify must find no fault. The KL
# divergence from the original model must be smaller than with rounding to nearest. --quality best
# must lower the losses of modules.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64)
. "$OSH_SOURCE_DIR/tests/tools/compress.sh"
one() { # arguments: scheme, quality, output
    "$ONESHOT" --model "$model" --scheme $1 --quality $2 "${data[@]}" --progress none --output "$3" "${@:4}"
}
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
head -c 8000 "$model/data/evaluation.txt" >evaluation.txt
schemes=(NVFP4 MXFP4A16 MXFP6A8)
[ -z "$SANITIZED" ] || schemes=(NVFP4)
for scheme in "${schemes[@]}"; do
    one $scheme gptq plain --threads 1 >/dev/null
    sums plain >want
    "$ONESHOT" verify plain --model "$model" >verify.txt || { cat verify.txt; fail "$scheme: verify fails"; }
    if [ -z "$SANITIZED" ]; then
        one $scheme fast rounded >/dev/null
        a=$(kl plain) b=$(kl rounded)
        awk "BEGIN {exit !($a < $b)}" || fail "$scheme: KL divergence $a, rounded $b"
        rm -rf rounded
    fi
    rm -rf plain
    [ $scheme = NVFP4 ] || continue
    one $scheme gptq out --threads 3 --batch-size 4 >/dev/null
    same out want "$scheme, threads and batch"
    least=$("$ONESHOT" plan --model "$model" --scheme $scheme --quality gptq "${data[@]}" --json |
        sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
    one $scheme gptq out --mem-opt-level 2 --device-memory $((least + 60000)) >/dev/null
    python3 - <<'P'
import json, os
m = json.load(open("out/oneshot-report.json"))["memory"]
assert os.environ["SANITIZED"] or m["peak_bytes"] <= m["predicted_peak_bytes"], m
P
    same out want "$scheme, the smallest device memory"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one $scheme gptq out --mem-opt-level 2 >log 2>&1
    same out want "$scheme, counted"
    if INJECT_AT=$(($(cat calls) * 70 / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
        one $scheme gptq out --mem-opt-level 2 >log 2>&1; then fail "$scheme: the run was not killed"; fi
    one $scheme gptq out --mem-opt-level 2 >log 2>&1 || { cat log; fail "$scheme: the run does not continue"; }
    same out want "$scheme, killed"
done
# With --quality best, no step raises a loss, and all steps together lower the loss. Threads do not
# change the bytes. The predicted memory is enough.
for scheme in "${schemes[@]}"; do
    part=(--targets 're:model.layers.[01].self_attn.*')
    one $scheme best best "${part[@]}" --threads 1 >/dev/null
    sums best >want
    "$ONESHOT" verify best --model "$model" >verify.txt || { cat verify.txt; fail "$scheme, best: verify fails"; }
    python3 - <<'P'
import json, os
r = json.load(open("best/oneshot-report.json"))
assert os.environ["SANITIZED"] or r["memory"]["peak_bytes"] <= r["memory"]["predicted_peak_bytes"], r["memory"]
assert len(r["modules"]) == 8
for m in r["modules"]:
    x = [s["loss"] for s in m["losses"]]
    assert len(x) == 4 and x == sorted(x, reverse=True) and x[3] < 0.97 * x[0], m
P
    rm -rf best
    one $scheme best out "${part[@]}" --threads 3 --batch-size 2 >/dev/null
    same out want "$scheme, best, threads and batch"
done
echo "the same bytes, nearer than rounded"
