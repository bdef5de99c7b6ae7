#!/usr/bin/env bash
# run_example.sh SCRIPT DIR - runs the example SCRIPT in the empty directory DIR. The last line of
# the example's standard output must agree with the comment "# Last line: ..." in SCRIPT. Words must
# be equal. Numbers may differ by 0.3 %, because processors sum in different orders.
set -u
script=$1 dir=$2
rm -rf "$dir" && mkdir -p "$dir" && cd "$dir" || exit 1
want=$(sed -n 's/^# Last line: //p' "$script")
[ -n "$want" ] || { echo "$script promises no last line"; exit 1; }
bash "$script" >stdout.txt || { echo "exit code $?"; cat stdout.txt; exit 1; }
cat stdout.txt
awk -v want="$want" '
    { got = $0 }
    END {
        n = split(want, w, " ")
        bad = split(got, g, " ") != n
        for (i = 1; i <= n && !bad; i++) {
            number = w[i] ~ /^[0-9.]+$/ && g[i] ~ /^[0-9.]+$/
            bad = number ? (g[i] - w[i]) ^ 2 > (0.003 * w[i]) ^ 2 : g[i] != w[i]
        }
        if (bad) printf "last line is \"%s\", wanted \"%s\"\n", got, want
        exit bad
    }' stdout.txt
