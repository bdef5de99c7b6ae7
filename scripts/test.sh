#!/usr/bin/env bash
# test.sh - installs what is missing, builds the presets release and asan, and runs every test that needs no GPU.
# The last line is the sum over both: "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."

bash scripts/install-deps.sh || exit 1
passed=0 failed=0

for preset in release asan; do
    echo "== $preset"
    cmake --preset "$preset" >/dev/null && cmake --build --preset "$preset" -- --quiet || { echo "$preset does not build"; exit 1; }
    junit=build/$preset/ctest.xml
    rm -f "$junit"
    ctest --preset "$preset" -j "$(nproc)" --output-junit "$PWD/$junit" || failed_run=1
    [ -e "$junit" ] || { echo "ctest of $preset left no result"; exit 1; }
    # <testsuite tests="30" failures="1" disabled="0" skipped="2" ...>
    count() { grep -m1 -A8 '<testsuite ' "$junit" | tr '\n\t' '  ' | sed -n "s/.* $1=\"\([0-9]*\)\".*/\1/p"; }
    failed=$((failed + $(count failures)))
    passed=$((passed + $(count tests) - $(count failures) - $(count skipped) - $(count disabled)))
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ -z "${failed_run:-}" ]
