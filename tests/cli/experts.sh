# Mixture of experts, two sparse layers behind a dense one: the same bytes under every budget, tier, batch and number of
# threads, and after kill -9; the output verifies and runs; routers stay as they are and stand in ignore.
set -euo pipefail
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/experts.sh"
job=(--model model --recipe recipe.yaml --dataset model/calibration.jsonl)
field() { sed -n "s/^ *\"$2\": \([0-9]*\),*$/\1/p" "$1" | head -1; } # of the plan's JSON
phases() { grep -o '"phases": "[^"]*"' plan.json | sort -u | tr '\n' ' '; }
run() { # flags: prints the checksum
    "$ONESHOT" "${job[@]}" --progress none --output out "$@" >/dev/null || fail "failed: $*"
    sha256sum out/model.safetensors | cut -d' ' -f1
    rm -rf out
}
"$ONESHOT" plan "${job[@]}" --threads 2 --json >plan.json
device=$(field plan.json device_bytes)
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
base=$(run --threads 2)
rounds=0 segments=0
for flags in "--threads 1" "--batch-size 5" "--mem-opt-level 2" "--mem-opt-level 1 --batch-size 3 --prefetch false" \
             "--device-memory $((device * 9 / 10)) --threads 2" "--device-memory $least --threads 2" \
             "--device-memory $least --threads 2 --scratch-compression zstd"; do
    "$ONESHOT" plan "${job[@]}" $flags --json >plan.json || fail "no plan: $flags"
    case $(phases) in *rounds*) rounds=1 ;; esac
    case $(phases) in *group*) segments=1 ;; esac
    [ "$(run $flags)" = "$base" ] || fail "$flags changes the bytes"
done
[ $rounds = 1 ] && [ $segments = 1 ] || fail "no budget led to rounds ($rounds) or to segments ($segments)"
# Linears as targets: each expert's gate and up, and its down, or of any number of experts
"$ONESHOT" plan "${job[@]}" --sequential-targets Linear --json >plan.json
[ "$(grep -c '"name": "model.layers.2.mlp.*_proj",' plan.json)" = 12 ] || fail "experts are not cut: $(grep '"name"' plan.json)"
"$ONESHOT" plan "${job[@]}" --sequential-targets Linear --sequential-targets-per-subgraph 6 --json >plan.json
[ "$(grep -c '"name": "model.layers.2.mlp.*_proj",' plan.json)" -le 3 ] || fail "not six in one: $(grep '"name"' plan.json)"
for per in 3 9; do # experts of several targets in one: a sum of experts is lent from memory, or read from the disk
    several=$(run --sequential-targets Linear --sequential-targets-per-subgraph $per --mem-opt-level 0)
    [ "$(run --sequential-targets Linear --sequential-targets-per-subgraph $per --mem-opt-level 2)" = "$several" ] ||
        fail "$per targets in a subgraph: the tier changes the bytes"
done
"$OSH_TOOLS/make_model" many hidden=128 intermediate=128 heads=4 kv=2 layers=1 vocab=256 samples=4 tokens=48 experts=64 topk=4
many=(--model many --recipe recipe.yaml --dataset many/calibration.jsonl --threads 2)
"$ONESHOT" plan "${many[@]}" --json >plan.json
layer=$(field plan.json device_bytes)
"$ONESHOT" plan "${many[@]}" --sequential-targets Linear --json >plan.json
cut=$(field plan.json device_bytes)
[ $((cut * 8)) -le "$layer" ] || fail "64 experts take $cut bytes, and $layer by layers"
"$ONESHOT" "${many[@]}" --sequential-targets Linear --device-memory "$cut" --mem-opt-level 0 --progress none --output out >/dev/null ||
    fail "$cut bytes are not kept"
rm -r out many
linear=$(run --sequential-targets Linear --threads 2)
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
[ "$(run --sequential-targets Linear --device-memory "$least" --mem-opt-level 2)" = "$linear" ] || fail "Linears under a budget"

# killed at calls that change the disk, in each way of working
for flags in "" "--mem-opt-level 2" "--mem-opt-level 2 --sequential-targets Linear"; do
    want=$base
    case $flags in *Linear*) want=$linear ;; esac
    for at in 9 60 111 162 213; do
        if LD_PRELOAD=$OSH_TOOLS/inject.so INJECT_AT=$at INJECT_WHAT=kill "$ONESHOT" "${job[@]}" --progress none \
            --threads 1 --output out $flags >log 2>&1; then fail "not killed at call $at: $flags"; fi
        [ "$(run $flags --threads 2)" = "$want" ] || fail "killed at call $at ($flags): other bytes"
    done
done

"$ONESHOT" "${job[@]}" --progress none --output out >/dev/null
"$ONESHOT" verify out --model model >/dev/null || fail "verify"
"$ONESHOT" eval --model out --dataset model/calibration.jsonl --max-seq-length 48 --progress none >eval.txt
grep -q '^perplexity [0-9]' eval.txt || fail "no perplexity: $(cat eval.txt)"
tr -d ' \n' <out/config.json | grep -q '"ignore":\["model.layers.1.mlp.gate","model.layers.2.mlp.gate","lm_head"\]' ||
    fail "ignore: $(cat out/config.json)"
grep -q 'model.layers.1.mlp.gate.weight"' out/model.safetensors || fail "no router"
