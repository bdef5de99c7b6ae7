# original.sh - runs GPTQ with target 'original' on the emulated GPU. The result must differ from
# that of target 'quantized'. The output bytes must be the same with values on the GPU, in host
# memory and on the disk. They must also be the same if a subgraph is divided into rounds (passes
# that each collect some of the Hessians) or segments (Linears whose weights are loaded together).
# The smallest --device-memory of the plan must be exactly enough, even for a run that continues
# after a kill.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=6 tokens=40
fail() { echo "$*"; exit 1; }
cat >original.yaml <<'YAML'
quant_stage:
  quant_modifiers:
    GPTQModifier: {scheme: W4A16, targets: [Linear], ignore: [lm_head], target: original}
YAML
job=(--model small --recipe original.yaml --dataset small/calibration.jsonl --threads 1 --progress none)
export OSH_PLAY=protect=0
run() { # arguments: flags; prints the checksum
    last_wins "$PLAY_BATCHES" "${job[@]}" --output out "$@" >/dev/null 2>err || fail "failed: $*: $(cat err)"
    sha256sum <out/model.safetensors
    rm -rf out out.oneshot-partial
}
figures() { # arguments: flags
    last_wins "$PLAY_BATCHES" plan "${job[@]}" "$@" --json >plan.json || fail "the plan fails: $*"
    device=$(sed -n '/"memory"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1)
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
}
base=$(run --mem-opt-level 0)
printf 'quant_stage:\n  quant_modifiers:\n    GPTQModifier: {scheme: W4A16, targets: [Linear], ignore: [lm_head]}\n' >plain.yaml
[ "$(run --recipe plain.yaml)" != "$base" ] || fail "the target changes nothing"
figures
rounds=0 segments=0
all=("--mem-opt-level 1" "--mem-opt-level 2" "--device-memory $(((3 * device + 7 * least) / 10))"
     "--device-memory $(((2 * device + 3 * least) / 5)) --mem-opt-level 0")
[ -z "$SANITIZED" ] || all=("${all[1]}") # builds with sanitizers are slow
for flags in "${all[@]}"; do
    last_wins "$PLAY_BATCHES" plan "${job[@]}" $flags --json >plan.json || continue
    case $(grep '"phases"' plan.json) in *rounds*) rounds=1 ;; esac
    case $(grep '"phases"' plan.json) in *group*) segments=1 ;; esac
    [ "$(run $flags)" = "$base" ] || fail "$flags changes the bytes"
done
[ "$SANITIZED" ] || [ $((rounds + segments)) -gt 0 ] || fail "no budget led to rounds or to segments"
for flags in "" "--sequential-targets Linear --mem-opt-level 0"; do
    want=$(run $flags)
    figures $flags
    export OSH_PLAY="protect=0 memory=$least"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so last_wins "$PLAY_BATCHES" "${job[@]}" $flags --output out \
        --device-memory "$least" >/dev/null 2>err || fail "$flags, $least bytes: $(cat err)"
    [ "$(sha256sum <out/model.safetensors)" = "$want" ] || fail "$flags, $least bytes: the output has other bytes"
    rm -rf out
    if INJECT_AT=$(($(cat calls) / 2)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so last_wins "$PLAY_BATCHES" "${job[@]}" \
        $flags --output out --device-memory "$least" >/dev/null 2>&1; then fail "$flags: the run was not killed"; fi
    [ "$(run $flags --device-memory "$least" --log-level info)" = "$want" ] || fail "$flags, killed: the output has other bytes"
    ! grep 'not at their planned addresses' err || fail "$flags, killed: blocks were not at their planned addresses"
    export OSH_PLAY=protect=0
    [ -z "$SANITIZED" ] || break
done
