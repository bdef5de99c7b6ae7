# replaced.sh - tests what a run does if its output changes under it. The test removes, moves or
# replaces the directory that the run writes, a file in this directory, or the directory with the
# final name. The run must report the change, fail, and leave the new files unchanged. SIGSTOP stops
# the run during the change, so the test does not depend on time.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
job=(--model "$model" --scheme W4A16 --ignore lm_head --max-shard-size 1MB --progress none --threads 1)
one() { "$ONESHOT" "${job[@]}" "$@"; }
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one --output plain >/dev/null
sums plain >want
calls=$(cat calls)
stopped() { # arguments: number of a call, flags; starts a run that stops at this call; sets pid
    INJECT_AT=$1 INJECT_WHAT=stop LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" "${@:2}" >log 2>&1 &
    pid=$!
    while ! grep -q '^State:.T' /proc/$pid/status; do
        kill -0 $pid 2>/dev/null || fail "the run ended before call $1"
        sleep 0.02
    done
}
goes_wrong() { # argument: part of the message; the run must fail with it
    local code=0
    kill -CONT $pid
    wait $pid || code=$?
    [ $code = 1 ] && grep -q "$1" log || fail "exit $code, wanted 1 and '$1'"
}
half=$((calls / 2)) late=$((calls - 4))
finishes() { # runs the same command to its end
    one --output o "$@" >log 2>&1 || fail "the same command fails"
    sums o | diff -u want - || fail "the output differs from that of an undisturbed run"
    rm -r o
}

for at in $half $late; do # $half is before the seal, $late is during the seal
    stopped $at --output o
    rm -r o.oneshot-partial
    goes_wrong 'o.oneshot-partial.* was removed or moved while this run wrote it'
    [ ! -e o ] && [ ! -e o.oneshot-partial ] || fail "the run made the directory again"

    stopped $at --output o # while the run is stopped, another run takes the directory
    rm -r o.oneshot-partial
    INJECT_AT=$half INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one --output o >/dev/null 2>&1 && fail "the run was not killed"
    (cd o.oneshot-partial && sha256sum -- *) >before
    goes_wrong 'o.oneshot-partial was replaced while this run wrote it, by a directory'
    (cd o.oneshot-partial && sha256sum -- *) | diff before - || fail "the directory of the other run was changed"
    finishes

    # replaces the directory by a symbolic link, which the run must not rename
    stopped $at --output o
    mv o.oneshot-partial moved
    ln -s moved o.oneshot-partial
    goes_wrong 'was replaced while this run wrote it, by a symbolic link'
    rm o.oneshot-partial && mv moved o.oneshot-partial
    finishes

    for file in oneshot-journal "$(cd plain && ls model-00002-of-*)"; do
        stopped $at --output o
        cp o.oneshot-partial/$file copy && mv copy o.oneshot-partial/$file
        goes_wrong "o.oneshot-partial/$file was replaced while this run wrote it, by a file"
        [ ! -e o ] || fail "$file: the output has its name"
        rm -r o.oneshot-partial
    done

    # While the run works, another file or directory takes the final name of the output. Tests a run
    # that replaces an output, and a run whose output does not exist yet.
    one --output o >/dev/null
    stopped $at --output o --overwrite
    mv o mine && mkdir o && echo mine >o/file
    goes_wrong 'o was replaced while this run wrote it, by a directory'
    [ "$(cat o/file)" = mine ] && [ ! -e o.oneshot-replaced ] || fail "the directory at the final name was touched"
    rm -r o && mv mine o
    finishes --overwrite
    for kind in directory link file; do
        stopped $at --output o
        mkdir mine && echo mine >mine/file
        case $kind in directory) mv mine o ;; link) ln -s mine o ;; file) mv mine/file o && rmdir mine ;; esac
        goes_wrong 'giving it the name o'
        if [ $kind = file ]; then [ "$(cat o)" = mine ]; else [ "$(cat o/file)" = mine ]; fi || fail "$kind: the run removed it"
        [ $kind != link ] || [ -L o ] || fail "the link is gone"
        rm -rf o mine
        finishes
    done
done

# Another directory gets the final name between the last check and the rename. The run moves it
# back.
INJECT_COUNT=$PWD/renames INJECT_CALLS=rename LD_PRELOAD=$OSH_TOOLS/inject.so one --output o >/dev/null
rm -r o
export INJECT_CALLS=rename
stopped "$(cat renames)" --output o
mv o.oneshot-partial moved && mkdir o.oneshot-partial && echo mine >o.oneshot-partial/file
goes_wrong 'o.oneshot-partial was replaced while this run wrote it, by a directory'
[ ! -e o ] && [ "$(cat o.oneshot-partial/file)" = mine ] || fail "another directory has the name"
rm -r o.oneshot-partial && mv moved o.oneshot-partial
finishes
