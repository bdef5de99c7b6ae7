#!/usr/bin/env bash
# test.sh - installs missing packages, builds, and runs every test that needs no GPU, except those
# of scripts/slow.sh. The last line is "N passed, N failed", the sum over all presets.
# Usage: test.sh [PRESET...] [-- OPTION...]     default: release; .ci/run gives release and asan
# The options are ctest's: test.sh release -- -R cli_packages
set -uo pipefail
cd "$(dirname "$0")/.."

bash scripts/install-deps.sh || exit 1
passed=0 failed=0

presets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do presets+=("$1"); shift; done
[ $# -eq 0 ] || shift
for preset in "${presets[@]:-release}"; do
    echo "== $preset"
    new=() # for a new build directory: only the targets that the tests need
    [ -e "build/$preset/CMakeCache.txt" ] || new=(--no-warn-unused-cli -DOSH_DEBUG_INFO=-g1 -DCMAKE_CUDA_ARCHITECTURES=80-real)
    cmake --preset "$preset" ${new[@]+"${new[@]}"} >/dev/null &&
        cmake --build --preset "$preset" -- --quiet || { echo "$preset does not build"; exit 1; }
    junit=build/$preset/ctest.xml
    rm -f "$junit"
    # runs one more test at a time than there are processors: some tests wait for the disk or for
    # other processes
    ctest --preset "$preset" -j $(($(nproc) + 1)) --output-junit "$PWD/$junit" "$@" || failed_run=1
    [ -e "$junit" ] || { echo "ctest --preset $preset wrote no result file"; exit 1; }
    # a line of the JUnit file: <testsuite tests="30" failures="1" disabled="0" skipped="2" ...>
    count() { grep -m1 -A8 '<testsuite ' "$junit" | tr '\n\t' '  ' | sed -n "s/.* $1=\"\([0-9]*\)\".*/\1/p"; }
    failed=$((failed + $(count failures)))
    passed=$((passed + $(count tests) - $(count failures) - $(count skipped) - $(count disabled)))
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ -z "${failed_run:-}" ]
