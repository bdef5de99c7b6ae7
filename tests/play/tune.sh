# tune.sh - tests the key `tune` of GPTQModifier on the emulated GPU. (tests/golden/tune compares
# the losses with the host's.) The KL divergence falls. The bytes of the output do not depend on the
# order of the GPU's threads, on threads, batches, tiers, budgets or a kill. The smallest
# --device-memory of the plan is enough, and the memory is predicted. With `--loss-mask answers`,
# the divergences are those of the host. A model with experts is tuned, too.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
fail() { echo "$*"; exit 1; }
recipe() { # arguments: name, scheme, keys of tune
    printf 's_stage:\n  s_modifiers:\n    GPTQModifier: {scheme: %s, ignore: [lm_head], tune: %s}\n' "$2" "$3" >"$1.yaml"
}
check() { # argument: output; the tuned values are kept, and the device memory is predicted
    python3 - "$1" <<'P' || fail "$1: $(grep -A8 '"tuned"' "$1/oneshot-report.json")"
import json, sys
r = json.load(open(sys.argv[1] + "/oneshot-report.json"))
t, peak, predicted = r["tuned"], r["device"]["peak_bytes"], r["device"]["predicted_peak_bytes"]
print("divergence", t["kl_divergence_before"], t["kl_divergence"], "peak", peak, "predicted", predicted)
assert t["kept"] and t["kl_divergence"] < t["kl_divergence_before"]
assert peak <= predicted <= 1.15 * peak
P
}
as_host() { # arguments: output of the GPU, output of the host
    python3 - "$@" <<'P' || fail "$1: the divergences of GPU and host differ by 1 % or more"
import json, sys
gpu, host = (json.load(open(d + "/oneshot-report.json"))["tuned"] for d in sys.argv[1:])
for key in "kl_divergence_before", "kl_divergence":
    print(sys.argv[1], key, gpu[key], host[key])
    assert abs(gpu[key] - host[key]) < 0.01 * host[key]
P
}
# ---- bytes ----
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=4 tokens=30
recipe small W4A16 '{steps: 2, rows: 2, code_rate: 0.001, rate: 0.01}'
sed -i 's/scheme: W4A16/config_groups: {g: {targets: [Linear], weights: {num_bits: 2, symmetric: false, strategy: group, group_size: 64}}}/' small.yaml
job=(--model small --dataset small/calibration.jsonl --threads 1 --progress none --recipe small.yaml)
run() { # arguments: flags; prints the checksum
    last_wins "$PLAY_BATCHES" "${job[@]}" --output out "$@" >/dev/null 2>err || fail "failed: $*: $(cat err)"
    sha256sum <out/model.safetensors
}
base=$(run)
check out
rm -rf out
[ "$(OSH_PLAY="protect=0 order=5 lazy=1" run --threads 2 --batch-size 3 --mem-opt-level 1 --pin-memory false)" = "$base" ] ||
    fail "the order of the GPU's threads, threads, batches or the tier change the bytes"
rm -rf out
if [ -z "$SANITIZED" ]; then
    last_wins "$PLAY_BATCHES" plan "${job[@]}" --json >plan.json || fail "no plan"
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
    export OSH_PLAY="protect=0 memory=$least"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so last_wins "$PLAY_BATCHES" "${job[@]}" --output out \
        --device-memory "$least" --mem-opt-level 2 >/dev/null 2>err || fail "$least bytes: $(cat err)"
    [ "$(sha256sum <out/model.safetensors)" = "$base" ] || fail "$least bytes: other bytes"
    rm -rf out
    for part in 60 97; do
        if INJECT_AT=$(($(cat calls) * part / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
            last_wins "$PLAY_BATCHES" "${job[@]}" --output out --device-memory "$least" --mem-opt-level 2 >/dev/null 2>&1
        then fail "not killed"; fi
        [ "$(run --device-memory "$least" --mem-opt-level 2)" = "$base" ] || fail "killed at $part %: other bytes"
        rm -rf out
    done
    if last_wins "$PLAY_BATCHES" plan "${job[@]}" --device-memory $((least - 1024)) >log 2>&1; then fail "too little memory"; fi
    grep -q -- '--device-memory' log || { cat log; fail "other text"; }
    export OSH_PLAY=protect=0
fi
[ -z "$SANITIZED" ] || exit 0 # builds with sanitizers are slow
# ---- a plan for a GPU that the machine does not have ----
"$ONESHOT" plan "${job[@]}" --device-model h200 >plan.txt || fail "--device-model"
grep -q 'then codes, scales and norms are tuned\|then 2 steps of tuning' plan.txt || { cat plan.txt; fail "the plan does not tune"; }
# ---- a loss mask: only some tokens count. F32: GPU and host quantize to the same codes ----
"$OSH_TOOLS/make_model" f32 f32=1 hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=4 tokens=30
sed 's/steps: 2, rows: 2\(.*\) rate: 0.01/steps: 6, rows: 3\1 rate: 0.003/' small.yaml >f32.yaml
python3 - <<'P'
import json
rows = [json.loads(line) for line in open("f32/calibration.jsonl")]
with open("some.jsonl", "w") as f: # no token of sample 2 counts
    f.writelines(json.dumps(r | {"loss_mask": [int(i != 2 and (i + k) // 5 % 2) for k in range(len(r["input_ids"]))]}) + "\n"
                 for i, r in enumerate(rows))
P
job=(--model f32 --dataset some.jsonl --loss-mask answers --threads 1 --progress none --recipe f32.yaml)
for device in cuda cpu; do
    run --device $device >/dev/null
    mv out mask.$device
done
check mask.cuda
as_host mask.cuda mask.cpu
# ---- experts ----
"$OSH_TOOLS/tiny_model" deepseek_v3 experts
recipe experts W4A16 '{steps: 8, rows: 3, code_rate: 0.001, rate: 0.003}'
sed -i 's/scheme: W4A16/config_groups: {g: {targets: [Linear], weights: {num_bits: 2, symmetric: false, strategy: channel}}}/' experts.yaml
job=(--model experts --recipe experts.yaml --dataset experts/calibration.jsonl --threads 1 --progress none)
for device in cuda cpu; do
    "$PLAY_BATCHES" "${job[@]}" --device $device --output experts.$device >/dev/null 2>err || fail "experts on $device: $(cat err)"
done
check experts.cuda
as_host experts.cuda experts.cpu
