# bench.sh - tests oneshot bench with text and JSON output; all rates must be positive. Tests that
# scripts/bench.sh prints its tables even if the programs that it compares with oneshot are missing.
# Tests that scripts/quality-table.sh prints one row for each method of each program.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
"$ONESHOT" bench --seconds 0.01 --dir . >text
grep -Eq '^[0-9]+ threads, isa=[a-z0-9_]+ openblas=' text
for what in 'f32 products' 'bf16 products' attention 'memory read' 'memory copy' 'disk read' 'disk write'; do
    grep -q "^$what " text || { echo "no $what"; cat text; exit 1; }
done
# only amx and avx512_bf16 have kernels for pairs of BF16 numbers, and rows for these kernels
if grep -Eq 'isa=(amx|avx512_bf16) ' text; then
    for what in 'q, o' 'k, v' 'gate, up, glu' down 'Hessian of 576' 'Hessian of 1536'; do
        grep -q "^$what " text || { echo "no $what"; cat text; exit 1; }
    done
fi
! grep -Eq ' 0\.0+ G|nan|inf' text || { cat text; exit 1; }
"$ONESHOT" bench --seconds 0.01 --threads 1 --isa generic --json >json
grep -Eq '^\{"threads": 1, "isa": "isa=generic openblas=[0-9.]+/Prescott", "f32_flops": [1-9][0-9.e+]+, ' json
grep -Eq '"attention_flops": [1-9][0-9.e+]+, ' json
if "$ONESHOT" bench --seconds 0.01 --dir nowhere 2>stderr; then exit 1; fi
grep -q 'nowhere: cannot make a file: No such file or directory' stderr
if "$ONESHOT" bench --seconds 0.01 --device cuda:x 2>stderr; then exit 1; fi
grep -q -- '--device cuda:x: want cpu, cuda or cuda:N' stderr
if "$ONESHOT" --version | grep -q 'without CUDA'; then
    if "$ONESHOT" bench --seconds 0.01 --device cuda 2>stderr; then exit 1; fi
    grep -q "this program was built without CUDA: there is no device 'cuda'" stderr
fi
if "$ONESHOT" bench something 2>stderr; then exit 1; fi
grep -q "unexpected argument 'something'" stderr

[ -x /usr/bin/time ] && command -v python3 >/dev/null || exit 0
bash "$OSH_SOURCE_DIR/scripts/bench.sh" --oneshot "$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" \
    --dataset "$model/data/calibration.jsonl" --out out --samples 32 --length 128 --windows 16 --runs 1 --seconds 0.01 \
    --text "$model/data/evaluation.txt" -- --threads 1 >table
grep -Eq '^oneshot +[0-9.]+ +[0-9.]+ +[0-9]+ +1\.00 +1\.00 +[0-9.]+$' table
grep -Eq '^observe +[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9.]+$' table
grep -Eq '^process ' table
grep -Eq '^isa=[^,]*, 1 threads: products at most [0-9.]+ GFLOP/s \([0-9.]+ before, [0-9.]+ after\); processors busy [0-9]+ % of the time$' table

# Small scripts replace the programs with which oneshot is compared. The test checks the arguments
# of these scripts, and their rows in the table.
mkdir -p llama.cpp/build/bin
cat >python <<'PYTHON'
#!/bin/sh
echo "${2:-} ${4##*/}" >>calls
case $2 in
compress | auto_round) [ ! -e broken ] && cp -r "$3" "$4" && chmod -R u+w "$4" ;;
--outtype | text) for to in "$@"; do case $to in *.gguf | *.part) echo made >"$to" ;; esac; done ;;
dense) grep -q made "$5" && grep -q made "$6" && cp -r "$3" "$4" && chmod -R u+w "$4" ;;
*) echo made >"${6:?}" ;;
esac
PYTHON
cat >llama.cpp/build/bin/llama-imatrix <<'SH'
#!/bin/sh
while [ "$1" != -f ]; do shift; done
grep -q made "$2" && [ "$3" = -o ] && echo imatrix >"$4"
SH
printf '#!/bin/sh\n[ "$1" = --imatrix ] && grep -q imatrix "$2" && cp "$3" "$4" && [ "$5" = Q4_K_M ]\n' \
    >llama.cpp/build/bin/llama-quantize
chmod +x python llama.cpp/build/bin/*
emulated() {
    bash "$OSH_SOURCE_DIR/scripts/bench.sh" --oneshot "$ONESHOT" --model "$model" --length 32 --windows 4 --seconds 0.01 \
        --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl" --out peers \
        --text "$model/data/evaluation.txt" --peer-python "$PWD/python" --llama-cpp llama.cpp "$@"
}
emulated --samples 2 --runs 2 >table
names="oneshot llm-compressor llama-imatrix llama-quantize"
for name in $names; do
    grep -Eq "^$name +[0-9.]+( +[0-9.]+){2} +[0-9]+ +[0-9.]+ +[0-9.]+( +[0-9.]+)? *$" table || { cat table; exit 1; }
done
grep -qx 'medians of 2 of 2 turns' table
dense=$(awk '$1 == "dense" { print $2 }' table)
# the scripts that replace llm-compressor and llama-quantize copy the model to their output, so the
# figures are those of the dense model
for name in llm-compressor llama-quantize; do
    [ -n "$dense" ] && [ "$(awk -v n=$name '$1 == n { print $NF }' table)" = "$dense" ] || { cat table; exit 1; }
done

# scripts/bench.sh runs all programs in turns. If a program other than oneshot fails in a later
# turn, the table has the turns that this program finished. The same command then runs only the
# missing turns. A different command runs all turns.
touch broken
if emulated --runs 4 --samples 2 >table 2>stderr; then exit 1; fi
# oneshot's third turn is in the table
grep -qx 'medians of 3 of 4 turns' table || { cat table stderr; exit 1; }
# the table has two turns of llm-compressor
[ "$(awk '$1 == "llm-compressor"' table | wc -w)" = 8 ] || { cat table; exit 1; }
rm broken
first=$(cat peers/oneshot.1.time) && : >calls
emulated --samples 2 --runs 4 >table
grep -qx 'medians of 4 of 4 turns' table && [ "$(cat peers/oneshot.1.time)" = "$first" ]
[ "$(grep -c compress calls)" = 2 ] && ! grep -q text calls || { cat calls; exit 1; }
: >calls
emulated --samples 3 --runs 1 >table
grep -qx 'medians of 1 of 1 turns' table && grep -q text calls || { cat table calls; exit 1; }
if bash "$OSH_SOURCE_DIR/scripts/bench.sh" --model x 2>stderr; then exit 1; fi
grep -q 'bench.sh: --recipe is not given' stderr

# scripts/quality-table.sh has one row for each method. The rows of the scripts that replace the
# other programs have the figures of the dense model, because these scripts copy this model.
table_of() {
    bash "$OSH_SOURCE_DIR/scripts/quality-table.sh" --oneshot "$ONESHOT" --model "$model" --length 32 --windows 4 \
        --dataset "$model/data/calibration.jsonl" --text "$model/data/evaluation.txt" --samples 2 --out quality \
        --peer-python "$PWD/python" "$@"
}
: >calls
table_of --rows "oneshot:rtn llm-compressor:gptq auto-round:autoround-2" >table
dense=$(sed -n 's/^| | dense | \([0-9.]*\) |.*/\1/p' table)
for row in "llm-compressor | gptq" "auto-round | autoround-2"; do
    grep -Eq "^\| ${row/|/\\|} \| $dense \| 0\.0000 \| 100\.0 % \| [0-9.]+ \| [0-9.]+ \| [0-9]+ \|$" table ||
        { cat table; exit 1; }
done
grep -Eq '^\| oneshot \| rtn \| [0-9.]+ \| 0\.0[0-9]*[1-9][0-9]* \| [0-9.]+ % ' table && [ "$(wc -l <table)" = 6 ] ||
    { cat table; exit 1; }
grep -qx 'compress compressed' calls && grep -qx 'auto_round compressed' calls || { cat calls; exit 1; }
# a second run of the job does not repeat finished rows
: >calls
cp table first
table_of --rows "oneshot:rtn llm-compressor:gptq auto-round:autoround-2" >table
cmp table first && [ ! -s calls ] || { cat table calls; exit 1; }
if table_of --rows oneshot:magic 2>stderr; then exit 1; fi
grep -qx "quality-table.sh: --rows: unknown row 'oneshot:magic'" stderr || { cat stderr; exit 1; }
