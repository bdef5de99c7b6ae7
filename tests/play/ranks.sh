# ranks.sh - divides calibrated jobs among ranks (processes of one job), each with an emulated GPU
# of its own. For every method and number of ranks, the files are the same as with one process and
# one GPU. Two of the methods count only some tokens. The files are also the same after kill -9 of a
# rank and a resume with another number of ranks. Ranks that would share a GPU are refused.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/ranks.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
program=oneshot_play
fail() { echo "$1"; [ ! -e log ] || cat log; exit 1; }
export ASAN_OPTIONS=$ASAN_OPTIONS LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$(dirname "$ONESHOT") OSH_PLAY="protect=0 gpus=4:0"
"$OSH_TOOLS/make_model" model hidden=128 intermediate=256 heads=4 kv=2 layers=2 vocab=256 samples=12 tokens=48 seed=1
"$OSH_TOOLS/make_model" experts hidden=128 intermediate=128 heads=4 kv=2 layers=1 vocab=256 samples=8 tokens=32 experts=4 \
    topk=2 head_dim=32
python3 - model/calibration.jsonl experts/calibration.jsonl <<'P'
import json, sys
for path in sys.argv[1:]:
    rows = [json.loads(line) for line in open(path)]
    with open(path, "w") as f: # only some tokens count with --loss-mask
        f.writelines(json.dumps(r | {"loss_mask": [k // 3 % 2 for k in range(len(r["input_ids"]))]}) + "\n" for r in rows)
P
I='ignore: ["re:.*lm_head", "re:.*gate$"]'
recipe() { # arguments: name, modifiers
    printf 's_stage:\n  s_modifiers:\n' >$1.yaml
    printf '    %s\n' "${@:2}" >>$1.yaml
}
gptq="GPTQModifier: {scheme: W4A16, targets: Linear, $I}"
recipe gptq "$gptq"
recipe static "GPTQModifier: {scheme: FP8, targets: Linear, $I}"
recipe sparse "SparseGPTModifier: {sparsity: 0.5, mask_structure: '2:4', $I}" "$gptq"
recipe awq "AWQModifier: {n_grid: 4}" "QuantizationModifier: {scheme: W4A16_ASYM, targets: Linear, $I}"
recipe quality "GPTQModifier: {scheme: W4A16, targets: Linear, quality: best, tune: false, $I}"
# the GPU observes the inputs of Linears, and the host observes keys and values
recipe route "GPTQModifier: {scheme: FP8, targets: Linear, $I, kv_cache_scheme: {
      num_bits: 8, type: float, strategy: attn_head, observer: mse}}"
declare -A more=([gptq]="" [static]="--sequential-targets Linear --loss-mask answers" [sparse]="" [awq]="--sum-groups 3"
                 [quality]="" [route]="--moe-calibrate-all-experts false --loss-mask answers")
one() { # arguments: kind of job, model, output
    echo "--model $2 --recipe $1.yaml --dataset $2/calibration.jsonl --num-calibration-samples 12 --max-seq-length 48" \
        "--device ${device:-cuda} --progress none --threads 1 --output $3 ${more[$1]}"
}
want() { # arguments: kind of job, model
    "$PLAY" $(one $1 $2 plain) >log 2>&1 || fail "$1 in one process fails"
    sums plain >want.$1.$2
    rm -rf plain
}
divided() { # arguments: MPI, ranks, kind of job, model, more flags
    start $1 $2 "$PLAY" $(one $3 $4 out) "${@:5}" >log 2>&1 || fail "$*"
    grep -q "$2 ranks: samples and solves are divided" out/oneshot.log || { cat out/oneshot.log; fail "$*: the ranks do not divide the job"; }
    peak=$(sed -n '/"device": {/,/^  }/s/.*"peak_bytes": \([0-9]*\).*/\1/p' out/oneshot-report.json)
    plan=$(sed -n '/"device": {/,/^  }/s/.*"predicted_peak_bytes": \([0-9]*\).*/\1/p' out/oneshot-report.json)
    [ "$peak" -gt 0 ] && [ "$peak" -le "$plan" ] || fail "$*: $peak bytes of the arena were used, predicted $plan"
    same out want.$3.$4 "$*"
}
mpi=${mpis[0]} other=${mpis[-1]}

want gptq model
divided $mpi 2 gptq model
divided $other 4 gptq model --mem-opt-level 2
kinds="static sparse awq quality"
[ -z "$SANITIZED" ] || kinds=awq # builds with sanitizers are slow
for kind in $kinds; do
    want $kind model
    divided $mpi 3 $kind model
done
want route experts
divided $other 2 route experts

# Each of the two ranks sees another GPU under the name cuda:0, as with srun --gpus-per-task. The
# GPU of rank 1 has less memory, and both ranks plan for that memory.
OSH_PLAY="protect=0 gpus=1:0" start $mpi 2 ./on 1 OSH_PLAY="protect=0 gpus=1:1 memory=700000000" -- "$PLAY" \
    $(one gptq model out) >log 2>&1 || fail "the run with one visible GPU for each rank fails"
same out want.gptq.model "one visible GPU for each rank"
refused() { # arguments: text of the message, value of OSH_PLAY, value of --device
    if OSH_PLAY="protect=0 $2" start $mpi 3 "$PLAY" $(device=$3 one gptq model out) >log 2>&1; then fail "not refused: $2 $3"; fi
    grep -q "$1" log || fail "another message: $2 $3"
    [ ! -e out ] || fail "refused: $2 $3, but there is an output"
}
refused 'ranks 0 and 2 on .* have the same GPU: start at most one rank for each GPU' gpus=2:0 cuda
refused 'ranks 0 and 1 on .* have the same GPU' gpus=4:0 cuda:1
rm -rf out.oneshot-partial

# eval divides batches of windows. Numbers and files are the same as with one process. The program
# $PLAY_BATCHES has batches of about 100 tokens, so each rank has some batches.
figures() { # arguments: directory for the files, [launcher...]
    mkdir "$1"
    "${@:2}" "$PLAY_BATCHES" eval --model quantized --reference model --dataset model/calibration.jsonl --max-seq-length 48 --device cuda \
        --progress none --threads 1 --json --panel "$1/panel.json" --per-token "$1/tokens.npy" --save-logits "$1/logits" \
        >"$1/json" 2>log || fail "eval, $*"
}
"$PLAY" $(one gptq model quantized) >log 2>&1 || fail "the run in one process, for eval, fails"
figures plain
figures ranks start $mpi 3
diff -r plain ranks >log || fail "eval with 3 ranks: the figures differ"
# Each rank lists the GPUs in another order. So the first GPU in the list of one rank is not the
# first GPU in the list of another rank.
OSH_PLAY="protect=0 gpus=2:0" start $mpi 2 ./on 1 OSH_PLAY="protect=0 gpus=2:1" -- "$PLAY" $(one gptq model out) >log 2>&1 ||
    fail "the run of ranks with different visible GPUs fails"
same out want.gptq.model "ranks that see other GPUs"
# Only rank 0 evaluates the output after a run.
start $mpi 2 "$PLAY" $(one gptq model out) --host-memory 2GiB --eval model/calibration.jsonl >log 2>&1 || fail "--eval"
same out want.gptq.model "--eval"
if OSH_PLAY="protect=0 gpus=1:0" start $mpi 2 "$PLAY" eval --model quantized --dataset model/calibration.jsonl --device cuda >log 2>&1
then fail "eval of two ranks on one GPU"; fi
grep -q 'ranks 0 and 1 on .* have the same GPU' log || fail "eval: the message is another"

# Kills ranks. Each run has a different number of ranks. The last run is one process without MPI.
killed=0 kills=2
for ((n = 0; n < kills; n++)); do
    rank=$((n % 2)) kill=()
    [ $rank != 0 ] || kill=(./on 0 LD_PRELOAD="$OSH_TOOLS/inject.so" INJECT_WHAT=kill INJECT_AT=$((30 + 15 * n)) --)
    start $mpi $((n % 3 + 2)) "${kill[@]}" "$PLAY" $(one gptq model out) >log 2>&1 &
    # the job may end before the kill
    [ $rank = 0 ] || kill_rank $rank out.oneshot-partial/oneshot.log begin 0.$((n * 2)) || true
    job_ends $! $mpi 30 || killed=$((killed + 1))
    after_kill want.gptq.model
done
[ $killed -ge $((kills / 2)) ] || fail "only $killed of $kills runs were killed"
"$PLAY" $(one gptq model out) >log 2>&1 || fail "one process does not continue the killed job"
same out want.gptq.model "one process after kills"
