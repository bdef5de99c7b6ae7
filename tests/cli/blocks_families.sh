# blocks_families.sh - learns the codes of whole decoder layers. The layers of the tested families
# have special ops: a recurrent state, routers, sinks, heads of two sizes, experts in one tensor.
# Learning must make the error of the quantized layers' outputs smaller than in the first step. The
# output bytes must not depend on threads or batches. A run must work with the smallest device
# memory that the plan names. verify must find no fault.
set -euo pipefail
fail() { echo "$*"; exit 1; }
recipe() { # arguments: name, modifier, keys
    printf 's_stage:\n  s_modifiers:\n    %s:\n      ignore: ["re:.*lm_head"]\n      unit: block\n      batch_size: 2\n      %s\n' "$2" "$3"
    printf '      config_groups:\n        g: {targets: [Linear], weights: {num_bits: 4, type: int, strategy: group, group_size: 8}}\n'
}
recipe au AutoRoundModifier 'iters: 20' >au.yaml
recipe ada AdaRoundModifier 'num_iterations: 20' >ada.yaml
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
check() { # arguments: case, layers
    # builds with sanitizers are slow: they get one family with a state and one with experts
    case "$SANITIZED $1" in
    ' '* | *' mamba2' | *' deepseek_v3') ;;
    *) return 0 ;;
    esac
    "$OSH_TOOLS/tiny_model" "$1" "$1"
    local job=(--model "$1" --dataset "$1/calibration.jsonl") run=(--progress none --output out) least
    for r in au ada; do
        rm -rf out
        "$ONESHOT" "${job[@]}" "${run[@]}" --recipe $r.yaml --threads 1 --log-level debug >log 2>&1 || fail "$1: $(tail -3 log)"
        sed -n 's/^.*output \([0-9.e-]*\) in the last step, \([0-9.e-]*\) in the first$/\1 \2/p' log >losses
        awk -v n="$2" '{ a += $1; b += $2 } END { exit !(NR == n && a < 0.95 * b) }' losses || fail "$1, $r: $(cat losses)"
        "$ONESHOT" verify out --model "$1" >log || fail "$1, $r: $(cat log)"
        sums out >want
        [ $r = au ] || break
        rm -rf out
        "$ONESHOT" "${job[@]}" "${run[@]}" --recipe au.yaml --threads 3 --batch-size 3 >/dev/null 2>&1 || fail "$1: the run with three threads fails"
        sums out | cmp - want || fail "$1: other threads and batches make other bytes"
    done
    # runs with the smallest device memory, and with another number of threads
    least=$("$ONESHOT" plan "${job[@]}" --recipe ada.yaml --threads 3 --json 2>/dev/null |
        sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
    rm -rf out
    "$ONESHOT" "${job[@]}" "${run[@]}" --recipe ada.yaml --threads 3 --mem-opt-level 2 --device-memory "$least" >log 2>&1 ||
        fail "$1: the smallest device memory: $(cat log)"
    sums out | cmp - want || fail "$1: a budget or other threads make other bytes"
    awk -v name="$1" '{ print name, $1, $2 }' losses
}
check gpt_oss 2
check qwen3_next 2
check qwen3_5 2
check qwen3_5_moe 2
check granite_hybrid 3
check granite_hybrid_moe 3
check mamba2 2
check deepseek_v2 2
check deepseek_v3 2
check glm4_moe 2
check gemma4 4
check llama4_two 2
