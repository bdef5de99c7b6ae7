# host_tier.sh - runs a job on the emulated GPU in many batches, with values in host memory. The
# output must have the bytes of a run with values on the GPU, in every order that the streams allow.
# This must also be true if a block of host memory cannot be page-locked. The run must lock only a
# few blocks. The plan's smallest --device-memory and smallest --host-memory must be exactly enough.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=2 vocab=512 samples=10 tokens=48
job=(--model small --scheme W4A16 --method gptq --ignore lm_head --dataset small/calibration.jsonl --threads 1)
fail() { echo "$*"; exit 1; }
run() { # arguments: options of the emulated GPU, flags; prints the checksum
    knobs=$1
    shift
    OSH_PLAY="protect=0 $knobs" last_wins "$PLAY_BATCHES" "${job[@]}" --progress none --output out "$@" >/dev/null 2>err ||
        fail "failed: $*: $(cat err)"
    sha256sum out/model.safetensors | cut -d' ' -f1
    cp out/oneshot-report.* .
    rm -rf out out.oneshot-partial
}
least_of() { sed -n '/"smallest_budgets"/,/}/s/^ *"'"$1"'": \([0-9]*\),*$/\1/p' plan.json; }
values() { sed -n '/"values": {/,/}/{s/[ ,"]//g;/:[^{]/p}' oneshot-report.json | sort | paste -sd' '; }
want=$(run "" --mem-opt-level 0)
[ "$(run "")" = "$want" ] || fail "--mem-opt-level auto changes the bytes"
[ "$(values)" = "from_device_bytes:0 rest_in:device to_device_bytes:0" ] ||
    fail "values cross the bus although the GPU has room, or the report is wrong: $(values)"
OSH_PLAY=protect=0 last_wins "$PLAY_BATCHES" plan "${job[@]}" --mem-opt-level 1 --json >plan.json
host=$((($(least_of host_bytes) >> 20) + 2))MiB device=$(least_of device_bytes)
same() { # arguments: options of the emulated GPU, flags
    [ "$(run "$@")" = "$want" ] || fail "$*: the output has other bytes"
    [ "${quiet:-1}" = 0 ] || [ ! -s err ] || fail "$*: $(cat err)"
}
same "" --mem-opt-level 1
[[ $(values) =~ ^from_device_bytes:[1-9][0-9]*\ rest_in:host\ to_device_bytes:[1-9] ]] || fail "values in host memory: $(values)"
same "lazy=1" --mem-opt-level 1 --host-memory "$host"
for knobs in "" "order=3 lazy=1"; do same "$knobs memory=$device" --mem-opt-level 1 --device-memory "$device"; done
same "lazy=1" --mem-opt-level 1 --prefetch false

# A value has 8 batches, so the whole run locks 8 blocks and no more.
same "fail=cudaHostRegister:9:2" --mem-opt-level 1
quiet=0
for n in 1 8; do
    same "lazy=1 fail=cudaHostRegister:$n:2" --mem-opt-level 1
    [ "$(grep -c 'cannot be page-locked (out of memory)' err)" = 1 ] || fail "block $n is not locked: $(cat err)"
    grep -q '"pageable_copies": [1-9]' oneshot-report.json && grep -q 'not page-locked' oneshot-report.html ||
        fail "the report does not name copies from memory that is not page-locked"
done
same "fail=cudaHostRegister:1:2" --mem-opt-level 1 --host-memory "$host"
quiet=1
[ -z "$SANITIZED" ] || exit 0 # slow with sanitizers, and the budgets run the same code again

# The plan counts the GPU memory for copies of values. The counted bytes are exactly enough. With
# fewer copies, or none, less memory is enough.
budgets() { # arguments: flags
    job=(--model small --ignore lm_head --dataset small/calibration.jsonl --threads 1 --mem-opt-level 1 "$@")
    want=$(run "" --mem-opt-level 0)
    plan
    all=$(device_of) least=$(least_of device_bytes)
    [ "$(ways)" = 3 ] || fail "$*: values are copied during the work in $(ways) subgraphs"
    for budget in "$all" $(((all + least) / 2)) "$least"; do
        plan --device-memory "$budget"
        [ "$(device_of)" -le "$budget" ] || fail "$*: $budget bytes: the plan takes $(device_of)"
        [ "$budget" != "$least" ] || [ "$(ways)" -lt 3 ] || fail "$*: the smallest budget has room for all ways"
        same "lazy=1 memory=$budget" --device-memory "$budget"
    done
}
plan() { OSH_PLAY=protect=0 last_wins "$PLAY_BATCHES" plan "${job[@]}" --json "$@" >plan.json; }
device_of() { sed -n '/"memory"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1; }
ways() { grep -c '"values_ahead": true' plan.json || true; }
budgets --scheme FP8 --method rtn
