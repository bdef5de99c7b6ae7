# learned.sh - runs AutoRound, AdaRound and AdaQuant by block on the emulated GPU. After one step of
# AutoRound, almost all codes are those of the host; attention rounds at other steps on a GPU, so a
# few signs of gradients differ. After more steps, the loss is near the host's. The output bytes do
# not depend on batches, threads, tiers, budgets or a kill. The smallest --device-memory of the plan
# is enough, and the memory is predicted. Also runs learning by Linear, which the host does.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
recipe() { # arguments: name, modifier, ignored modules, keys
    printf 's_stage:\n  s_modifiers:\n    %sModifier: {scheme: %s}\n' "$2" "$4, ignore: [lm_head$3]" >"$1.yaml"
}
compare() { python3 "$OSH_SOURCE_DIR/tests/tools/equal_codes.py" gpu.$1 host.$1 "$2"; }
# ---- the host's result ----
job=(--model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 40
     --threads 1 --progress none --log-level info)
others=', "re:.*layers.[023]"'
recipe one AutoRound "$others" "W4A16, iters: 1, lr: 0.05, batch_size: 3"
recipe more AutoRound "$others" "W4A16_ASYM, iters: 6, lr: 0.08, batch_size: 4"
pair() { # argument: recipe; sets $losses to the losses of the last and the first step on the GPU and the host
    for where in gpu host; do
        flags=()
        [ $where = gpu ] || flags=(--device cpu)
        last_wins "$PLAY" "${job[@]}" --recipe "$1.yaml" --output $where.$1 "${flags[@]}" >/dev/null 2>$where.log ||
            fail "$1: $(cat $where.log)"
    done
    grep -q '"back_end": "cuda"' gpu.$1/oneshot-manifest.json || fail "$1: the run used no GPU"
    losses=$(sed -n 's/^model.*output \([0-9.e-]*\) in the last step, \([0-9.e-]*\) in the first$/\1 \2/p' gpu.log host.log | tr '\n' ' ')
}
names=one
[ -n "$SANITIZED" ] || names="one more" # builds with sanitizers are slow
for r in $names; do
    pair $r
    echo "$r: losses $losses"
    echo $losses | awk -v r=$r '{ d = $1 - $3; e = $2 - $4; if (d < 0) d = -d; if (e < 0) e = -e
        exit !(NF == 4 && e < 0.005 * $4 && d < 0.05 * $3 && (r == "one" || $1 < 0.95 * $2)) }' || fail "$r: losses $losses"
    "$ONESHOT" verify gpu.$r --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
done
compare one 0.98
# ---- bytes ----
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=4 tokens=30
recipe au AutoRound "" "W4A16, iters: 2, batch_size: 4"
recipe each AdaRound "" "W4A16, num_iterations: 20, target: original, drop_ratio: 0.5"
job=(--model small --dataset small/calibration.jsonl --threads 1 --progress none)
run() { # arguments: recipe, flags; prints the checksum
    last_wins "$PLAY_BATCHES" "${job[@]}" --recipe "$1.yaml" --output out "${@:2}" >/dev/null 2>err ||
        fail "failed: $*: $(cat err)"
    sha256sum <out/model.safetensors
    rm -rf out out.oneshot-partial
}
least_of() { # arguments: recipe, flags
    last_wins "$PLAY_BATCHES" plan "${job[@]}" --recipe "$1.yaml" "${@:2}" --json >plan.json || fail "the plan fails: $*"
    sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json
}
recipes="au each"
[ -z "$SANITIZED" ] || recipes=au
for r in $recipes; do
    base=$(run $r)
    tier="--mem-opt-level 1 --pin-memory false"
    [ $r = au ] || tier="--mem-opt-level 2"
    [ "$(OSH_PLAY="protect=0 order=5 lazy=1" run $r --threads 2 --batch-size 3 $tier)" = "$base" ] ||
        fail "$r: the order of the GPU's threads, threads or $tier change the bytes"
    [ -z "$SANITIZED" ] || break
    for flags in "--mem-opt-level 1" "--mem-opt-level 2"; do
        [ $r = each ] || [ "$(run $r $flags)" = "$base" ] || fail "$r: $flags changes the bytes"
    done
    least=$(least_of $r)
    export OSH_PLAY="protect=0 memory=$least"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so last_wins "$PLAY_BATCHES" "${job[@]}" --recipe $r.yaml \
        --output out --device-memory "$least" >/dev/null 2>err || fail "$r: $least bytes: $(cat err)"
    [ "$(sha256sum <out/model.safetensors)" = "$base" ] || fail "$r: $least bytes: the output has other bytes"
    rm -rf out
    for part in 50 85; do # the kill at 85 % is between the writes of two modules of a block
        [ $r$part != each85 ] && [ $r$part != au50 ] || continue
        if INJECT_AT=$(($(cat calls) * part / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
            last_wins "$PLAY_BATCHES" "${job[@]}" --recipe $r.yaml --output out --device-memory "$least" >/dev/null 2>&1
        then fail "$r: the run was not killed"; fi
        [ "$(run $r --device-memory "$least")" = "$base" ] || fail "$r, killed at $part %: the output has other bytes"
    done
    export OSH_PLAY=protect=0
done
if [ -z "$SANITIZED" ]; then
    "$PLAY" "${job[@]}" --recipe each.yaml --output gpu.each >/dev/null 2>&1 || fail "the run of each.yaml on the GPU fails"
    "$PLAY" "${job[@]}" --recipe each.yaml --output host.each --device cpu >/dev/null 2>&1 || fail "the run of each.yaml on the host fails"
    compare each 0.95
    recipe round AdaRound "" "W4A16, unit: block, num_iterations: 4, batch_size: 4, drop_ratio: 0.5"
    "$PLAY" "${job[@]}" --recipe round.yaml --output gpu.round >/dev/null 2>&1 || fail "the run of round.yaml on the GPU fails"
    "$PLAY" "${job[@]}" --recipe round.yaml --output host.round --device cpu >/dev/null 2>&1 || fail "the run of round.yaml on the host fails"
    compare round 0.95
    # the host learns Linear by Linear, so its instruction set decides codes
    grep -q '"isa": ' gpu.each/oneshot-manifest.json || fail "each: the manifest does not name the instruction set"
    if grep -q '"isa": ' gpu.round/oneshot-manifest.json; then fail "round: the manifest names the instruction set"; fi
    # AdaQuant with biases, with the losses of all samples and with early stop
    "$OSH_TOOLS/tiny_model" opt opt
    job=(--model opt --dataset opt/calibration.jsonl --num-calibration-samples 3 --max-seq-length 12 --threads 1 --progress none)
    printf '%s\n' "s_stage:" "  s_modifiers:" "    AdaQuantModifier:" >quant.yaml
    printf '      %s\n' "ignore: [lm_head]" >>quant.yaml \
        "config_groups: {g: {targets: [Linear], weights: {num_bits: 4, strategy: group, group_size: 8}}}"
    printf '      %s\n' "unit: block" "update_bias: true" "num_iterations: 2" "batch_size: 2" "early_stop: true" \
        "selective_update: true" "lr_adjust: [1.0e-9, 1.0e-4]" >>quant.yaml
    least=$(least_of quant)
    export OSH_PLAY="protect=0 memory=$least"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so last_wins "$PLAY_BATCHES" "${job[@]}" --recipe quant.yaml \
        --output gpu.quant --device-memory "$least" >/dev/null 2>err || fail "quant: $least bytes: $(cat err)"
    "$ONESHOT" verify gpu.quant --model opt >verify.txt || { cat verify.txt; fail "quant: verify fails"; }
    grep -q '"rule": "changed"' gpu.quant/oneshot-manifest.json || fail "no bias is learned"
    for part in 80; do
        if INJECT_AT=$(($(cat calls) * part / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
            last_wins "$PLAY_BATCHES" "${job[@]}" --recipe quant.yaml --output out --device-memory "$least" >/dev/null 2>&1
        then fail "quant: the run was not killed"; fi
        [ "$(run quant --device-memory "$least")" = "$(sha256sum <gpu.quant/model.safetensors)" ] || fail "quant, killed: the output has other bytes"
    done
    export OSH_PLAY=protect=0
    "$PLAY" "${job[@]}" --recipe quant.yaml --output host.quant --device cpu >/dev/null 2>&1 || fail "the run of quant.yaml on the host fails"
    compare quant 0.9
    job=(--model small --dataset small/calibration.jsonl --threads 1 --progress none)
fi
