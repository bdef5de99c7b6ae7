# calib_cache.sh - runs observers that read values twice on the emulated GPU. The values are
# computed twice, or kept in host memory, on the disk, or on the disk as F16 (--calib-cache). The
# output bytes do not depend on this option (except disk_f16), on the tier, on budgets, on a mask of
# ones or on a kill. The smallest budgets of the plan are enough. Experts that get only their own
# tokens allow only recompute.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
fail() { echo "$*"; [ ! -e err ] || cat err; exit 1; }
"$OSH_TOOLS/make_model" f32 f32=1 hidden=64 intermediate=128 heads=2 kv=2 layers=2 vocab=64 samples=6 tokens=32
observer() { echo "observer: min_mse, observer_kwargs: {exact: true, grid: $1, maxshrink: 0.9}"; }
group() { # arguments: targets, grid
    echo "{targets: [$1], weights: {num_bits: 8, strategy: channel},
        input_activations: {num_bits: 8, dynamic: false, strategy: tensor, $(observer $2)}}"
}
# only one observer searches finely, to see the difference of F16
echo "s_modifiers: {GPTQModifier: {ignore: [lm_head], kv_cache_scheme: {num_bits: 8, strategy: attn_head, $(observer 50)},
    config_groups: {a: $(group "'re:.*1.self_attn.o_proj'" 3000), b: $(group Linear 50)}}}" >twice.yaml
job=(--model f32 --recipe twice.yaml --dataset f32/calibration.jsonl --threads 1)
one() { # arguments: output, flags
    last_wins "$PLAY_BATCHES" "${job[@]}" --progress none --output "$@" >/dev/null 2>err
}
sum() { sha256sum <"$1/model.safetensors"; }
budget() { # arguments: device or host, flags; prints the smallest budget in bytes
    last_wins "$PLAY_BATCHES" plan "${job[@]}" "${@:2}" --json | sed -n '/"smallest_budgets"/,/}/s/^ *"'"$1"'_bytes": \([0-9]*\),*$/\1/p'
}
one again || fail "recompute"
grep -q '"back_end": "cuda"' again/oneshot-manifest.json || fail "not on the GPU"
grep -q '"calib_cache": "recompute"' <("$PLAY_BATCHES" plan "${job[@]}" --json) || fail "auto is not recompute"
for cache in ram disk disk_f16; do
    flags=(--calib-cache $cache)
    want=$(sum again)
    [ $cache != disk_f16 ] || { one f16 "${flags[@]}" || fail "$cache"; want=$(sum f16); }
    same() { # arguments: what, flags
        one other "${flags[@]}" "${@:2}" || fail "$cache, $1"
        [ "$(sum other)" = "$want" ] || fail "$cache, $1: other bytes"
        python3 - "$cache, $1" <<'P' || fail "$cache, $1: memory"
import json, sys
r = json.load(open("other/oneshot-report.json"))
m, d = r["memory"], r["device"]
assert m["allocated_peak_bytes"] <= m["predicted_peak_bytes"], (sys.argv[1], m)
assert d["peak_bytes"] <= d["predicted_peak_bytes"] <= 1.15 * d["peak_bytes"], (sys.argv[1], d)
P
        rm -rf other
        [ -z "$(find . -name '*.values' -o -name 'oneshot-scratch')" ] || fail "files are left"
    }
    least=$(budget device "${flags[@]}") least_host=$(budget host "${flags[@]}")
    host=(--host-memory "$least_host")
    [ -z "$SANITIZED" ] || host=() # the plan does not count the memory of a sanitizer
    OSH_PLAY="protect=0 memory=$least order=5 lazy=1" INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so \
        same "least memory" --device-memory "$least" "${host[@]}"
    [ -z "$SANITIZED" ] || continue # builds with sanitizers are slow
    same "values on the disk" --mem-opt-level 2 --threads 2 --scratch-compression zstd
    [ $cache = disk ] || continue
    if INJECT_AT=$(($(cat calls) * 5 / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one other "${flags[@]}" \
        --device-memory "$least" "${host[@]}"; then fail "not killed"; fi
    flags=(--calib-cache ram)
    same "a killed run"
done
# the second look at the stored values has no values of the original model
sed 's/ignore: \[lm_head\],/& target: original,/; s/ kv_cache_scheme:.*$//' twice.yaml >original.yaml
job=(--model f32 --recipe original.yaml --dataset f32/calibration.jsonl --threads 1)
one original || fail "target: original"
one other --calib-cache ram || fail "target: original with stored values"
[ "$(sum other)" = "$(sum original)" ] || fail "target: original: stored values change the bytes"
rm -rf other original
job=(--model f32 --recipe twice.yaml --dataset f32/calibration.jsonl --threads 1)
[ -z "$SANITIZED" ] || exit 0
[ "$want" != "$(sum again)" ] || fail "F16 changes no byte: the test cannot fail"
one host --device cpu || fail "on the host"
python3 - <<'P'
import json
rows = [json.loads(line) for line in open("f32/calibration.jsonl")]
for name, keep in ("ones", lambda k: 1), ("some", lambda k: k // 5 % 2):
    with open(name + ".jsonl", "w") as f:
        f.writelines(json.dumps(r | {"loss_mask": [keep(k) for k in range(len(r["input_ids"]))]}) + "\n" for r in rows)
P
job+=(--dataset ones.jsonl --loss-mask answers)
one ones --calib-cache ram || fail "a mask of ones"
[ "$(sum ones)" = "$(sum again)" ] || fail "a mask of ones: other bytes"
job+=(--dataset some.jsonl)
one some || fail "a mask"
least=$(budget device --calib-cache ram) host=(--host-memory "$(budget host --calib-cache ram)")
one kept --calib-cache ram --device-memory "$least" "${host[@]}" || fail "a mask, kept values"
[ "$(sum some)" = "$(sum kept)" ] && [ "$(sum some)" != "$(sum ones)" ] || fail "a mask: other bytes"
"$OSH_TOOLS/make_model" experts hidden=64 intermediate=32 heads=2 kv=2 layers=2 vocab=128 samples=6 tokens=30 experts=4 topk=2 \
    head_dim=32 dense=1
job=(--model experts --recipe twice.yaml --dataset experts/calibration.jsonl --moe-calibrate-all-experts false --device cuda)
if one no --calib-cache ram; then fail "values of experts are stored"; fi
grep -qF -- "--calib-cache ram with --moe-calibrate-all-experts false is not supported on a GPU in this version: want --device cpu" err ||
    fail "another message"
