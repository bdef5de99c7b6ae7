# observers.sh - tests whole runs with observers that need data: imatrix_mse with rounding and with
# GPTQ, and observers of static activations. The output bytes must not depend on threads, batches
# and budget. verify must accept the outputs. Impossible jobs must be refused.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=(--dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64 --progress none)
recipe() { # arguments: name, modifier, weights' arguments, more
    printf 's_stage:\n  s_modifiers:\n    %s:\n      ignore: [lm_head]\n      config_groups:\n        group_0:\n          targets: [Linear]\n          weights: {%s}\n%s' "$2" "$3" "${4:-}" >"$1.yaml"
}
same() { # argument: name; makes two more runs, one of them with the smallest budget
    local least
    if "$ONESHOT" plan --model "$model" --recipe "$1.yaml" "${data[@]}" --threads 3 --host-memory 4MiB 2>err >/dev/null; then
        echo "$1: 4 MiB are enough"; exit 1
    fi
    least=$(sed -n 's/.*want at least --host-memory \([0-9]*\)MiB.*/\1/p' err)
    [ -z "$SANITIZED" ] || least=$((least + 1)) # a sanitizer's own memory differs between processes
    least=${least}MiB
    "$ONESHOT" --model "$model" --recipe "$1.yaml" "${data[@]}" --output "$1" >/dev/null
    [ -n "$SANITIZED" ] || # under sanitizers one more run is enough
        "$ONESHOT" --model "$model" --recipe "$1.yaml" "${data[@]}" --output "$1.1" --threads 1 --batch-size 4 >/dev/null
    "$ONESHOT" --model "$model" --recipe "$1.yaml" "${data[@]}" --output "$1.2" --threads 3 \
        --host-memory "$least" --scratch-dir . >/dev/null
    for other in "$1".[12]; do
        cmp "$1/model.safetensors" "$other/model.safetensors" || { echo "$other is another"; exit 1; }
    done
    "$ONESHOT" verify "$1" --model "$model" >log || { echo "$1: verify found something"; cat log; exit 1; }
    rm -r "$1".[12]
}
group='num_bits: 4, type: int, strategy: group, group_size: 64, symmetric: true'
recipe rtn QuantizationModifier "$group, observer: imatrix_mse"
recipe plain QuantizationModifier "$group, observer: mse, observer_kwargs: {norm: 3.0, grid: 20, maxshrink: 0.95}"
recipe gptq GPTQModifier "$group, observer: imatrix_mse, observer_kwargs: {grid: 40}"
same rtn
same gptq
grep -q '"observer": "imatrix_mse"' rtn/config.json
grep -A2 '"observer_kwargs"' gptq/config.json | grep -q '"grid": 40'
"$ONESHOT" --model "$model" --recipe plain.yaml --output plain --progress none >/dev/null
! cmp -s rtn/model.safetensors plain/model.safetensors || { echo "the inputs weigh nothing"; exit 1; }
static() { # arguments: observer, its arguments
    printf '          input_activations: {num_bits: 8, symmetric: false, dynamic: false, observer: %s, observer_kwargs: {%s}}\n' "$@"
}
int8='num_bits: 8, strategy: channel'
recipe static GPTQModifier "$int8, observer: imatrix_mse" "$(static mse 'averaging_constant: 0.5')"
recipe narrow QuantizationModifier "$int8" "$(static minmax '')"
same static
same narrow
for out in static narrow; do
    for leaf in input_scale input_zero_point; do
        grep -q "model.layers.3.mlp.down_proj.$leaf" $out/oneshot-manifest.json || { echo "$out has no $leaf"; exit 1; }
    done
done
head -4 "$model/data/calibration.jsonl" >four.jsonl
"$ONESHOT" eval --model narrow --dataset four.jsonl --max-seq-length 64 --progress none >log || { cat log; exit 1; }
grep -q '^perplexity' log

want() { # arguments: message, flags
    local pattern=$1
    shift
    if "$ONESHOT" --model "$model" --output none "$@" >log 2>&1; then echo "accepted: $*"; exit 1; fi
    grep -qE "$pattern" log || { echo "want /$pattern/:"; cat log; exit 1; }
}
want 'needs calibration data' --recipe rtn.yaml
recipe strict QuantizationModifier 'num_bits: 8, strategy: tensor, observer: imatrix_mse, observer_kwargs: {strict: true}'
want 'strict: true wants weights of strategy channel or group' --recipe strict.yaml "${data[@]}"
recipe loose QuantizationModifier 'num_bits: 8, strategy: tensor, observer: imatrix_mse'
"$ONESHOT" --model "$model" --recipe loose.yaml --output loose --progress none >log 2>&1
grep -q 'group_0.weights: observer imatrix_mse gives all input channels the same weight' log
recipe both GPTQModifier "$group, observer: mse" $'      scale_search: mse\n'
want 'scale_search and observer mse of group_0 both choose scales' --recipe both.yaml "${data[@]}"
