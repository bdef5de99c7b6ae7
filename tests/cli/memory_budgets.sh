# memory_budgets.sh - tests memory budgets. The bytes of an output must not depend on budgets and
# tiers. They must also not depend on rounds (passes that each collect some of the Hessians) and
# segments (Linears whose weights are loaded together). A budget that is too small must be refused
# with a message that names the smallest possible budget. This budget must be enough. The allocator
# must never exceed a budget. Each byte of the source must be read once.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
# Leaks are detected by the unit tests. In this test LeakSanitizer's tracer crashes on a CPU with
# AMX.
[ -z "$SANITIZED" ] || export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
job=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 6 --max-seq-length 64 --threads 2)
short=("${job[@]}")
fail() { echo "$*"; exit 1; }
# arguments: file with the JSON of a plan, key; prints the number of this key
field() { sed -n "s/^ *\"$2\": \([0-9]*\),*$/\1/p" "$1" | head -1; }
phases() { grep -o '"phases": "[^"]*"' plan.json | sort -u | tr '\n' ' '; }
run() { # arguments: flags; prints the checksum
    last_wins "$ONESHOT" "${job[@]}" --progress none --output out "$@" >/dev/null || fail "failed: $*"
    sha256sum out/model.safetensors | cut -d' ' -f1
    rm -rf out out.oneshot-partial
}
# under a scarce budget one sample runs at a time
last_wins "$ONESHOT" plan "${job[@]}" --batch-size 1 --json >plan.json
base=$(run)
device=$(field plan.json device_bytes)
rounds=0 segments=0
for flags in "--mem-opt-level 0" "--mem-opt-level 1" "--mem-opt-level 2" "--mem-opt-level 2 --batch-size 4" \
             "--mem-opt-level 2 --scratch-compression zstd --num-workers 3" "--mem-opt-level 2 --scratch-dir scratch" \
             "--mem-opt-level 2 --num-workers 0" \
             "--prefetch false" "--device-memory $((device - 1))" "--device-memory $((device * 85 / 100))" \
             "--device-memory $((device * 85 / 100)) --threads 1 --scratch-compression zstd" "--device-memory $((device * 62 / 100))" \
             "--device-memory $((device * 62 / 100)) --threads 1 --batch-size 2"; do
    last_wins "$ONESHOT" plan "${job[@]}" $flags --json >plan.json || fail "the plan fails: $flags"
    case $(phases) in *rounds*) rounds=1 ;; esac
    case $(phases) in *group*) segments=1 ;; esac
    [ "$(run $flags)" = "$base" ] || fail "$flags changes the bytes"
done
[ $rounds = 1 ] && [ $segments = 1 ] || fail "no budget led to rounds ($rounds) or to segments ($segments)"
[ -z "$(ls scratch)" ] || fail "scratch files are left: $(ls scratch)"

# The base is the memory of libraries. AddressSanitizer keeps freed memory, so that the bases of two
# processes differ too much.
[ -z "$SANITIZED" ] || exit 0

# The smallest device memory of the plan is exactly enough.
"$ONESHOT" plan "${job[@]}" --json >plan.json
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
[ "$(run --device-memory "$least")" = "$base" ] || fail "--device-memory $least changes the bytes"
if "$ONESHOT" "${job[@]}" --output out --device-memory $((least - 1)) 2>err; then fail "a budget of a byte less than the smallest is not refused"; fi
least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json)
[ "$(run --host-memory "$least")" = "$base" ] || fail "--host-memory $least changes the bytes"
# The smallest host memory includes an allowance of a quarter of a MiB, because the base (memory of
# libraries) differs between processes.
if "$ONESHOT" "${job[@]}" --output out --host-memory $((least - (1 << 20))) 2>err; then fail "a budget of a MiB less than the smallest is not refused"; fi
grep -q -- "--host-memory [0-9]*\.[0-9][0-9]MiB is too small: .* --host-memory [0-9]*MiB" err || fail "$(cat err)"

for kind in host device; do
    if "$ONESHOT" "${job[@]}" --output out --$kind-memory 1MiB 2>err; then fail "1 MiB of $kind memory is enough"; fi
    [ ! -e out ] && [ ! -e out.oneshot-partial ] || fail "a refused run left something"
    least=$(sed -n "s/.*want at least --$kind-memory \([0-9]*MiB\).*/\1/p" err)
    [ -n "$least" ] || fail "no smallest budget: $(cat err)"
    [ "$(run --$kind-memory "$least")" = "$base" ] || fail "--$kind-memory $least changes the bytes"
done

# Some jobs pass over the model before or after the run. If the budget is too small, the first
# message must name a budget that is enough for all these passes.
for kind in Sparse Wanda; do
    name=$([ $kind = Sparse ] && echo SparseGPTModifier || echo WandaPruningModifier)
    echo "s_modifiers: {$name: {sparsity: 0.5, sparsity_profile: owl, owl_m: 5, owl_lmbda: 0.08, ignore: [lm_head]," \
        "targets: [Linear]}}" >$kind.yaml
done
echo 's_modifiers: {REAPPruningModifier: {sparsity: 0.5}}' >reap.yaml
"$OSH_TOOLS/make_model" mixture hidden=64 intermediate=64 heads=2 kv=2 head_dim=32 experts=8 topk=2 layers=2 vocab=256 \
    samples=6 tokens=32
head -c 3000 "$OSH_SOURCE_DIR/README.md" >eval.txt
# arguments: label, job; the job must work with the budget that the message names, and not with 2
# MiB less
passes() {
    local of=$1 least
    shift
    if "$ONESHOT" "$@" --output out --host-memory 1MiB 2>err; then fail "1 MiB is enough for $*"; fi
    [ ! -e out ] && [ -z "$(ls -d out.oneshot-* 2>/dev/null)" ] || fail "a refused run left something: $(ls -d out*)"
    least=$(sed -n 's/.*want at least --host-memory \([0-9]*\)MiB.*/\1/p' err)
    grep -q "$of" err || fail "want '$of': $(cat err)"
    # The budget in the message is rounded up to MiB. It includes 256 KiB, because the next process
    # may need up to 256 KiB more.
    if "$ONESHOT" "$@" --output out --host-memory $((least - 2))MiB 2>err; then fail "$((least - 2)) MiB is enough: $*"; fi
    [ ! -e out ] && [ -z "$(ls -d out.oneshot-* 2>/dev/null)" ] || fail "a refused run left something: $(ls -d out*)"
    "$ONESHOT" "$@" --output out --host-memory "${least}MiB" --progress none >/dev/null || fail "the run fails with the smallest budget, $least MiB: $*"
    rm -rf out
    "$ONESHOT" plan "$@" --json >plan.json # the smallest budget of this plan is enough, too
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json)
    "$ONESHOT" "$@" --output out --host-memory "$least" --progress none >/dev/null || fail "the run fails with the smallest budget, $least bytes: $*"
    rm -rf out
}
plain=("${job[@]}")
few=(--model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64 --threads 2)
mixture=(--model mixture --dataset mixture/calibration.jsonl --threads 2)
passes "want at least" "${few[@]}" --recipe Sparse.yaml
passes "want at least" "${few[@]}" --recipe Wanda.yaml
passes "experts are measured before the run" "${mixture[@]}" --recipe reap.yaml
passes ", because " "${plain[@]}" --target-bits 4.5
passes "want at least" "${mixture[@]}" --scheme W4A16 --group-size 32 --method rtn --ignore lm_head --target-size 0.4x
passes "the output is evaluated after the run" "${plain[@]}" --eval eval.txt
# If a run with --sequential-targets Linear needs a smaller budget, the message suggests this flag
# and this budget.
grep -q -- "--sequential-targets" err && fail "Linears need no less: $(cat err)"
"$OSH_TOOLS/make_model" long hidden=1024 intermediate=2048 heads=8 kv=8 layers=3 vocab=512 samples=32 tokens=64
long=(--model long --scheme W4A16 --method gptq --ignore lm_head --dataset long/calibration.jsonl --threads 2
      --mem-opt-level 1)
pair=(--sequential-targets-per-subgraph 2)
if "$ONESHOT" plan "${long[@]}" "${pair[@]}" --host-memory 1MiB 2>err; then fail "1 MiB of host memory is enough"; fi
least=$(sed -n "s/.*, or --host-memory \([0-9]*MiB\) with --sequential-targets Linear .*/\1/p" err)
[ -n "$least" ] || fail "no budget for Linears: $(cat err)"
"$ONESHOT" plan "${long[@]}" --sequential-targets Linear --host-memory "$least" >/dev/null ||
    fail "the run of single Linears fails with --host-memory $least"
if "$ONESHOT" plan "${long[@]}" "${pair[@]}" --host-memory "$least" 2>err; then fail "the plan accepts $least for layers, too"; fi

# Threads that prefetch values use as much memory as planned. They do not change the number of
# batches. The number of these threads depends on the budget.
"$OSH_TOOLS/make_model" read hidden=256 intermediate=512 heads=4 kv=4 layers=2 vocab=512 samples=32 tokens=512
cat >static.yaml <<'Y'
s_modifiers: {QuantizationModifier: {ignore: [lm_head], config_groups: {g: {targets: [Linear],
    weights: {num_bits: 8, strategy: channel}, input_activations: {num_bits: 8, dynamic: false, strategy: tensor}}}}}
Y
job=(--model read --recipe static.yaml --dataset read/calibration.jsonl --threads 2 --mem-opt-level 2 --batch-size 1)
for n in 0 16; do
    "$ONESHOT" "${job[@]}" --num-workers $n --progress none --output out$n >/dev/null
    used[n]=$(field out$n/oneshot-report.json used_peak_bytes) planned[n]=$(field out$n/oneshot-report.json predicted_peak_bytes)
done
cmp out0/model.safetensors out16/model.safetensors || fail "threads that read ahead change the bytes"
if [ -z "$SANITIZED" ]; then
# The base differs by a few pages from process to process.
more=$((used[16] - used[0])) want=$((planned[16] - planned[0]))
[ $more -le $((want + 65536)) ] && [ $more -gt $((16 * 512 * 256 * 2)) ] || fail "16 samples ahead take $more bytes, planned are $want"
plan_read() { "$ONESHOT" plan "${job[@]}" --host-memory "$1" --num-workers "$2" --json >plan.json || fail "the plan fails: $*"; }
plan_read 1GiB 4 # with a budget, the base includes buffers for reads past the page cache
plan_read $(($(field plan.json host_bytes) + 100000)) 16
[ "$(field plan.json num_workers)" = 4 ] || fail "a budget for 4 threads gives $(field plan.json num_workers) threads"
plan_read 1GiB 16
plan_read $(($(sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json) + 100000)) 16
[ "$(field plan.json num_workers)" = 0 ] || fail "the smallest budget has room to read ahead"
fi
rm -r read out0 out16

# The run reads only those rows of an embedding that the tokens need. Therefore the smallest
# --device-memory is less than the bytes of the embedding. The test first uses decoder layers as
# sequential targets, and then Linears. Linears need no larger --device-memory than layers.
"$OSH_TOOLS/make_model" tall hidden=64 intermediate=128 heads=2 kv=2 layers=2 vocab=120000 samples=4 tokens=32
job=(--model tall --scheme W4A16 --group-size 32 --method gptq --ignore lm_head --dataset tall/calibration.jsonl --threads 2)
whole=$(run)
of_layers=0
for targets in "" "--sequential-targets Linear"; do
    "$ONESHOT" plan "${job[@]}" $targets --json >plan.json
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
    [ "$least" -lt $((120000 * 64)) ] || fail "$least bytes beside a table of $((120000 * 128)) $targets"
    got=$(run --device-memory "$least" $targets)
    [ "$targets" ] || [ "$got" = "$whole" ] || fail "--device-memory $least changes the bytes"
    # With Linears as targets, a norm may need up to 1024 bytes more.
    [ "$of_layers" = 0 ] || [ "$least" -le $((of_layers + 1024)) ] || fail "Linears need $least, layers $of_layers"
    of_layers=$least
done
rm -r tall

# If the budget is slightly too small for all values, the values of most batches stay in memory.
"$OSH_TOOLS/make_model" narrow hidden=256 intermediate=512 heads=4 kv=4 layers=2 vocab=512 samples=64 tokens=256
job=(--model narrow --scheme W4A16 --method gptq --ignore lm_head --dataset narrow/calibration.jsonl --threads 2
     --sequential-targets Linear)
"$ONESHOT" plan "${job[@]}" --json >plan.json
host=$(sed -n '/"memory"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1)
whole=$(run)
pairs=("6000000 1" "14000000 3")
[ -z "$SANITIZED" ] || pairs=("14000000 3") # builds with sanitizers are slow
for how in "${pairs[@]}"; do
    read -r less size <<<"$how"
    flags="--host-memory $((host - less)) --batch-size $size"
    last_wins "$ONESHOT" plan "${job[@]}" $flags --json >plan.json || fail "the plan fails: $flags"
    kept=$(field plan.json batches_in_memory)
    [ "$kept" -gt 0 ] && [ "$kept" -lt $((64 / size)) ] || fail "$flags keeps $kept batches in memory"
    grep -q '"activation_tier": "disk"' plan.json || fail "$flags: no values on the disk"
    [ "$(run $flags)" = "$whole" ] || fail "$flags changes the bytes"
done
job=("${short[@]}")

if "$ONESHOT" "${job[@]}" --output out --mem-opt-level 2 --scratch-size 1000 2>err; then fail "a scratch size of 1000 bytes is not refused"; fi
grep -q -- "--scratch-size" err || fail "scratch: $(cat err)"

# The program reads the source once, and the output at the seal. Other reads must be less than 3 MB.
"$ONESHOT" plan "${job[@]}" --json >plan.json
"$OSH_TOOLS/watch_memory" watched "$ONESHOT" "${job[@]}" --progress none --output out >/dev/null
read -r _ rchar wchar <watched
source=0
for f in "$model"/*.safetensors; do source=$((source + $(stat -L -c %s "$f"))); done
output=$(stat -c %s out/model.safetensors)
planned=$(field plan.json read_bytes)
# bytes of embedding rows; the run reads these rows a second time
rows=$((6 * 64 * $(sed -n 's/.*"hidden_size": \([0-9]*\).*/\1/p' "$model/config.json") * 2))
[ "$planned" -le $((source + rows)) ] || fail "the plan reads $planned of $source bytes and $rows of rows"
counted=$(field out/oneshot-report.json read_bytes)
extra=$((counted - planned - output))
[ $extra -ge 0 ] && [ $extra -lt 3000000 ] || fail "read $counted, of which $extra are neither source nor the seal's"
[ $((rchar - counted)) -lt 2000000 ] || fail "rchar $rchar, counted $counted"
[ $((wchar - output)) -ge 0 ] && [ $((wchar - output)) -lt 3000000 ] || fail "wrote $wchar for $output"
