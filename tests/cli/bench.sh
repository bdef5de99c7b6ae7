# oneshot bench measures something positive, as text and as JSON, and scripts/bench.sh makes its tables without a peer.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
"$ONESHOT" bench --seconds 0.05 --dir . >text
grep -Eq '^[0-9]+ threads, isa=[a-z0-9_]+ openblas=' text
for what in 'f32 products' 'bf16 products' 'memory read' 'memory copy' 'disk read' 'disk write'; do
    grep -q "^$what " text || { echo "no $what"; cat text; exit 1; }
done
! grep -Eq ' 0\.0+ G|nan|inf' text || { cat text; exit 1; }
"$ONESHOT" bench --seconds 0.05 --threads 1 --isa generic --json >json
grep -Eq '^\{"threads": 1, "isa": "isa=generic openblas=[0-9.]+/Prescott", "f32_flops": [1-9][0-9.e+]+, ' json
if "$ONESHOT" bench --seconds 0.01 --dir nowhere 2>stderr; then exit 1; fi
grep -q 'nowhere: cannot make a file: No such file or directory' stderr
if "$ONESHOT" bench --seconds 0.01 --device cuda:x 2>stderr; then exit 1; fi
grep -q -- '--device cuda:x: want cpu, cuda or cuda:N' stderr
if "$ONESHOT" bench something 2>stderr; then exit 1; fi
grep -q "unexpected argument 'something'" stderr

[ -x /usr/bin/time ] && command -v python3 >/dev/null || exit 0
bash "$OSH_SOURCE_DIR/scripts/bench.sh" --oneshot "$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" \
    --dataset "$model/data/calibration.jsonl" --out out --samples 2 --length 32 --runs 1 \
    --text "$model/data/evaluation.txt" -- --threads 1 >table
grep -Eq '^oneshot +[0-9.]+ +[0-9.]+ +[0-9]+ +1\.00 +1\.00 +[0-9.]+$' table
grep -Eq '^observe +[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9.]+$' table
grep -Eq '^process ' table
grep -Eq '^isa=[^,]*, 1 threads: products at most [0-9.]+ GFLOP/s; processors busy [0-9]+ % of the time$' table

# Peers played by scripts: what they are called with, and their lines of the table.
mkdir -p llama.cpp/build/bin
printf '#!/bin/sh\ncp -r "$2" "$3" && chmod -R u+w "$3"\n' >python
printf '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho imatrix >"$2"\n' >llama.cpp/build/bin/llama-imatrix
printf '#!/bin/sh\n[ "$1" = --imatrix ] && grep -q imatrix "$2" && cp "$3" "$4" && [ "$5" = Q4_K_M ]\n' \
    >llama.cpp/build/bin/llama-quantize
chmod +x python llama.cpp/build/bin/*
mkdir peers && echo gguf >peers/model.gguf
bash "$OSH_SOURCE_DIR/scripts/bench.sh" --oneshot "$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" \
    --dataset "$model/data/calibration.jsonl" --out peers --samples 2 --length 32 --runs 2 \
    --text "$model/data/evaluation.txt" --peer-python "$PWD/python" --llama-cpp llama.cpp >table
for name in oneshot llm-compressor llama-imatrix llama-quantize; do
    grep -Eq "^$name +[0-9.]+( +[0-9.]+){2} +[0-9]+ +[0-9.]+ +[0-9.]+( +[0-9.]+)? *$" table || { cat table; exit 1; }
done
dense=$(awk '$1 == "dense" { print $2 }' table)
[ -n "$dense" ] && [ "$(awk '$1 == "llm-compressor" { print $NF }' table)" = "$dense" ] # its output is the model
if bash "$OSH_SOURCE_DIR/scripts/bench.sh" --model x 2>stderr; then exit 1; fi
grep -q 'bench.sh: --recipe is not given' stderr
