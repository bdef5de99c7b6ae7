# isa.sh - tests --isa, which chooses the instruction set of the program and of its libraries. With
# one instruction set, the bytes must not depend on the number of threads, or on the core type that
# the environment requests from OpenBLAS. `--isa auto` must choose the fastest set of the CPU. All
# sets must give nearly the same perplexity. If the CPU lacks a set, the error must name the set.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
run() { # arguments: output, flags
    out=$1
    shift
    "$ONESHOT" --model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl" \
        --num-calibration-samples 4 --max-seq-length 64 --progress none --output "$out" --overwrite "$@" >/dev/null
    sha256sum "$out/model.safetensors" | cut -d' ' -f1
}
perplexity() { # argument: instruction set
    "$ONESHOT" eval --isa "$1" --model "$model" --dataset "$model/data/evaluation.txt" --max-seq-length 128 \
        --max-windows 8 --progress none | tail -1 | cut -d' ' -f2
}
want=$(perplexity generic)
best=
for isa in generic avx2 avx512 avx512_bf16 amx; do
    if ! base=$(run "$isa" --isa $isa 2>stderr.txt); then
        grep -q -- "--isa $isa: this CPU has $best at most" stderr.txt || { cat stderr.txt; exit 1; }
        echo "$isa: this CPU lacks it"
        continue
    fi
    best=$isa
    for core in Zen Sandybridge Prescott; do # every CPU with AVX2 can run these kernels
        [ "$isa" != generic ] || [ $core = Prescott ] || grep -qw avx2 /proc/cpuinfo || continue
        got=$(OPENBLAS_CORETYPE=$core OPENBLAS_NUM_THREADS=3 OMP_NUM_THREADS=3 run other --isa $isa)
        [ "$got" = "$base" ] || { echo "$isa: OPENBLAS_CORETYPE=$core changes the bytes"; exit 1; }
    done
    got=$(run other --isa $isa --threads 1)
    [ "$got" = "$base" ] || { echo "$isa: threads change the bytes"; exit 1; }
    got=$(perplexity $isa)
    awk -v a="$got" -v b="$want" 'BEGIN { exit !(a > 0.995 * b && a < 1.005 * b) }' ||
        { echo "$isa: perplexity $got, generic $want"; exit 1; }
    echo "$isa: $base perplexity $got"
done
# On Intel CPUs without tiles, bf16 instructions are slower than f32.
if [ "$best" = avx512_bf16 ] && grep -qw GenuineIntel /proc/cpuinfo; then best=avx512; fi
[ "$(run auto)" = "$(run named --isa $best)" ] || { echo "auto is not $best"; exit 1; }
if "$ONESHOT" eval --isa sse9 --model "$model" --dataset x.txt 2>stderr.txt; then exit 1; fi
grep -q "want one of auto|generic|avx2|avx512|avx512_bf16|amx, got 'sse9'" stderr.txt

# Without OpenBLAS, a job without matrix products must work. A job with matrix products must fail
# with a message that names the package to install.
mkdir -p broken
echo "no library" >broken/libopenblas.so.0
LD_LIBRARY_PATH=$PWD/broken "$ONESHOT" --model "$model" --scheme W8A16 --ignore lm_head --output without --overwrite \
    --progress none >/dev/null
if LD_LIBRARY_PATH=$PWD/broken run with 2>stderr.txt; then exit 1; fi
grep -q 'libopenblas.so.0: .*: matrix products need it: install the package libopenblas0' stderr.txt
