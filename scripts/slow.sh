#!/usr/bin/env bash
# slow.sh - runs the tests of tests/slow (label slow), which scripts/test.sh leaves out. They
# simulate kills and losses of power at hundreds of moments, and take minutes each. If nvcc is
# installed, the script also compiles the kernels for all GPUs and compares their registers, stack
# and shared memory with tests/kernels/budgets.txt.
# Usage: slow.sh [PRESET]     default: release
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" -- --quiet
ctest --test-dir "build/$preset" -L '^slow$' -j "$(nproc)" --output-on-failure
if PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null; then
    cmake --preset release -B build/kernels -D OSH_CUDA=ON >/dev/null
    cmake --build build/kernels --target osh_gpu osh_ops osh_solver -- --quiet
    scripts/kernel_budgets.py build/kernels
fi
