# experts.sh - runs a job with a mixture of experts on the emulated GPU and on the host, and
# compares the results. The errors may differ by rounding, and more for tokens whose experts have
# nearly equal weights. The output bytes do not depend on the GPU's budget. The arena's peak is the
# planned peak.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export OSH_PLAY=protect=0 ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/experts.sh"
job=(--model model --recipe recipe.yaml --dataset model/calibration.jsonl --threads 1)
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$PLAY" "${job[@]}" --progress none --output gpu >/dev/null
"$PLAY" "${job[@]}" --progress none --output host --device cpu >/dev/null
errors() { grep -o '"relative_squared_error": [0-9.e-]*' "$1/oneshot-report.json" | cut -d' ' -f2; }
paste <(errors gpu) <(errors host) | awk '{ d = $1 / $2 - 1; if (d > 0.06 || d < -0.06) { print; bad = 1 } n++; sum += d }
    END { mean = sum / n; exit bad || n < 51 || mean > 0.01 || mean < -0.01 }' || fail "the errors of modules differ"
python3 - <<'P' || fail "the GPU and the host count different tokens of the experts"
import json
gpu, host = (json.load(open(d + "/oneshot-report.json"))["experts"] for d in ("gpu", "host"))
assert len(gpu) == len(host) > 0
for a, b in zip(gpu, host): # a token may go to another expert that has a nearly equal weight
    pairs = list(zip(a["tokens_of_experts"], b["tokens_of_experts"]))
    assert a["router"] == b["router"] and a["tokens"] == b["tokens"] and sum(x for x, _ in pairs) == sum(y for _, y in pairs)
    assert all(abs(x - y) <= 0.03 * a["tokens"] for x, y in pairs), pairs
P
perplexity() { "$PLAY" eval --model "$1" --dataset model/calibration.jsonl --max-seq-length 48 --threads 1 --progress none "${@:2}" |
    sed -n 's/^perplexity //p'; }
a=$(perplexity gpu) b=$(perplexity host --device cpu)
awk -v a="$a" -v b="$b" 'BEGIN { exit !(a < 1.02 * b && a > 0.98 * b) }' || fail "perplexity $a, on the host $b"
peak=$(sed -n '/"device": {/,/^  }/s/.*"peak_bytes": \([0-9]*\).*/\1/p' gpu/oneshot-report.json)
plan=$(sed -n '/"device": {/,/^  }/s/.*"predicted_peak_bytes": \([0-9]*\).*/\1/p' gpu/oneshot-report.json)
[ "$peak" -gt 0 ] && [ "$peak" -le "$plan" ] || fail "$peak bytes of the arena were used, predicted $plan"

"$PLAY" plan "${job[@]}" --json >plan.json
grep -q '"solved_apart": true' plan.json || fail "experts are solved one by one"
# Here gate_proj and down_proj have equal shapes, but are not solved together.
"$OSH_TOOLS/make_model" square hidden=64 intermediate=64 heads=2 kv=2 layers=1 vocab=64 samples=4 tokens=16 experts=4 topk=2 head_dim=32
"$PLAY" plan --model square --recipe recipe.yaml --dataset square/calibration.jsonl --threads 1 --json >square.json
grep -q '"solved_apart": true' square.json || fail "experts with as many inputs as outputs are solved one by one"
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
want=$(sha256sum <gpu/model.safetensors)
all=("--device-memory $least" "--device-memory $((least + 200000)) --threads 2") parts="5 11"
[ -z "$SANITIZED" ] || all=("${all[0]}") parts=8 # builds with sanitizers are slow
for flags in "${all[@]}"; do
    if [ "$flags" = "--device-memory $least" ]; then # experts are solved one by one, with the same
                                                     # bytes
        last_wins "$PLAY" plan "${job[@]}" $flags --json | grep -q '"solved_apart": true' && fail "experts are solved together in $least bytes"
    fi
    last_wins "$PLAY" "${job[@]}" --progress none --output other $flags >/dev/null || fail "failed: $flags"
    [ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "$flags changes the bytes"
    rm -rf other
done
for part in $parts; do # The run is killed, also between the results of experts that are solved
                       # together.
    if { INJECT_AT=$(($(cat calls) * part / 12)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
        "$PLAY" "${job[@]}" --progress none --output other; } >/dev/null 2>&1; then fail "the run was not killed"; fi
    "$PLAY" "${job[@]}" --progress none --output other >/dev/null || fail "killed at $part/12: the run does not continue"
    [ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "killed at $part/12: the output has other bytes"
    rm -rf other
done
OSH_PLAY="protect=0 order=7 lazy=1" "$PLAY" "${job[@]}" --mem-opt-level 2 --progress none --output other >/dev/null
[ "$(sha256sum <other/model.safetensors)" = "$want" ] ||
    fail "values on the disk and another order of the GPU's threads: the output has other bytes"
