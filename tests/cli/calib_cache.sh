# calib_cache.sh - tests observers that read values twice. Between the two passes the values are
# kept in memory, kept on the disk, compressed, or computed again (--calib-cache). Tests that the
# output bytes do not depend on this option, on the pipeline, tier, batch, budget or a kill. Also
# tests that `auto` chooses the fastest option that the budgets allow, and that all files of the
# cache are removed.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
range='observer: layerwise_percentile, observer_kwargs: {first: 90, second: 99, third: 99.9, bins: 16'
recipe() { # arguments: name, more kwargs, keys
    printf 's_modifiers: {GPTQModifier: {ignore: [lm_head], config_groups: {g: {targets: [Linear], weights: {num_bits: 8, strategy: channel},
        input_activations: {num_bits: 8, dynamic: false, strategy: tensor, %s%s}}}}%s}}\n' "$range" "$2" "${3:-}" >"$1.yaml"
}
recipe linears ', exact: true'
recipe binned ''
recipe caches ', exact: true' ', kv_cache_scheme: {num_bits: 8, strategy: attn_head, observer: min_mse, observer_kwargs: {exact: true, grid: 10}}'
recipe original ', exact: true' ', target: original'
job=(--model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 5 --max-seq-length 64 --progress none)
one() { # arguments: recipe, output, flags
    "$ONESHOT" "${job[@]}" --recipe "$1.yaml" --output "$2" "${@:3}" >/dev/null 2>log || { cat log; fail "failed: $*"; }
}
sum() { sha256sum <"$1/model.safetensors"; }
values() { find . -name '*.values' -o -name 'oneshot-scratch'; }
same() { # arguments: recipe, flags
    one "$1" out "${@:2}"
    [ "$(sum out)" = "$want" ] || fail "the output has other bytes: $*"
    [ -z "$(values)" ] || fail "files are left: $*: $(values)"
    rm -rf out
}
# The second look at the stored values has no values of the original model.
one original plain --calib-cache recompute
want=$(sum plain)
rm -rf plain
same original --calib-cache ram
ways=("--calib-cache disk" "--calib-cache recompute --batch-size 3" "--calib-cache disk --mem-opt-level 2 --scratch-compression zstd --threads 1")
n=0
for how in "caches" "linears --sequential-targets Linear" "linears --pipeline basic" "linears --propagate-error false"; do
    read -r name flags <<<"$how"
    one $name plain $flags --calib-cache ram
    want=$(sum plain)
    rm -rf plain
    if [ $n = 0 ]; then these=("${ways[@]}"); else these=("${ways[n - 1]}"); fi # n = 0: all
    for way in "${these[@]}"; do same $name $flags $way; done
    [ -z "$SANITIZED" ] || break
    n=$((n + 1))
done
one caches plain
want=$(sum plain)
"$ONESHOT" verify plain --model "$model" >log || { cat log; fail verify; }
one linears exact
one binned binned
[ "$(sum exact)" != "$(sum binned)" ] || fail "exact changes no byte: the test cannot fail"

# Under the smallest budget the values must be computed again. With enough scratch space they must
# be stored on the disk.
more=(--model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 64 --max-seq-length 256 --progress none)
plan() { "$ONESHOT" plan --verbose "${more[@]}" --recipe "$@" 2>&1 || true; }
least=$(plan caches.yaml --host-memory 4MiB | sed -n 's/.*want at least --host-memory \([0-9]*MiB\).*/\1/p')
[ -n "$least" ] || fail "no smallest budget: $(plan caches.yaml --host-memory 4MiB)"
plan caches.yaml | grep -q 'read twice: kept in memory' || fail "$(plan caches.yaml)"
plan caches.yaml --host-memory "$least" | grep -q 'read twice: made again' || fail "$least"
plan caches.yaml --host-memory 60MB | grep -q 'read twice: kept on the disk' || fail "with 60 MB, the plan does not keep the values on the disk"
plan caches.yaml --host-memory 60MB --scratch-size 1kB | grep -q 'read twice: made again' || fail "a scratch size of 1 kB is not observed"
plan caches.yaml --calib-cache disk --mem-opt-level 1 | grep -q 'read twice: kept on the disk' || fail "the plan does not keep the values on the disk"
plan caches.yaml --calib-cache disk --mem-opt-level 1 --scratch-size 1kB | grep -q -- '--scratch-size' || fail "a scratch size of 1 kB is not observed"
if plan binned.yaml | grep -q 'read twice'; then fail "the plan reads values twice without need"; fi
same caches --host-memory "$least"

# Tests disk_f16, which stores F32 values as F16. This halves the files and changes the output, but
# the output must still not depend on batch, threads, tier or budget. A run with a value that is too
# large for F16 must fail and name the value. BF16 values must be stored unchanged, with a warning.
"$OSH_TOOLS/make_model" wide f32=1 hidden=64 intermediate=128 heads=2 kv=2 layers=2 vocab=64 samples=6 tokens=32
range='observer: min_mse, observer_kwargs: {grid: 3000, maxshrink: 0.9'
recipe finely ', exact: true'
bf16=("${job[@]}") of_bf16=$want
job=(--model wide --dataset wide/calibration.jsonl --progress none)
one finely f32 --calib-cache disk
one finely f16 --calib-cache disk_f16 --batch-size 1
want=$(sum f16)
[ "$(sum f32)" != "$want" ] || fail "F16 changes no byte: the test cannot fail"
scratch() { plan finely.yaml "$@" --json | sed -n '/"memory"/,/}/s/^ *"scratch_bytes": \([0-9]*\),*$/\1/p' | head -1; }
more=("${job[@]}") all=$(scratch --calib-cache disk --mem-opt-level 1) half=$(scratch --calib-cache disk_f16 --mem-opt-level 1)
# apart from headers, F16 files have half the size of F32 files
[ $((2 * half - all)) -gt 0 ] && [ $((2 * half - all)) -lt 2000 ] || fail "F16 takes $half bytes of $all"
for way in "--batch-size 4 --threads 1" "--mem-opt-level 2 --scratch-compression zstd --num-workers 3" "--device-memory $(
    plan finely.yaml --json | sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')"; do
    same finely --calib-cache disk_f16 $way
done
# sets each weight of a norm to 3.5e9
"$OSH_TOOLS/st_edit" wide fill model.layers.1.post_attention_layernorm.weight 0 256 4f
one finely f32 --calib-cache disk --overwrite
# with layers as targets the values are kept in memory; with Linears as targets they are read again
# from their tier
for way in "" "--sequential-targets Linear"; do
    if "$ONESHOT" "${job[@]}" --recipe finely.yaml --output out --calib-cache disk_f16 $way >/dev/null 2>err; then fail "the value 3e9 is stored as F16"; fi
    grep -q 'token [0-9]*, channel [0-9]*: .* is larger than the largest F16 value (65504): want --calib-cache disk; .*value model.layers.1' err ||
        fail "$way: $(cat err)"
    rm -rf out.oneshot-partial
done
job=("${bf16[@]}") more=("${bf16[@]}") want=$of_bf16
plan linears.yaml --calib-cache disk_f16 | grep -q 'warning: .* are BF16 and have two bytes each' || fail "$(plan linears.yaml --calib-cache disk_f16)"
[ -z "$SANITIZED" ] || exit 0 # under sanitizers, tests/cli/kill.sh tests kills of such runs

# Runs are killed between the two passes, at calls that write the cache to the disk.
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" --recipe caches.yaml --calib-cache disk --threads 1 --output all >/dev/null
for at in 2 3 4; do
    if INJECT_AT=$(($(cat calls) * at / 6)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" --recipe caches.yaml \
        --calib-cache disk --threads 1 --output out >/dev/null 2>&1; then fail "the run was not killed"; fi
    way=(ram disk recompute)
    same caches --calib-cache "${way[at - 2]}"
done
