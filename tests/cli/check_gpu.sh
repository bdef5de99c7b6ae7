# check_gpu.sh - runs scripts/check-gpu.sh without a GPU. The script prints one line, exits with 1
# and makes no file. It reports wrong usage.
set -euo pipefail
mkdir bin
printf '#!/bin/sh\nexit 9\n' >bin/nvidia-smi && chmod +x bin/nvidia-smi
export PATH=$PWD/bin:$PATH
code=0
bash "$OSH_SOURCE_DIR/scripts/check-gpu.sh" --out out 2>err || code=$?
[ $code = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'this machine has no NVIDIA GPU' err && [ ! -e out ]
code=0
bash "$OSH_SOURCE_DIR/scripts/check-gpu.sh" 2>err || code=$?
[ $code = 2 ] && grep -q -- '--out is not given' err
code=0
bash "$OSH_SOURCE_DIR/scripts/check-gpu.sh" --pack carried --build-dir . 2>err || code=$?
[ $code = 1 ] && grep -q 'oneshot does not exist: build the target gpu_programs first' err

# --pack refuses a file of more than 25 MB. The test calls --pack for a build without CUDA, which
# has files with the same names as a build with CUDA.
scripts=$OSH_SOURCE_DIR/scripts build=$(dirname "$OSH_TOOLS")
if [ -e "$build/tests/gpu_ops" ]; then
    bash "$scripts/check-gpu.sh" --pack gpu.tzst --build-dir "$build"
    [ "$(stat -c %s gpu.tzst)" -le 25000000 ]
fi
mkdir -p own/tests && cp "$OSH_TOOLS/make_model" own/oneshot
for name in make_model tiny_model gpu_ops inject.so; do cp "$OSH_TOOLS/make_model" own/tests/$name; done
for file in "$OSH_SOURCE_DIR"/tests/kernels/test_*.cu; do cp "$OSH_TOOLS/make_model" "own/tests/cuda_$(basename "$file" .cu)"; done
for file in $(grep -l 'on_gpu\.h' "$OSH_SOURCE_DIR"/tests/kernels/test_*.c "$OSH_SOURCE_DIR"/tests/golden/*/test_*.c); do
    cp "$OSH_TOOLS/make_model" "own/tests/$(basename "$file" .c)"
done
echo 'CMAKE_HOME_DIRECTORY:INTERNAL=/nowhere' >own/CMakeCache.txt
code=0
bash "$scripts/check-gpu.sh" --pack gpu.tzst --build-dir own --most 1000 2>err || code=$?
[ $code = 1 ] && grep -q 'gpu.tzst has [0-9]* bytes, wanted at most 1000' err
