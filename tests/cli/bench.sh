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
if bash "$OSH_SOURCE_DIR/scripts/bench.sh" --model x 2>stderr; then exit 1; fi
grep -q 'bench.sh: --recipe is not given' stderr
