# power_loss.sh - tests a loss of power at any moment. record.c records the changes that a run makes
# to the disk. From the record, lose_power.c makes states, which are directories as they may be
# after a power loss. The same command must continue from each state, and give the files of an
# undisturbed run. A power loss does not change synced data, so no state may be refused. STATES is
# the number of states per run. FIRST is the first seed.
set -euo pipefail
states=${STATES:-8} first=${FIRST:-1}
here=$PWD
unset LD_PRELOAD
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
"$OSH_TOOLS/make_model" tiny hidden=128 intermediate=256 heads=2 kv=2 layers=3 vocab=160 samples=3 tokens=16 seed=1
data="--dataset $here/tiny/calibration.jsonl --num-calibration-samples 3 --max-seq-length 16"
declare -A how=( # with a budget, source and output bypass the page cache
    [rtn]="--scheme W4A16 --host-memory 1GB"
    [gptq]="--scheme W4A16 --method gptq $data"
    [disk]="--scheme W4A16 --method gptq $data --mem-opt-level 2"
    # continues from states in which recorded bytes are lost
    [again]="--scheme W4A16 --method gptq $data"
    # starts again from the same states, with --restart
    [restart]="--scheme W4A16 --method gptq $data"
    [over]="--scheme W4A16 --overwrite" # replaces a finished output
)
one() { # arguments: kind of run, flags; runs in the working directory
    timeout -s KILL 60 "$ONESHOT" --model "$here/tiny" ${how[$1]} --ignore lm_head --max-shard-size 200kB --progress none \
        --threads 1 --output out "${@:2}"
}
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
# States are made in memory (/dev/shm) if possible, because a sync takes no time there.
room=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo "$here")/power_loss.XXXXXX")
trap 'rm -rf "$room"' EXIT
fail() {
    echo "$name, $state: $1"
    cat "$here/log"
    rm -rf "$here/failed" && "$OSH_TOOLS/lose_power" "$here/log.$name" $seed "$here/failed" "$here/before.$name"
    exit 1
}
before() { # makes the state of the disk before the run
    case $1 in
    again) # the run has no barriers except the first and the last
        mkdir once && (cd once && RECORD_LOG=$here/log.once LD_PRELOAD=$OSH_TOOLS/record.so one gptq)
        for seed in $(seq 100); do
            rm -rf trial before.again
            "$OSH_TOOLS/lose_power" log.once $seed before.again
            cp -r before.again trial
            (cd trial && one gptq) >trial.log 2>&1
            if grep -q 'recorded tensors are not on the disk' trial.log; then return; fi
        done
        echo "no power loss took recorded bytes" && exit 1
        ;;
    restart) cp -r before.again before.restart ;;
    over) mkdir before.over && (cd before.over && "$ONESHOT" --model "$here/tiny" --scheme W8A16 --ignore lm_head \
        --progress none --output out) ;;
    *) mkdir before.$1 ;;
    esac
}
for name in ${RUNS:-rtn gptq disk again restart over}; do
    before $name >log
    cp -r before.$name plain.$name
    flags=
    [ $name != restart ] || flags=--restart
    (cd plain.$name && RECORD_LOG=$here/log.$name RECORD_HURRY=${HURRY:-1} LD_PRELOAD=$OSH_TOOLS/record.so one $name $flags) >log
    sums plain.$name/out >want.$name
    rm -rf whole && "$OSH_TOOLS/lose_power" log.$name 0 whole before.$name >log
    diff -r plain.$name whole >log || { echo "$name: the record lacks something"; cat log; exit 1; }
    for seed in $(seq $first $((first + states - 1))); do
        rm -rf "$room/now"
        state=$("$OSH_TOOLS/lose_power" log.$name $seed "$room/now" before.$name)
        [ -z "${VERBOSE:-}" ] || echo "$name, $state"
        cd "$room/now"
        code=0
        one $name >"$here/log" 2>&1 || code=$?
        [ $code = 0 ] || fail "exit $code"
        sums out >"$here/got.txt"
        diff -u "$here/want.$name" "$here/got.txt" >"$here/log" || fail "the directory has other files"
        [ "$(ls)" = out ] || fail "$(ls) is left"
        cd "$here"
    done
    echo "$name: $states states of $(($(wc -c <log.$name) / 1024)) KiB of calls, all went on"
done
