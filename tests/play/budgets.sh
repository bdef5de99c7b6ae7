# budgets.sh - tests budgets on the emulated GPU. The output must have the same bytes for every
# --device-memory and tier. Some budgets divide a subgraph into rounds (passes that each collect
# some of the Hessians) or into segments (Linears whose weights are loaded together). The smallest
# budget of the plan must be exactly enough. In the first run, host code that accesses GPU memory
# crashes.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=5 tokens=48
job=(--model small --scheme W4A16 --method gptq --ignore lm_head --dataset small/calibration.jsonl --threads 1)
fail() { echo "$*"; exit 1; }
plan() { last_wins "$PLAY" plan "${job[@]}" --json "$@" >plan.json || fail "the plan fails: $*"; }
run() { # arguments: flags; prints the checksum
    last_wins "$PLAY" "${job[@]}" --progress none --output out "$@" >/dev/null || fail "failed: $*"
    sha256sum out/model.safetensors | cut -d' ' -f1
    rm -rf out out.oneshot-partial
}
least_of() { sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json; }
base=$(OSH_PLAY=protect=1 run)
plan
device=$(sed -n '/"memory"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1)
least=$(least_of)
[ "$least" -lt "$device" ] || fail "the smallest budget, $least, is not below $device"
export OSH_PLAY=protect=0
for i in $(seq 24 -1 1); do # finds the largest budget with which a subgraph is processed in rounds
    between=$(((i * device + (40 - i) * least) / 40))
    plan --device-memory $between
    if grep -q 'several rounds' plan.json; then break; fi
done
rounds=0 segments=0
all=("--mem-opt-level 0" "--mem-opt-level 1" "--mem-opt-level 2 --scratch-compression zstd" "--prefetch false"
     "--device-memory 1GB" "--device-memory $(((3 * device + least) / 4))" "--device-memory $between"
     "--device-memory $(((device + 3 * least) / 4))" "--device-memory $least")
if [ "$SANITIZED" ]; then all=("${all[1]}" "${all[6]}" "${all[8]}"); fi # builds with sanitizers are slow
for flags in "${all[@]}"; do
    plan $flags
    case $(grep '"phases"' plan.json) in *rounds*) rounds=1 ;; esac
    case $(grep '"phases"' plan.json) in *group*) segments=1 ;; esac
    [ "$(run $flags)" = "$base" ] || fail "$flags changes the bytes"
done
[ $rounds = 1 ] && [ $segments = 1 ] || fail "no budget led to rounds ($rounds) or to segments ($segments)"
# The job fits on a GPU that has only the memory of the budget, because the arena contains
# everything.
[ "$(OSH_PLAY="protect=0 memory=$least" run --device-memory $least)" = "$base" ] || fail "a GPU of $least bytes"
if "$PLAY" "${job[@]}" --output out --device-memory $((least - 1)) 2>err; then fail "a budget of a byte less than the smallest is not refused"; fi
grep -q 'want at least --device-memory' err || fail "$(cat err)"
