# resume_least.sh - tests that a killed run continues within the smallest --device-memory of the
# plan, on a GPU with exactly this memory. The runs have values on the GPU, subgraphs of three sizes
# and several batches, and are killed at several points.
set -euo pipefail
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=4 vocab=512 samples=5 tokens=40
fail() { echo "$*"; exit 1; }
check() { # arguments: label, twelfths of the run after which it is killed, flags
    name=$1 parts=$2
    shift 2
    job=(--model small --scheme W4A16 --method gptq --ignore lm_head --dataset small/calibration.jsonl --threads 1
         --progress none --output out "$@")
    export OSH_PLAY=protect=0
    "$PLAY_BATCHES" plan "${job[@]}" --json >plan.json || fail "$name: the plan fails"
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
    job+=(--device-memory "$least")
    export OSH_PLAY="protect=0 memory=$least"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$PLAY_BATCHES" "${job[@]}" --log-level info \
        >/dev/null 2>err || fail "$name: the undisturbed run fails: $(cat err)"
    grep "not at their planned addresses" err && fail "$name: blocks were not at their planned addresses"
    want=$(sha256sum <out/model.safetensors)
    rm -rf out
    for part in $parts; do
        if { INJECT_AT=$(($(cat calls) * part / 12)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so \
            "$PLAY_BATCHES" "${job[@]}"; } >/dev/null 2>&1; then fail "$name: the run was not killed"; fi
        "$PLAY_BATCHES" "${job[@]}" --log-level info >/dev/null 2>err || fail "$name, killed at $part/12, with $least bytes: $(cat err)"
        [ "$(sha256sum <out/model.safetensors)" = "$want" ] || fail "$name, killed at $part/12: the output has other bytes"
        grep 'not at their planned addresses' err && fail "$name, killed at $part/12"
        rm -rf out
    done
}
check "Linears, on the GPU" "4 8" --mem-opt-level 0 --sequential-targets Linear
if [ "$SANITIZED" ]; then exit 0; fi # slow with sanitizers, and the other subgraph sizes run the
                                     # same code
check "layers, on the GPU" 8 --mem-opt-level 0
check "two layers at a time" 4 --mem-opt-level 0 --sequential-targets-per-subgraph 2
