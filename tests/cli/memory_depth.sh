# memory_depth.sh - tests that memory does not grow with the number of layers. Checks the predicted
# memory, which is an upper bound. For jobs without data, also checks the measured peak.
set -euo pipefail
fail() { echo "$*"; exit 1; }
[ -z "$SANITIZED" ] || { echo "a sanitizer's memory is not the program's"; exit 77; }
shape="hidden=512 intermediate=1024 heads=8 kv=4 vocab=1024 samples=2 tokens=64"
"$OSH_TOOLS/make_model" shallow $shape layers=2 >/dev/null
"$OSH_TOOLS/make_model" deep $shape layers=10 >/dev/null
layer=$(stat -c %s deep/model-00005-of-*.safetensors)
check() { # arguments: flags
    for model in shallow deep; do
        job=(--model $model --scheme W4A16 --ignore lm_head --threads 2 "$@")
        case "$*" in *gptq*) job+=(--dataset $model/calibration.jsonl) ;; esac
        "$ONESHOT" plan "${job[@]}" --json >plan.json
        predicted=$(sed -n '/"memory"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json | head -1)
        "$OSH_TOOLS/watch_memory" watched "$ONESHOT" "${job[@]}" --progress none --output out >/dev/null
        read -r peak _ <watched
        rm -rf out
        [ "$peak" -le "$predicted" ] || fail "$model: measured $peak, predicted $predicted"
        eval "predicted_$model=$predicted measured_$model=$peak"
    done
    local more=$((predicted_deep - predicted_shallow)) measured=$((measured_deep - measured_shallow))
    echo "8 layers of $layer bytes more: $more predicted, $measured measured: $*"
    # The names and shapes of a layer stay in memory. The names and shapes take about 1 % of the
    # bytes of the weights of the layer, so the test detects a layer whose weights are not freed.
    [ $more -lt $((8 * layer / 50)) ] || fail "the prediction grows by $more"
    case "$*" in *gptq*) ;; *) [ $measured -lt $((layer / 2)) ] || fail "the peak grows by $measured" ;; esac
}
check --method rtn --prefetch false
check --method gptq
