# original.sh - tests the recipe key `target: original`, whose result must differ from that of
# `target: quantized`. The output bytes must not depend on threads, batch, tier, budget or kills.
# They must also not depend on rounds (passes that each collect some of the Hessians) and segments
# (Linears whose weights are loaded together). A subgraph of a run is a decoder layer, a Linear, or
# several of them. Values that are equal in the original and the quantized model must be stored
# once. A pipeline in which all inputs are those of the original model must be refused.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
RANDOM=7
fail() { echo "$*"; exit 1; }
recipe() { # argument: target
    printf 'quant_stage:\n  quant_modifiers:\n    GPTQModifier: {scheme: W4A16, targets: [Linear], ignore: [lm_head], target: %s}\n' "$1"
}
recipe quantized >quantized.yaml
recipe original >original.yaml
job=(--model "$model" --recipe original.yaml --dataset "$model/data/calibration.jsonl" --num-calibration-samples 6
     --max-seq-length 64 --progress none --threads 2)
# arguments: file with the JSON of a plan, key; prints the number of this key
field() { sed -n "s/^ *\"$2\": \([0-9]*\),*$/\1/p" "$1" | head -1; }
sum() { sha256sum "$1/model.safetensors" | cut -d' ' -f1; }
run() { # arguments: flags; prints the checksum
    last_wins "$ONESHOT" "${job[@]}" --output out "$@" >/dev/null || fail "failed: $*"
    sum out
    rm -rf out out.oneshot-partial
}
"$ONESHOT" plan "${job[@]}" --json >plan.json
base=$(run)
[ "$(run --recipe quantized.yaml)" != "$base" ] || fail "the target changes nothing"
linears=$(run --sequential-targets Linear)
[ "$linears" != "$base" ] || fail "--sequential-targets Linear changes no byte"

rounds=0 segments=0
same() { # arguments: wanted checksum, flags
    local wanted=$1
    shift
    case "${SANITIZED:-0} $*" in 1*threads* | 1*prefetch* | 1*zstd*) return ;; esac # builds with sanitizers are slow
    last_wins "$ONESHOT" plan "${job[@]}" "$@" --json >plan.json || fail "the plan fails: $*"
    ! grep -q '"phases": "[^"]*rounds' plan.json || rounds=1
    ! grep -q '"phases": "[^"]*group' plan.json || segments=1
    [ "$(run "$@")" = "$wanted" ] || fail "$* changes the bytes"
}
device=$(field plan.json device_bytes)
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
same "$base" --threads 3 --batch-size 4
same "$base" --mem-opt-level 2 --scratch-compression zstd --batch-size 3
same "$base" --device-memory $((device * 80 / 100)) --prefetch false
same "$base" --device-memory $(((device + 2 * least) / 3)) --mem-opt-level 2
same "$base" --device-memory "$least"
[ "$SANITIZED" ] || { [ $rounds = 1 ] && [ $segments = 1 ]; } || fail "no budget led to rounds ($rounds) or to segments ($segments)"
if "$ONESHOT" "${job[@]}" --output out --device-memory $((least - 1)) 2>err; then fail "a budget of a byte less than the smallest is not refused"; fi
same "$linears" --sequential-targets Linear --mem-opt-level 2 --threads 1
if "$ONESHOT" "${job[@]}" --output out --host-memory 1MiB 2>err; then fail "1 MiB of host memory is enough"; fi
host=$(sed -n 's/.*want at least --host-memory \([0-9]*MiB\).*/\1/p' err)
[ "$(run --host-memory "$host")" = "$base" ] || fail "--host-memory $host changes the bytes"

# With two layers in a subgraph, the input of the first layer is the same in the original and the
# quantized model.
two=$(run --sequential-targets-per-subgraph 2)
same "$two" --sequential-targets-per-subgraph 2 --device-memory $((device * 70 / 100))

# If the sequential targets are layers, `target: original` of the recipe applies only to q, k and v
# of the layers after the first, and a message says so. If the sequential targets are Linears, it
# applies to all modules.
"$ONESHOT" plan "${job[@]}" 2>&1 >/dev/null | grep -q '9 of 25 modules are compared.*--sequential-targets Linear' ||
    fail "layers: $("$ONESHOT" plan "${job[@]}" 2>&1 >/dev/null)"
[ -z "$("$ONESHOT" plan "${job[@]}" --sequential-targets Linear 2>&1 >/dev/null)" ] || fail "the plan with Linears as targets prints a message"

# The inputs of the first layer are equal in the original and the quantized model, so the statistics
# of this layer are those of target 'quantized'.
"$ONESHOT" plan --verbose "${job[@]}" >plan.txt
last_wins "$ONESHOT" plan --verbose "${job[@]}" --recipe quantized.yaml >other.txt
first() { sed -n 's/^\[  2.*Hessians \([0-9.]* MB\).*/\1/p' "$1"; }
[ -n "$(first plan.txt)" ] && [ "$(first plan.txt)" = "$(first other.txt)" ] || fail "the first layer: $(first plan.txt)"
carrying=$(awk '/live out:.*original/ { n += match($0, /[0-9]+ alike/) ? substr($0, RSTART) + 0 : 1 } END { print n }' plan.txt)
[ "$carrying" = 3 ] || fail "not 3 subgraphs carry the original: $(cat plan.txt)"

# Runs are killed at calls that change the disk. For finished subgraphs, the next run computes the
# values of the original and the quantized model again, or reads these values from the disk.
injected() { LD_PRELOAD=$OSH_TOOLS/inject.so "$@"; }
INJECT_COUNT=$PWD/calls injected last_wins "$ONESHOT" "${job[@]}" --threads 1 --output out >/dev/null
rm -rf out
calls=$(cat calls) resumed=0
tiers=("" "--mem-opt-level 2" "--sequential-targets Linear" "--sequential-targets Linear --mem-opt-level 2")
[ -z "$SANITIZED" ] || tiers=("${tiers[@]:1:2}")
for tier in "${tiers[@]}"; do
    case $tier in *Linear*) wanted=$linears ;; *) wanted=$base ;; esac
    # call at which the run is killed, in percent of the calls of a whole run; resumed runs make
    # fewer calls
    for share in 60 15 30; do
        at=$((calls * share / 100 + RANDOM % 5)) code=0
        INJECT_AT=$at INJECT_WHAT=kill injected last_wins "$ONESHOT" "${job[@]}" --threads 1 --output out $tier >log 2>&1 || code=$?
        [ $code != 0 ] || break
        [ ! -e out.oneshot-partial ] || resumed=$((resumed + 1))
    done
    last_wins "$ONESHOT" "${job[@]}" --output out $tier --log-level info >log 2>&1 || fail "$(cat log)"
    case $tier in *2) grep -q 'are read from the disk' log || fail "$tier: $(cat log)" ;; esac
    [ "$(sum out)" = "$wanted" ] || fail "killed with '$tier': the output has other bytes"
    "$ONESHOT" verify out --model "$model" >log 2>&1 || fail "$(cat log)"
    rm -rf out
done
[ $resumed -ge $((2 * ${#tiers[@]})) ] || fail "only $resumed kills left finished work"

# At 3 bits, the KL divergence of the quantized model from the original model must be smaller with
# target 'original' than with target 'quantized'.
if [ -z "$SANITIZED" ]; then
    for target in quantized original; do
        cat >three.yaml <<YAML
quant_stage:
  quant_modifiers:
    GPTQModifier:
      target: $target
      ignore: [lm_head]
      config_groups: {g: {targets: [Linear], weights: {num_bits: 3, type: int, symmetric: true, strategy: group, group_size: 64}}}
YAML
        last_wins "$ONESHOT" "${job[@]}" --recipe three.yaml --num-calibration-samples 96 --max-seq-length 128 \
            --sequential-targets Linear --output $target >/dev/null
        "$ONESHOT" eval --model $target --reference "$model" --dataset "$model/data/evaluation.txt" \
            --max-seq-length 256 --max-windows 24 --progress none >$target.txt
    done
    kl() { sed -n 's/^kl divergence \([0-9.]*\).*/\1/p' "$1.txt"; }
    echo "KL divergence with 3 bits: $(kl quantized), with the original as target $(kl original)"
    awk -v a="$(kl quantized)" -v b="$(kl original)" 'BEGIN { exit !(b > 0 && b < 0.97 * a) }' || fail "no nearer"
fi

# In the first subgraph of a model with experts, the pass computes the routers of the original and
# the quantized model, but collects the statistics of only one of them.
"$OSH_TOOLS/make_model" mixture hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=64 samples=4 tokens=16 experts=4 topk=2 head_dim=32
sed 's/W4A16/W8A8/' original.yaml >w8.yaml
sums=
for flags in "" "--batch-size 1 --mem-opt-level 2"; do
    last_wins "$ONESHOT" --model mixture --recipe w8.yaml --dataset mixture/calibration.jsonl --threads 1 --progress none \
        --output mixed $flags >/dev/null || fail "no mixture: $flags"
    "$ONESHOT" verify mixed --model mixture >/dev/null || fail "verify of the mixture fails: $flags"
    sums="$sums $(sum mixed)"
    rm -rf mixed
done
set -- $sums
[ "$1" = "$2" ] || fail "another tier changes the bytes of the mixture"

for flags in "--pipeline basic" "--propagate-error false"; do
    code=0
    last_wins "$ONESHOT" "${job[@]}" --output out $flags 2>err || code=$?
    [ $code = 2 ] && grep -q "target 'original'" err && grep -q -- "$flags" err || fail "$flags: $code, $(cat err)"
done
