# ranks_samples.sh - runs calibrated jobs under mpirun. Groups of samples, statistics and solves are
# divided among ranks. For every method, number of ranks and memory budget, the files must be the
# same as with one process. They must also be the same after kill -9 of a rank and a resume with
# another number of ranks.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/ranks.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
fail() { echo "$1"; [ ! -e log ] || cat log; exit 1; }
"$OSH_TOOLS/make_model" model hidden=128 intermediate=256 heads=4 kv=2 layers=2 vocab=256 samples=12 tokens=48 seed=1
"$OSH_TOOLS/make_model" experts hidden=128 intermediate=128 heads=4 kv=2 layers=2 vocab=256 samples=12 tokens=48 experts=4 \
    topk=2 head_dim=32
"$OSH_TOOLS/tiny_model" deepseek_v3 tiny
I='ignore: ["re:.*lm_head", "re:.*gate$"]'
recipe() { # arguments: name, modifiers
    printf 's_stage:\n  s_modifiers:\n' >$1.yaml
    printf '    %s\n' "${@:2}" >>$1.yaml
}
gptq="GPTQModifier: {scheme: W4A16, targets: Linear, $I}"
recipe gptq "$gptq"
recipe asym "GPTQModifier: {scheme: W4A16_ASYM, targets: Linear, actorder: weight, $I}"
recipe static "GPTQModifier: {scheme: FP8, targets: Linear, $I}"
recipe cache "QuantizationModifier: {kv_cache_scheme: {num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true}}"
recipe global "GPTQModifier: {scheme: NVFP4, targets: Linear, $I}"
recipe sparse "SparseGPTModifier: {sparsity: 0.5, mask_structure: '2:4', $I}" "$gptq"
recipe wanda "WandaPruningModifier: {sparsity: 0.5, targets: [LlamaDecoderLayer]}"
recipe original "GPTQModifier: {scheme: W4A16, targets: Linear, target: original, $I}"
recipe smooth "SmoothQuantModifier: {smoothing_strength: 0.5}" "GPTQModifier: {scheme: W8A8, targets: Linear, $I}"
recipe awq "AWQModifier: {n_grid: 4}" "QuantizationModifier: {scheme: W4A16_ASYM, targets: Linear, $I}"
recipe quality "GPTQModifier: {scheme: W4A16, targets: Linear, quality: best, tune: false, $I}"
recipe tune "GPTQModifier: {$I, config_groups: {a: {targets: [Linear], weights: {num_bits: 2, symmetric: false, strategy: channel}}}, tune: {steps: 4, rows: 3, code_rate: 0.001, rate: 0.003}}"
recipe mixed "GPTQModifier: {config_groups: {a: {targets: ['re:.*down_proj'], weights: {num_bits: 8, strategy: channel}}, b: {targets: ['re:.*(q|k|v|o|gate|up)_proj'], weights: {num_bits: 4, strategy: group, group_size: 64}}}, $I}"
declare -A more=(
    [gptq]="" [asym]="--sequential-targets Linear --sum-groups 3" [static]="--propagate-error false"
    [cache]="" [global]="" [sparse]="" [wanda]="--sum-groups 5" [original]="" [quality]="" [smooth]="" [awq]="--sum-groups 5" [tune]="" [mixed]="--sum-groups 2"
)
one() { # arguments: kind of job, model, output
    echo "--model $2 --recipe $1.yaml --dataset $2/calibration.jsonl --num-calibration-samples 12 --max-seq-length 48" \
        "--progress none --threads ${threads:-1} --output $3 ${more[$1]}"
}
n=0
divided() { # arguments: MPI, ranks, kind of job, model, more flags
    n=$((n + 1))
    start $1 $2 "$ONESHOT" $(one $3 $4 out) "${@:5}" >log 2>&1 || fail "$*"
    grep -q "$2 ranks: samples and solves are divided" out/oneshot.log || { cat out/oneshot.log; fail "$*: the ranks do not divide the job"; }
    same out want.$3.$4 "$*"
}
want() { # arguments: kind of job, model
    "$ONESHOT" $(one $1 $2 plain) >log 2>&1 || fail "$1 in one process fails"
    sums plain >want.$1.$2
    [ $1 != tune ] || grep -q '"kept": true' plain/oneshot-report.json || fail "the tuned values are not kept"
    rm -rf plain
}
mpi=${mpis[0]} other=${mpis[-1]}

want gptq model
for k in 2 3 4 7; do divided $mpi $k gptq model; done
divided $other 3 gptq model
for kind in asym static cache global sparse wanda original quality smooth awq mixed; do
    want $kind model
    divided $other 3 $kind model
done
want gptq experts
divided $mpi 3 gptq experts
want tune tiny
divided $mpi 2 tune tiny
# Tests the rounds of a small budget, more threads, and other batches.
threads=2 divided $other 2 gptq model
divided $other 2 gptq model --batch-size 5
divided $mpi 3 gptq model --mem-opt-level 2

# Kills rank 0 at calls that change the disk, and other ranks at random moments. The number of ranks
# of each run is random.
RANDOM=11
kills=6 n=0 killed=0
[ -z "$SANITIZED" ] || kills=4
while [ $n -lt $kills ]; do
    mpi=${mpis[RANDOM % ${#mpis[@]}]} ranks=$((RANDOM % 3 + 2))
    rank=$((RANDOM % ranks)) kill=()
    [ $rank != 0 ] || kill=(./on 0 LD_PRELOAD="$OSH_TOOLS/inject.so" INJECT_WHAT=kill INJECT_AT=$((RANDOM % 60 + 20)) --)
    n=$((n + 1))
    start $mpi $ranks "${kill[@]}" "$ONESHOT" $(one gptq model out) --mem-opt-level $((n % 2 + 1)) >log 2>&1 &
    # the job may end before the kill
    [ $rank = 0 ] || kill_rank $rank out.oneshot-partial/oneshot.log begin 0.$((RANDOM % 3))$((RANDOM % 10)) || true
    job_ends $! $mpi 30 || killed=$((killed + 1))
    after_kill want.gptq.model
done
[ $killed -ge $((kills / 3)) ] || fail "only $killed of $kills runs were killed"
"$ONESHOT" $(one gptq model out) >log 2>&1 || fail "one process does not continue the killed job"
same out want.gptq.model "one process after kills"
echo "$killed of $kills runs were killed"

# The plan must predict the memory of a rank, the smallest budget of a rank, and the bytes that
# ranks send to each other.
"$OSH_TOOLS/make_model" big hidden=512 intermediate=1024 heads=8 kv=4 layers=2 vocab=512 samples=8 tokens=64
want gptq big
if start $mpi 2 "$ONESHOT" $(one gptq big out) --host-memory 1MB >log 2>&1; then fail "a budget of 1 MB is not refused"; fi
grep -q 'while planning one of the 2 ranks that share the --host-memory of a node' log || fail "the message does not say which budget is too small"
least=$(grep -oE 'want at least --host-memory [0-9]+' log | grep -oE '[0-9]+$')
start $mpi 2 "$ONESHOT" $(one gptq big out) --host-memory $((2 * least))MiB >log 2>&1 || fail "the run fails with the smallest budget"
sent=$(grep -oE '[0-9]+ bytes were sent' out/oneshot.log | grep -oE '^[0-9]+')
same out want.gptq.big "the smallest budget"
"$ONESHOT" plan $(one gptq big out) --ranks 2 >log 2>&1 || fail "the plan with --ranks fails"
grep -q '^ranks      2, 2 on a node: samples and solves are divided' log || fail "the plan names no division"
planned=$(grep -oE '[0-9.]+ MB between ranks' log | grep -oE '^[0-9.]+')
awk -v s=$sent -v p=$planned 'BEGIN { exit !(s / 1e6 < 1.1 * p && s / 1e6 > 0.9 * p) }' || fail "planned $planned MB, sent $sent bytes"
if "$ONESHOT" $(one gptq big out) --ranks 2 >log 2>&1; then fail "--ranks of a run is not refused"; fi
grep -q 'mpirun or srun sets the ranks of a run' log || fail "--ranks of a run is not refused"

# After a rank is killed, the job must print one message with rank, node and phase, and must end
# within 10 seconds. If the launcher does nothing, the guard of each rank must end its rank.
stopped() { # arguments: name of the launcher's process, if the test must stop it before the kill
    local code=0
    rm -rf out.oneshot-partial # rank 0 stops in its work, so that rank 1 is not too fast for the kill
    start $mpi 3 ./on 0 LD_PRELOAD="$OSH_TOOLS/inject.so" INJECT_STEP="observe model.layers.0 Start" INJECT_WHAT='kill -STOP $PPID' -- \
        "$ONESHOT" $(one gptq big out) --profile profile.yaml >log 2>&1 &
    job=$!
    until grep -qs 'observe model.layers.0 Start' out.oneshot-partial/oneshot.log; do
        [ -d /proc/$job ] || fail "$mpi: the job has ended before the kill"
        sleep 0.05
    done
    [ $# = 0 ] || kill -STOP $(processes "$1")
    kill_rank 1 out.oneshot-partial/oneshot.log 'observe model.layers.0 Start' 0.2 || fail "$mpi: there is no rank 1"
    job_ends $job $mpi 10 || code=$?
    [ $code != 0 ] || fail "$mpi: a killed rank does not end the job"
}
for mpi in "${mpis[@]}"; do
    stopped
    if [ $hung = 0 ]; then
        [ "$(grep -c 'ended by signal' log)" = 1 ] || fail "$mpi: wanted one message"
        grep -q '^oneshot: rank 1 of 3 on .*, .* of .*: ended by signal 9 (Killed)' log || fail "$mpi: the message does not name the killed rank"
    fi
done
stopped mpirun.$mpi
[ $hung = 1 ] || fail "$mpi: the launcher was not stopped"
"$ONESHOT" $(one gptq big out) >log 2>&1 || fail "one process does not continue the job of a killed rank"
same out want.gptq.big "one process after a killed rank"
