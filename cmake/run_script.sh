#!/usr/bin/env bash
# run_script.sh SCRIPT DIR - runs a test of tests/cli or tests/examples in the empty directory DIR.
# If SCRIPT.stdout exists, it has the wanted standard output. SCRIPT.exit has the wanted exit code;
# without this file it is 0.
set -u
script=$1 dir=$2
rm -rf "$dir" && mkdir -p "$dir" && cd "$dir" || exit 1
# SANITIZED=1: the program is built with sanitizers, which are slow and need memory of their own
export OSH_TEST_DIR=$dir SANITIZED=
for program in "${ONESHOT:-}" "${PLAY:-}"; do
    [ -z "$program" ] || ! grep -qE '__[at]san_init' "$program" || SANITIZED=1
done
if [ ! -e "$script.stdout" ] && [ ! -e "$script.exit" ]; then exec bash "$script"; fi
bash "$script" >stdout.txt
code=$?
cat stdout.txt
[ $code -eq 77 ] && exit 77
want=0
[ -e "$script.exit" ] && want=$(tr -d '[:space:]' <"$script.exit")
if [ "$code" != "$want" ]; then echo "exit code $code, wanted $want" && exit 1; fi
if [ -e "$script.stdout" ] && ! diff -u "$script.stdout" stdout.txt; then
    echo "standard output differs from $(basename "$script").stdout" && exit 1
fi
