#!/usr/bin/env bash
# run_script.sh SCRIPT DIR - runs a test of tests/cli or tests/examples in the empty directory DIR.
set -u
script=$1 dir=$2
rm -rf "$dir" && mkdir -p "$dir" && cd "$dir" || exit 1
# SANITIZED=1: the program is built with sanitizers, which are slow and need memory of their own
export OSH_TEST_DIR=$dir SANITIZED=
for program in "${ONESHOT:-}" "${PLAY:-}"; do
    [ -z "$program" ] || ! grep -qE '__[at]san_init' "$program" || SANITIZED=1
done
exec bash "$script"
