# loss_mask.sh - runs jobs with `--loss-mask answers` on the emulated GPU: sums of inputs, ranges,
# observers that the host runs, factors of SmoothQuant and AWQ, targets of the original model,
# learning by block, and experts that get only their own tokens. A mask of ones gives the bytes of a
# job without a mask. The scales and almost all codes of the first Linears are those of the host.
# The output bytes do not depend on the order of the GPU's threads, on the tier, on budgets or on a
# kill. The smallest budgets of the plan are enough.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
fail() { echo "$*"; [ ! -e err ] || cat err; exit 1; }
"$OSH_TOOLS/make_model" dense hidden=128 intermediate=128 heads=2 kv=1 layers=2 vocab=128 samples=6 tokens=30 seed=1
"$OSH_TOOLS/make_model" experts hidden=64 intermediate=32 heads=2 kv=2 layers=3 vocab=128 samples=6 tokens=30 experts=4 topk=2 \
    head_dim=32 dense=1
python3 - <<'P'
import json
for name in ("dense", "experts"):
    rows = [json.loads(line) for line in open(name + "/calibration.jsonl")]
    def write(to, keep):
        with open(f"{to}.{name}.jsonl", "w") as f:
            for i, r in enumerate(rows):
                f.write(json.dumps(r | {"loss_mask": [int(keep(i, k)) for k in range(len(r["input_ids"]))]}) + "\n")
    write("ones", lambda i, k: True)
    # no token of sample 2 counts; in each other sample, every second run of 5 tokens counts
    write("some", lambda i, k: i != 2 and (k + i) // 5 % 2)
P
N='ignore: ["re:.*lm_head"]'
recipe() { # arguments: name, modifiers
    printf 's_stage:\n  s_modifiers:\n' >"$1.yaml"
    printf '    %s\n' "${@:2}" >>"$1.yaml"
}
of() { # arguments: layer, observer; prints a group with static scales of inputs
    echo "{targets: ['re:.*layers.$1.*'], weights: {num_bits: 8, strategy: channel}, input_activations: {
        num_bits: 8, symmetric: false, dynamic: false, observer: $2, observer_kwargs: {averaging_constant: 0.5}}}"
}
recipe ranges "SmoothQuantModifier: {smoothing_strength: 0.5}" "GPTQModifier: {$N, kv_cache_scheme: {num_bits: 8, type: float, strategy: attn_head},
      config_groups: {a: $(of 0 minmax), b: $(of 1 mse)}}"
recipe awq "AWQModifier: {n_grid: 4}" "QuantizationModifier: {$N, config_groups: {a: {targets: [Linear],
      weights: {num_bits: 4, symmetric: false, strategy: channel, observer: imatrix_mse}}}}"
recipe block "AutoRoundModifier: {scheme: W4A16, targets: Linear, iters: 2, $N}"
recipe original "AdaRoundModifier: {scheme: W4A16, num_iterations: 20, target: original, drop_ratio: 0.5, $N}"
recipe routes "GPTQModifier: {$N, config_groups: {a: $(of '[01]' minmax), b: $(of 2.mlp mse)}}"
where() { # argument: recipe; sets the flags of its job
    model=dense
    [ "$1" != routes ] || model=experts
    job=(--model $model --recipe "$1.yaml" --dataset some.$model.jsonl --loss-mask answers --threads 1)
    [ $model = dense ] || job+=(--moe-calibrate-all-experts false)
}
one() { # arguments: output, flags
    last_wins "$PLAY_BATCHES" "${job[@]}" --progress none --output "$@" >/dev/null 2>err
}
recipes="ranges awq block original routes"
[ -z "$SANITIZED" ] || recipes="ranges block routes" # builds with sanitizers are slow
for r in $recipes; do
    where $r
    one gpu.$r || fail "$r"
    grep -q '"back_end": "cuda"' gpu.$r/oneshot-manifest.json || fail "$r: not on the GPU"
    [ "$SANITIZED" ] || one host.$r --device cpu || fail "$r on the host"
    want=$(sha256sum <gpu.$r/model.safetensors)
    same() { # arguments: what, flags
        one other "${@:2}" || fail "$r, $1"
        [ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "$r, $1: other bytes"
        rm -rf other
    }
    "$PLAY_BATCHES" plan "${job[@]}" --json >plan.json
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
    least_host=$(sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json)
    host=(--host-memory "$least_host")
    [ -z "$SANITIZED" ] || host=() # the plan does not count the memory of a sanitizer
    OSH_PLAY="protect=0 memory=$least order=5 lazy=1" INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so \
        same "least memory" --device-memory "$least" "${host[@]}"
    [ -z "$SANITIZED" ] || continue # builds with sanitizers are slow
    if [ $r = ranges ]; then
        same "values on the disk" --mem-opt-level 2 --threads 2
        if INJECT_AT=$(($(cat calls) * 6 / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one other \
            --device-memory "$least" "${host[@]}"; then fail "not killed"; fi
        same "a killed run" --device-memory "$least"
    fi
    job+=(--dataset ones.$model.jsonl)
    [ $r != ranges ] || one ones.$r || fail "$r, ones"
    job+=(--dataset $model/calibration.jsonl --loss-mask none)
    [ $r != ranges ] || one all.$r || fail "$r, no mask"
    [ $r = ranges ] || one all.$r --device cpu || fail "$r, no mask, on the host"
done
[ -z "$SANITIZED" ] || exit 0
cmp ones.ranges/model.safetensors all.ranges/model.safetensors || fail "a mask of ones makes other bytes"
python3 - $recipes <<'P'
import json, struct, sys

def load(path):
    raw = open(path + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]]
            for k, e in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}

def same(a, b, keys):
    pairs = [(x, y) for k in keys for x, y in zip(a[k], b[k])]
    return sum(x == y for x, y in pairs) / len(pairs)

def error(path):
    report = json.load(open(path + "/oneshot-report.json"))
    if report.get("device"):
        d = report["device"]
        assert d["peak_bytes"] <= d["predicted_peak_bytes"] <= 1.15 * d["peak_bytes"], (path, d)
    return sum(m.get("relative_squared_error") or 0 for m in report["modules"])

for name in sys.argv[1:]:
    gpu, host, every = (load(f"{d}.{name}") for d in ("gpu", "host", "all"))
    assert gpu.keys() == host.keys()
    first = [k for k in gpu if ".0.self_attn." in k and any(f".{p}_proj." in k for p in "qkv")]
    codes = [k for k in first if k.endswith(("weight", "weight_packed"))]
    inputs = [k for k in first if ".input_" in k]
    assert len(codes) == 3 and bool(inputs) == (name in ("ranges", "routes")), first
    assert all(gpu[k] == host[k] for k in inputs), (name, "scales of inputs")
    assert not inputs or sum(gpu[k] != every[k] for k in gpu if k.endswith("input_scale")) > 4, (name, "the mask has no effect on ranges")
    equal, other = same(gpu, host, codes), same(gpu, every, codes)
    a, b = error("gpu." + name), error("host." + name)
    print(name, "equal codes", equal, "without the mask", other, "errors", a, b)
    assert equal > (0.85 if name == "block" else 0.97) and abs(a / b - 1) < 0.03, (name, equal, a, b)
    assert other < equal, (name, equal, other)
P
