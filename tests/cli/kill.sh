# kill.sh - tests runs that are disturbed: the same command must then make the files of an
# undisturbed run. The disturbances are kill -9 at calls that change the disk; kill -9, SIGTERM and
# SIGINT at random moments; a disk that fails or is full; and a journal that is cut or changed. At
# least KILLS runs (a variable; 50 by default) must be ended by kill -9.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
"$OSH_TOOLS/make_model" small hidden=128 intermediate=256 heads=2 kv=1 layers=4 vocab=512 samples=5 tokens=64
model=small
kills=${KILLS:-50}
few=6 # number of repetitions of each other fault
[ -z "$SANITIZED" ] || few=2
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
RANDOM=42
declare -A how=(
    [gptq]="--scheme W4A16 --method gptq"
    [rtn]="--scheme W4A16 --method rtn"
    [asym]="--scheme W4A16_ASYM --method gptq --sequential-targets Linear --sum-groups 2"
    [int8]="--scheme W8A8 --method gptq --propagate-error false"
    [fp8]="--scheme FP8 --method gptq"
    [basic]="--scheme W8A16 --method gptq --pipeline basic --sum-groups 1"
)
names=(gptq asym gptq int8 rtn fp8 gptq basic)
one() { # arguments: kind of job, output
    last_wins "$ONESHOT" --model "$model" ${how[$1]} --ignore lm_head --dataset "$model/calibration.jsonl" \
        --num-calibration-samples 5 --max-seq-length 64 --max-shard-size 100KB --progress none --threads 1 --output "$2" "${@:3}"
}
injected() { LD_PRELOAD=$OSH_TOOLS/inject.so "$@"; }
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
same() { # arguments: output, wanted checksums, label
    sums "$1" >got.txt
    diff -u "$2" got.txt >diff.txt || { echo "$3: other files than those of a run without"; cat diff.txt; exit 1; }
    [ ! -e "$1.oneshot-partial" ] || { echo "$3: the partial directory is still there"; exit 1; }
}
for name in "${!how[@]}"; do
    INJECT_COUNT=$PWD/calls.$name injected one $name plain.$name >/dev/null
    sums plain.$name >want.$name
done
calls=$(cat calls.gptq)
[ "$calls" -gt 100 ] || { echo "only $calls calls were counted"; exit 1; }

# Kills runs at a call. Each run continues the work of the previous run, with different flags. These
# flags do not change the bytes.
tiers=("" "--mem-opt-level 2" "--mem-opt-level 2" "--mem-opt-level 2 --scratch-compression zstd" "--batch-size 3" "--threads 2")
n=0 chains=0 resumed=0
while [ $n -lt "$kills" ]; do
    method=${names[chains % ${#names[@]}]}
    out=out.$chains
    while :; do
        at=$((RANDOM % (calls * 2 / 3) + 1))
        tier=${tiers[RANDOM % ${#tiers[@]}]}
        if INJECT_AT=$at INJECT_WHAT=kill injected one $method $out $tier >log 2>&1; then break; fi
        n=$((n + 1))
        [ ! -e $out.oneshot-partial ] || resumed=$((resumed + 1))
        [ $n -lt "$kills" ] || { one $method $out >log 2>&1 || { cat log; exit 1; }; break; }
    done
    same $out want.$method "kill -9, chain $chains ($n kills)"
    rm -rf $out
    chains=$((chains + 1))
done
echo "$n kills at calls of the disk, $chains chains, $resumed left work behind"

# Sends SIGKILL, SIGTERM and SIGINT at random moments. A stopped run must print how to continue.
flags=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/calibration.jsonl"
    --num-calibration-samples 5 --max-seq-length 64 --max-shard-size 100KB --progress none --threads 1 --output out)
longest=100 # milliseconds until the signal, at most
[ -z "$SANITIZED" ] || longest=300
moment() { printf '0.%03d' $((RANDOM % longest + 1)); }
stopped=0
for i in $(seq $((kills / 5))); do
    timeout --foreground -s KILL "$(moment)" "$ONESHOT" "${flags[@]}" >log 2>&1 || true
    for sig in TERM INT; do
        code=0
        timeout --preserve-status -s $sig "$(moment)" "$ONESHOT" "${flags[@]}" >log 2>&1 || code=$?
        # any other exit code means that the run had already finished, or did not handle the signal
        # yet
        [ $code = 1 ] || continue
        grep -q '^oneshot: interrupted' log || { cat log; exit 1; }
        [ ! -e out.oneshot-partial ] || grep -q '^hint: the same command continues from out.oneshot-partial' log
        stopped=$((stopped + 1))
    done
    one gptq out >log 2>&1 || { cat log; exit 1; }
    same out want.gptq "killed and stopped at random moments"
    rm -rf out
done
echo "$((kills / 5)) kills at random moments, $stopped runs stopped by SIGTERM and SIGINT"

# The disk fails or becomes full at a random call, and remains in this state. The message must name
# the fault. The same command must succeed when the disk works again.
errors=0
for what in EIO ENOSPC; do
    for i in $(seq $few); do
        at=$((RANDOM % (calls * 9 / 10) + 1)) code=0
        INJECT_AT=$at INJECT_WHAT=$what injected one gptq out >log 2>&1 || code=$?
        [ $code = 1 ] || { echo "exit $code with $what at call $at"; cat log; exit 1; }
        grep -qE 'Input/output error|No space left on device' log || { echo "$what at call $at is not named"; cat log; exit 1; }
        one gptq out >log 2>&1 || { echo "after $what at call $at"; cat log; exit 1; }
        same out want.gptq "$what at call $at"
        rm -rf out
        errors=$((errors + 1))
    done
done
# the first call of the kind $call, and all calls after it, fail
for call in pwrite fsync fdatasync rename fallocate mkdir; do
    code=0
    INJECT_CALLS=$call INJECT_AT=1 INJECT_WHAT=EIO injected one gptq out >log 2>&1 || code=$?
    [ $code = 1 ] && grep -q 'Input/output error' log || { echo "EIO of $call: exit $code"; cat log; exit 1; }
    one gptq out >log 2>&1 || { echo "after EIO of $call"; cat log; exit 1; }
    same out want.gptq "EIO of $call"
    rm -rf out
done
echo "$errors runs on a failing disk"

# Cuts the journal, changes a byte of the journal, or changes a byte of a shard.
leave() { # makes a partial directory with some work in it
    rm -rf out out.oneshot-partial
    INJECT_AT=$((calls * 3 / 5)) INJECT_WHAT=kill injected one gptq out "$@" >/dev/null 2>&1 || true
    [ -e out.oneshot-partial/oneshot-journal ]
}
flip() { # arguments: file, offset
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    printf "\\x$(printf %02x $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
for i in $(seq $few); do
    leave
    size=$(stat -c %s out.oneshot-partial/oneshot-journal)
    # the first 8 bytes stay, because they mark the file as a journal (foreign.sh tests other files)
    at=$((8 + RANDOM % (size - 8)))
    if [ $((i % 2)) = 0 ]; then truncate -s $at out.oneshot-partial/oneshot-journal
    else flip out.oneshot-partial/oneshot-journal $at; fi
    one gptq out >log 2>&1 || { cat log; exit 1; }
    same out want.gptq "a damaged journal"
done
# If a damaged tensor was written after the last barrier, the next run makes it again. If it was
# written before the last barrier, the next run fails, and the run after the failed run makes it
# again.
caught=0 remade=0
for shard in plain.gptq/model-*.safetensors; do
    leave
    [ $((caught + remade)) = 0 ] || { INJECT_AT=20 INJECT_WHAT=kill injected one gptq out >/dev/null 2>&1 || true; }
    file=out.oneshot-partial/${shard#*/}
    begin=$((8 + $(od -An -tu8 -N8 "$file"))) # the tensors begin after the header
    size=$(($(stat -c %s "$file") - begin))
    for part in 5 15 40 60 75; do flip "$file" $((begin + size * part / 100)); done
    for again in 1 2 3 4 5 6; do
        if one gptq out >log 2>&1; then break; fi
        grep -q 'the bytes on the disk differ from the written bytes' log || { cat log; exit 1; }
        caught=$((caught + 1))
    done
    grep -q 'recorded tensors are not on the disk' log && remade=$((remade + 1))
    same out want.gptq "a changed shard"
done
[ "$caught" -gt 0 ] && [ "$remade" -gt 0 ] || { echo "changed tensors: $caught errors, $remade remade"; exit 1; }
echo "$caught changed tensors found"
# If the header or the length of a shard is changed, the run continues only with --restart.
leave
file=out.oneshot-partial/$(basename "$shard")
flip "$file" 20
if one gptq out 2>log; then echo "a changed header is taken"; exit 1; fi
grep -q 'differs from the header that the first run wrote: want --restart' log || { cat log; exit 1; }
flip "$file" 20
truncate -s -1 "$file"
if one gptq out 2>log; then echo "a shorter shard is taken"; exit 1; fi
grep -q 'bytes, but the first run of this output wrote .*: want --restart' log || { cat log; exit 1; }
rm "$file"
if one gptq out 2>log; then echo "a lost shard is taken"; exit 1; fi
grep -q 'does not exist, but the first run of this output wrote it: want --restart' log || { cat log; exit 1; }
if grep -q 'the same command continues' log; then cat log; exit 1; fi
one gptq out --restart >log 2>&1 || { cat log; exit 1; }
same out want.gptq "restarted"
rm -rf out

# The next run does not observe or solve finished layers again. If values are in memory, it computes
# the outputs of finished layers. If values are on the disk, it skips finished layers.
steps() { sed -n 's/^- step: "\(.*\) Start"$/\1/p' profile.yaml; }
leave
one gptq out --profile profile.yaml >log 2>&1 || { cat log; exit 1; }
steps >steps.txt
! grep -qE '(observe|solve) model.layers.0$' steps.txt && grep -q 'propagate model.layers.0$' steps.txt &&
    grep -q 'solve model.layers.3$' steps.txt || { echo "resumed in memory:"; cat steps.txt; exit 1; }
rm -rf out
leave --mem-opt-level 2
one gptq out --mem-opt-level 2 --profile profile.yaml >log 2>&1 || { cat log; exit 1; }
steps >steps.txt
! grep -q ' model.layers.0$' steps.txt && grep -q 'solve model.layers.3$' steps.txt ||
    { echo "resumed from the disk tier:"; cat steps.txt; exit 1; }
same out want.gptq "resumed from the disk tier"

# Only one process at a time may write an output. A run continues only if all inputs that affect the
# bytes are the same. Other inputs may differ.
leave
code=0
flock out.oneshot-partial/oneshot-journal "$ONESHOT" "${flags[@]}" >log 2>&1 || code=$?
[ $code = 2 ] && grep -q 'another process is writing it' log || { echo "two processes: exit $code"; cat log; exit 1; }
refused() { # arguments: named field, flags
    code=0
    one gptq out "${@:2}" >log 2>&1 || code=$?
    [ $code = 2 ] && grep -q "was begun by another run: $1 is" log || { echo "$1: exit $code"; cat log; exit 1; }
}
refused data --num-calibration-samples 4
refused recipe --ignore re:.*down_proj
refused max_shard_size --max-shard-size 2MB
refused sequential_targets --sequential-targets Linear
refused propagate_error --propagate-error false
refused pipeline --pipeline basic
refused arithmetic --arithmetic f32
refused isa --isa generic
refused 'template [a-z0-9_]*.json' --models-dir "$OSH_SOURCE_DIR/models"
one gptq out --threads 2 --batch-size 3 --log-level info >log 2>&1 || { cat log; exit 1; }
done=$(sed -n 's/.*continuing from out.oneshot-partial: \([0-9]*\) of 28 modules are done.*/\1/p' log)
[ "${done:-0}" -gt 3 ] && [ "$done" -lt 28 ] || { echo "${done:-0} modules were taken up"; cat log; exit 1; }
same out want.gptq "other threads and batch size"
one gptq out >log && grep -q 'is finished' log
leave
one gptq out --num-calibration-samples 4 --restart >/dev/null
[ ! -e out.oneshot-partial ] && ! one gptq out 2>log && grep -q 'holds a finished checkpoint.*of this run data is' log

# The process is killed while an output is being replaced.
step=2
[ -z "$SANITIZED" ] || step=6
for at in 60 $(seq $((calls - 6)) $step $((calls + 12))); do
    rm -rf out
    one gptq out --num-calibration-samples 4 >/dev/null
    INJECT_AT=$at INJECT_WHAT=kill injected one gptq out --overwrite >/dev/null 2>&1 || true
    one gptq out --overwrite >log 2>&1 || { cat log; exit 1; }
    same out want.gptq "replaced, killed at call $at"
    [ ! -e out.oneshot-replaced ] || { echo "the old output is still there"; exit 1; }
done
