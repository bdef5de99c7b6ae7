# check_gpu.sh - scripts/check-gpu.sh on a machine without a GPU prints one line, exits with 1 and
# makes nothing; wrong usage is reported.
set -euo pipefail
mkdir bin
printf '#!/bin/sh\nexit 9\n' >bin/nvidia-smi && chmod +x bin/nvidia-smi
export PATH=$PWD/bin:$PATH
code=0
bash "$OSH_SOURCE_DIR/scripts/check-gpu.sh" --out out 2>err || code=$?
[ $code = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'there is no NVIDIA GPU' err && [ ! -e out ]
code=0
bash "$OSH_SOURCE_DIR/scripts/check-gpu.sh" 2>err || code=$?
[ $code = 2 ] && grep -q -- '--out is not given' err
code=0
bash "$OSH_SOURCE_DIR/scripts/check-gpu.sh" --pack carried --build-dir . 2>err || code=$?
[ $code = 1 ] && grep -q 'oneshot is not there: build it first' err
