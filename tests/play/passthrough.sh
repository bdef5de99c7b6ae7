# passthrough.sh - runs `--calib-passthrough` on the emulated GPU. The ranges of slices are those of
# their inputs, so the output has the bytes of the host. Also runs observers that read values twice.
# The smallest GPU memory of the plan, another order of the GPU's threads and values on the disk do
# not change the bytes.
set -euo pipefail
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
fail() { echo "$*"; [ ! -e err ] || cat err; exit 1; }
"$OSH_TOOLS/tiny_model" phi3 phi3
"$OSH_TOOLS/tiny_model" deepseek_v2 deepseek
group='input_activations: {num_bits: 8, type: float, strategy: tensor, dynamic: false, observer: static_minmax}'
echo "s_modifiers: {QuantizationModifier: {config_groups: {g: {targets: ['re:.*self_attn\$'], $group}}}}" >phi3.yaml
echo "s_modifiers: {GPTQModifier: {ignore: [lm_head], config_groups: {g: {targets: [Linear], weights: {num_bits: 8, strategy: channel},
    input_activations: {num_bits: 8, dynamic: false, strategy: tensor, observer: layerwise_percentile,
    observer_kwargs: {exact: true, first: 70, second: 80, third: 90}}}}}}" >deepseek.yaml
one() { # arguments: output, flags
    "$PLAY_BATCHES" "${job[@]}" --progress none --threads 1 --output "$@" >/dev/null 2>err || fail "$model: $*"
}
for model in phi3 deepseek; do
    job=(--model $model --recipe $model.yaml --dataset $model/calibration.jsonl --calib-passthrough slice)
    one gpu.$model
    grep -q '"back_end": "cuda"' gpu.$model/oneshot-manifest.json || fail "$model: not on the GPU"
    one host.$model --device cpu
    cmp gpu.$model/model.safetensors host.$model/model.safetensors || fail "$model: not the bytes of the host"
    "$PLAY_BATCHES" plan "${job[@]}" --json >plan.json
    grep -q '"range_of"' plan.json || fail "$model: all values are observed"
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
    OSH_PLAY="protect=0 memory=$least order=5 lazy=1" one least.$model --device-memory "$least" --mem-opt-level 2
    cmp gpu.$model/model.safetensors least.$model/model.safetensors || fail "$model, least memory: other bytes"
    one seen.$model --calib-passthrough no-slice
    if cmp -s gpu.$model/model.safetensors seen.$model/model.safetensors; then fail "$model: the slices have ranges of their own"; fi
done
