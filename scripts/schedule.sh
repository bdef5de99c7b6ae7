#!/usr/bin/env bash
# schedule.sh - simulates the time of a job with several threads, each on its own processor
# (tests/tools/schedule.c). This machine may have fewer processors than threads. Other work on the
# machine hardly changes the result.
#
# Usage: scripts/schedule.sh --schedule BINARY --out DIR [options] -- flags of oneshot, without
#                            --threads, --output and --profile
#   --schedule BINARY    build/release/tests/schedule, which is built with the tests
#   --threads "1 2 4 8 16"
# Prints a row for each number of threads. The first columns are: seconds on one processor,
# simulated seconds, the speed-up, and the speed-up divided by the number of threads. The last two
# are the seconds in which only the calling thread works, and the seconds of threads outside the
# pool. Then prints the ten largest idle times of the workers for the last number of threads.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
schedule= out= threads="1 2 4 8 16"
. "$here/options.sh"
options "schedule out threads" "$@"
needed schedule out
mkdir -p "$out"
printf '%7s %9s %9s %7s %7s %7s %7s\n' threads busy took times linear alone others
for n in $threads; do
    "$schedule" "$out/$n.txt" ${flags[@]+"${flags[@]}"} --threads "$n" --output "$out/compressed" --overwrite \
        --progress none --profile "$out/profile.yaml" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
    awk -v n="$n" '
        $1 == "total" { busy = $5; alone = $6; took = $7 }
        $1 == "others" { others = $2 }
        END { printf "%7d %9.3f %9.3f %7.2f %7.2f %7.3f %7.3f\n", n, busy, took, busy / took, busy / took / n, alone, others }
    ' "$out/$n.txt"
done
echo
printf '%-10s %-24s %9s %9s %9s\n' phase function busy took idle
nm "$schedule" | awk -v file="$out/$n.txt" '
    { sub(/^0+/, "", $1); name["0x" $1] = $3 }
    END {
        while ((getline line <file) > 0) {
            split(line, f, " ")
            if (f[1] == "total" || f[1] == "others") continue
            if (f[2] == "0") printf "%-10s %-24s %9.3f %9.3f %9.3f\n", f[1], "the caller alone", f[6], f[6], f[6] * ('"$n"' - 1)
            else printf "%-10s %-24s %9.3f %9.3f %9.3f\n", f[1], name[f[2]], f[5], f[7], f[8]
        }
    }' | sort -k 1,1 -k 2,2 | awk '{ print $NF, $0 }' | sort -rn | head -n 10 | cut -d ' ' -f 2-
