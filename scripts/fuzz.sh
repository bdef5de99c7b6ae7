#!/usr/bin/env bash
# fuzz.sh - fuzzes all targets, one after the other, for MINUTES minutes in total. The script needs
# clang. Findings are written to build/fuzz/found/<target>. After a fix, the finding becomes a file
# of tests/fuzz/corpus/<target>.
#
#   fuzz.sh MINUTES [TARGET...]      fuzzes all targets, or only those that are named
#   fuzz.sh 30 recipe index          fuzzes the targets `recipe` and `index` for 30 minutes
#
# OSH_FUZZ_SLICE is the time of one target in seconds (default 60) before the next target runs.
# OSH_FUZZ_BUILD names another build directory. build/fuzz/minutes.txt has the minutes so far.
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${1:?"usage: fuzz.sh MINUTES [TARGET...]"}
shift
slice=${OSH_FUZZ_SLICE:-60}
build=$(realpath -m "${OSH_FUZZ_BUILD:-build/fuzz}")
cmake --preset fuzz -B "$build" >/dev/null
targets=("$@")
if [ $# -eq 0 ]; then
    for f in tests/fuzz/fuzz_*.c; do f=${f##*/fuzz_} && targets+=("${f%.c}"); done
fi
nice cmake --build "$build" --target "${targets[@]/#/fuzz_}" -- --quiet

top=$PWD
here=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # several targets write a file for each
                                                       # several targets write a file for each
                                                       # input, which is fast in /dev/shm (in
                                                       # memory)
trap 'rm -rf "$here"' EXIT
end=$(($(date +%s) + minutes * 60))
failed=0
while [ "$(date +%s)" -lt "$end" ]; do
    for t in "${targets[@]}"; do
        found=$build/found/$t work=$build/work/$t
        mkdir -p "$found" "$work"
        start=$(date +%s)
        # libFuzzer writes new inputs to the first directory; the limits, 1 GiB and 20 s, are far
        # more than any input needs.
        if ! (cd "$here" && nice -n 19 "$build/tests/fuzz_$t" -max_total_time="$slice" -timeout=20 \
              -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$found/" \
              "$work" "$top/tests/fuzz/corpus/$t") >"$build/$t.log" 2>&1; then
            failed=1
            echo "$t: found a fault, see $build/$t.log and $found"
        fi
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$t.log")
        echo "$t $(($(date +%s) - start)) s ${runs:-?} runs" >>"$build/slices.txt"
        [ "$(date +%s)" -lt "$end" ] || break
    done
done
awk '{s[$1] += $2; r[$1] += $4} END {for (t in s) printf "%-14s %6.1f min %12d runs\n", t, s[t] / 60, r[t]}' \
    "$build/slices.txt" | sort | tee "$build/minutes.txt"
exit $failed
