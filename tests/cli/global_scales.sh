# global_scales.sh - tests NVFP4's global scales. q, k and v share one global scale, and `gate` and
# `up` share another. Each global scale is computed when its weights are read for the first time. A
# weight that is kept in memory must not be read again for the rounding. Budget, threads and a kill
# may change the amount of kept weights, but no byte of the output.
set -euo pipefail
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
"$OSH_TOOLS/make_model" m hidden=1024 intermediate=2048 heads=8 kv=2 head_dim=128 vocab=512 layers=2 samples=1 tokens=8
sleep 0.2 # waits, because the seal reads a source again if the time of its file is too recent
job=(--model m --scheme NVFP4A16 --ignore lm_head --pipeline datafree)
run() { "$ONESHOT" "${job[@]}" --progress none --output out "$@"; }
sums() { (cd out && sha256sum ./*.safetensors); }
number() { # argument: key; prints the number of this key in plan.json
    sed -n "s/^ *\"$1\": \([0-9]*\),*$/\1/p" plan.json | head -1
}
# arguments: flags. Runs the job with these flags. Sets `n` to the number of bytes that the run
# reads, and `planned` to the number of source bytes that it reads according to the plan.
reads() {
    "$ONESHOT" plan "${job[@]}" "$@" --json >plan.json
    planned=$(number read_bytes)
    rm -rf out
    INJECT_READ=$PWD/n LD_PRELOAD=$OSH_TOOLS/inject.so run "$@" >/dev/null
    n=$(cat n)
}
reads
whole=$planned once=$n
sums >want
"$ONESHOT" verify out --model m >/dev/null || fail "verify reports findings"
reads --prefetch false
twice=$((planned - whole))
[ $twice = $((2 * 2 * (3 * 1024 * 2048 + 1024 * (2 * 1024 + 2 * 256)))) ] || fail "$twice bytes are read twice by plan"
more=$((n - once - twice)) # each thread that opens a shard reads the header again
[ ${more#-} -lt 500000 ] || fail "$n bytes are read where all is read twice, $once where nothing is, $twice more by plan"
sums | cmp - want || fail "--prefetch false: the output has other bytes"
least=$(number host_bytes)
"$ONESHOT" plan "${job[@]}" --json >plan.json
all=$(number host_bytes)
[ "$all" -gt $((least + (8 << 20))) ] || fail "without a budget, the plan needs $all bytes, the smallest budget is $least"
middle=0
tenths="2 4 5 6 7 8 9" shares="3 5 7" threads="1 3"
[ -z "$SANITIZED" ] || tenths=6 shares=3 threads=3 # builds with sanitizers are slow
for share in $shares; do
    budget=$((least + (all - least) * share / 8))
    "$ONESHOT" plan "${job[@]}" --host-memory $budget --json >plan.json
    planned=$(number read_bytes)
    [ "$planned" -gt "$whole" ] && [ "$planned" -lt $((whole + twice)) ] && middle=$((middle + 1))
    rm -rf out
    run --host-memory $budget >/dev/null
    sums | cmp - want || fail "--host-memory $budget: the output has other bytes"
done
[ $middle -gt 0 ] || fail "no budget makes a run hold a part of the tensors"
for threads in $threads; do
    rm -rf out
    run --threads $threads >/dev/null
    sums | cmp - want || fail "--threads $threads: the output has other bytes"
done

# Kills runs at several calls that change the disk. At some of these calls q_proj is already
# written, and k_proj is not.
rm -rf out
calls=$(INJECT_COUNT=$PWD/n LD_PRELOAD=$OSH_TOOLS/inject.so run >/dev/null && cat n)
for tenth in $tenths; do
    rm -rf out out.oneshot-partial
    INJECT_AT=$((calls * tenth / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so run >/dev/null 2>&1 || true
    run >log 2>&1 || fail "killed at $tenth tenths: $(cat log)"
    sums | cmp - want || fail "killed at $tenth tenths: the output has other bytes"
done

# Tests Linears of other schemes in the same model, and an observer that searches for the scale
# before the weights are rounded.
cat >mixed.yaml <<'YAML'
quant_stage:
  quant_modifiers:
    QuantizationModifier:
      ignore: [lm_head]
      config_groups:
        a: {targets: ["re:.*([qkv]|gate|up)_proj"], weights: {num_bits: 4, type: float,
            strategy: tensor_group, group_size: 16, scale_dtype: torch.float8_e4m3fn, zp_dtype: torch.float8_e4m3fn}}
        b: {targets: ["re:.*down_proj"], weights: {num_bits: 8, strategy: channel}}
        c: {targets: ["re:.*o_proj"], weights: {num_bits: 4, type: float, strategy: tensor_group,
            group_size: 16, scale_dtype: torch.float8_e4m3fn, zp_dtype: torch.float8_e4m3fn, observer: mse,
            observer_kwargs: {patience: 20}}}
YAML
job=(--model m --recipe mixed.yaml --pipeline datafree)
rm -rf out
run --prefetch false >/dev/null
sums >want
"$ONESHOT" verify out --model m >/dev/null || fail "mixed: verify reports findings"
rm -rf out
run >/dev/null
sums | cmp - want || fail "mixed: the output has other bytes"

# A value that is not finite is found at the first read of the weights. The source is not changed.
job=(--model m --scheme NVFP4A16 --ignore lm_head --pipeline datafree)
rm -rf out
"$OSH_TOOLS/st_edit" m fill model.layers.1.self_attn.k_proj.weight 2000 2 ff # makes an element NaN
code=0
run >log 2>&1 || code=$?
[ $code = 1 ] && grep -q 'model.layers.1.self_attn.k_proj.weight holds a NaN or an infinity' log || fail "exit $code: $(cat log)"
[ ! -e out ] || fail "there is an output after the error"
