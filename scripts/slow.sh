#!/usr/bin/env bash
# slow.sh - runs the tests of tests/slow (label slow), which scripts/test.sh leaves out: runs that
# are killed, and machines that lose power, at hundreds of moments. They take minutes each.
# Usage: slow.sh [PRESET]     default: release
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" -- --quiet
ctest --test-dir "build/$preset" -L '^slow$' -j "$(nproc)" --output-on-failure
