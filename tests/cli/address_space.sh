# address_space.sh - tests a limit on the address space (ulimit -v). With a small limit, OpenBLAS
# would try to allocate its buffers again and again. The program must exit, and the message must
# name the address space that it needs. With this much address space it must work.
set -euo pipefail
fail() { echo "$*"; exit 1; }
[ -z "$SANITIZED" ] || { echo "a sanitizer maps terabytes"; exit 77; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
limited() { # arguments: KiB, flags; output goes to log; a run that hangs is killed (137)
    (ulimit -v "$1" && shift && exec timeout -s KILL 120 "$ONESHOT" "$@") >log 2>&1
}
compress=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl"
          --num-calibration-samples 2 --max-seq-length 32 --progress none --output out)
eval=(eval --model "$model" --dataset "$model/data/evaluation.txt" --max-seq-length 32 --max-windows 1 --progress none)
for least in 120000 200000 300000; do # enough to load OpenBLAS, and for 0, 1 or 2 of its 3 buffers
    for job in "${compress[*]}" "plan ${compress[*]}" "${eval[*]}" "bench --seconds 0.01"; do
        code=0
        # shellcheck disable=SC2086
        limited $least $job --threads 3 || code=$?
        [ $code = 1 ] || fail "exit $code with $least KiB: $job: $(cat log)"
        grep -q 'OpenBLAS wants 129 MiB of address space for each of 3 threads' log || fail "$least: $job: $(cat log)"
        [ ! -e out ] && [ ! -e out.oneshot-partial ] || fail "$least KiB: something is left"
    done
done
limited 4000000 "${compress[@]}" --threads 3 || fail "the job fails with 4 GB of address space: $(cat log)"
