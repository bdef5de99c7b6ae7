#!/usr/bin/env bash
# schedule.sh - how a job's time would fall with more threads, each on a processor of its own, by simulation of the
# schedule (tests/tools/schedule.c): needs as many processors as there are here, and other work disturbs little.
#
# Usage: scripts/schedule.sh --schedule BINARY --out DIR [options] -- flags of oneshot but --threads, --output, --profile
#   --schedule BINARY    build/release/tests/schedule, which is built with the tests
#   --threads "1 2 4 8 16"
# Prints for each: seconds on one processor, seconds simulated, how many times faster that is and which share of linear,
# seconds of the caller alone, seconds of threads beside the pool; then where the workers of the last one are idle, the
# largest ten.
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
