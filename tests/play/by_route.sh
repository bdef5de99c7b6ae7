# by_route.sh - compares a job with --moe-calibrate-all-experts false on the emulated GPU with the
# same job on the host. Experts get the same numbers of tokens, and the errors differ only by
# rounding. An expert without tokens is rounded to nearest. The output bytes do not depend on the
# GPU's budget, the tier of values, the order of the GPU's threads, or a killed run. The arena's
# peak is the planned peak, and the smallest budget is enough.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
# With truncated sums, the kernels for routed rows differ from cuBLASLt in more bits than with exact
# sums.
export OSH_PLAY="protect=0 truncate=1" ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
# layer 0 is dense; the router of layer 2 has only zeros, so that only two experts get tokens
"$OSH_TOOLS/make_model" model hidden=64 intermediate=32 heads=2 kv=2 layers=3 vocab=128 samples=10 tokens=40 experts=4 topk=2 \
    head_dim=32 dense=1
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
gptq_recipe 4 32 >recipe.yaml
python3 "$OSH_SOURCE_DIR/tests/tools/clear_tensor.py" model model.layers.2.mlp.gate.weight
job=(--model model --recipe recipe.yaml --dataset model/calibration.jsonl --threads 1 --moe-calibrate-all-experts false)
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$PLAY" "${job[@]}" --progress none --output gpu >log 2>&1 || { cat log; exit 1; }
[ "$(grep -c 'no token is routed to this expert: rounded to nearest' log)" = 6 ] || { cat log; fail "not 2 experts of 3 modules"; }
"$PLAY" "${job[@]}" --progress none --output host --device cpu >/dev/null 2>&1
last_wins "$PLAY" "${job[@]}" --progress none --output all --moe-calibrate-all-experts true >/dev/null 2>&1 || fail "the run with all tokens for all experts fails"
python3 - <<'P'
import json
gpu, host, every = (json.load(open(d + "/oneshot-report.json")) for d in ("gpu", "host", "all"))
assert gpu["device"]["peak_bytes"] <= gpu["device"]["predicted_peak_bytes"], gpu["device"]
for a, b in zip(gpu["experts"], host["experts"]): # a token may go to another expert that has a nearly equal weight
    pairs = list(zip(a["tokens_of_experts"], b["tokens_of_experts"]))
    assert a["tokens"] == b["tokens"] and all(abs(x - y) <= 0.03 * a["tokens"] for x, y in pairs), pairs
assert min(gpu["experts"][-1]["tokens_of_experts"]) == 0
error = lambda d: {m["name"]: m.get("relative_squared_error") for m in d["modules"]}
a, b, c = error(gpu), error(host), error(every)
assert a.keys() == b.keys() and len(a) == 39, len(a)
ratios = [a[n] / b[n] - 1 for n in a if a[n]]
assert len(ratios) > 25 and max(map(abs, ratios)) < 0.08 and abs(sum(ratios) / len(ratios)) < 0.01, ratios
assert sum(abs(c[n] / b[n] - 1) > 0.06 for n in a if a[n] and c[n] and ".experts." in n) > 3, "all tokens have the same errors"
P
"$PLAY" plan "${job[@]}" --json >plan.json
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
want=$(sha256sum <gpu/model.safetensors)
losses() { grep -oE '"(name|objective|relative_squared_error|loss)": [^,]*' "$1/oneshot-report.json"; }
same() { # arguments: what, flags
    local what=$1
    shift
    last_wins "$PLAY" "${job[@]}" --progress none --output other "$@" >log 2>&1 || { cat log; fail "the run fails: $what"; }
    [ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "the output has other bytes: $what"
    # the sums of a Hessian can differ although the codes are equal; the losses show that
    [ "$(losses other)" = "$(losses gpu)" ] || fail "the losses differ: $what"
    rm -rf other
}
same "least memory" --device-memory $least
[ -z "$SANITIZED" ] || exit 0 # builds with sanitizers are slow
same "more memory" --device-memory $((least + 100000)) --prefetch false
OSH_PLAY="protect=0 truncate=1 order=5 lazy=1" same "values on the disk, another order" --mem-opt-level 2
if { INJECT_AT=$(($(cat calls) * 8 / 12)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
    "$PLAY" "${job[@]}" --progress none --output other; } >/dev/null 2>&1; then fail "the run was not killed"; fi
same "a killed run"

# Tests ranges of the rows of experts, which the GPU (minmax) or the host (mse) computes. Also tests
# sums of squares.
experts="targets: ['re:.*layers.1.mlp.experts.*']"
rounded() { # arguments: file, observer of inputs, modifier before
    printf 's_stage:\n  s_modifiers:\n    %s\n    QuantizationModifier: {config_groups: {a: {%s,\n' "${3:-}" "$experts" >"$1.yaml"
    printf '      weights: {num_bits: 8, strategy: channel}, input_activations: {num_bits: 8, symmetric: false,\n' >>"$1.yaml"
    printf '      dynamic: false, observer: %s, observer_kwargs: {averaging_constant: 0.3}}}}}\n' "$2" >>"$1.yaml"
}
rounded minmax minmax
rounded mse mse "WandaPruningModifier: {sparsity: 0.5, $experts}"
for r in minmax mse; do
    job[3]=$r.yaml
    "$PLAY_BATCHES" "${job[@]}" --progress none --output gpu.$r >log 2>&1 || { cat log; fail $r; }
    "$PLAY_BATCHES" "${job[@]}" --progress none --output host.$r --device cpu >/dev/null 2>&1
    want=$(sha256sum <gpu.$r/model.safetensors)
    "$PLAY_BATCHES" plan "${job[@]}" --json >plan.json
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
    OSH_PLAY="protect=0 truncate=1 memory=$least order=5" "$PLAY_BATCHES" "${job[@]}" --progress none --output other \
        --device-memory $least >log 2>&1 || { cat log; fail "$r: the run fails with the least memory"; }
    [ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "the output has other bytes: $r"
    rm -rf other
done
python3 - minmax mse <<'P'
import json, struct, sys

def tensors(path):
    raw = open(path + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]]
            for k, e in json.loads(raw[8:8 + n]).items() if ".layers.1.mlp.experts." in k}

for name in sys.argv[1:]:
    gpu, host = tensors("gpu." + name), tensors("host." + name)
    number = lambda b: struct.unpack("<f", b"\0\0" + b)[0]
    scales = [(number(v), number(host[k])) for k, v in gpu.items() if k.endswith("input_scale")]
    # a token may go to another expert that has a nearly equal weight
    assert len(scales) == 12 and all(abs(a - b) < 0.05 * b for a, b in scales), scales
    assert sum(abs(a - b) < 0.01 * b for a, b in scales) >= 9, scales
    codes = [(sum(x != y for x, y in zip(v, host[k])), len(v)) for k, v in gpu.items() if k.endswith("weight")]
    assert len(codes) == 12 and sum(n for n, _ in codes) < 0.01 * sum(n for _, n in codes), codes
    d = json.load(open(f"gpu.{name}/oneshot-report.json"))["device"]
    assert d["peak_bytes"] <= d["predicted_peak_bytes"] <= 1.15 * d["peak_bytes"], d
P
