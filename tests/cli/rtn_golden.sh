# rtn_golden.sh - rounds the example model to nearest. For the same recipe, the output file must
# have the same bytes as the file of LLM Compressor 0.14.0.1 on a CPU. LLM Compressor's files were
# made with compressed-tensors 0.19.0. Only the files of the last three recipes were made with
# 0.20.0. rtn_golden.sha256 has the checksums of all files of LLM Compressor.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
want=$OSH_SOURCE_DIR/tests/cli/rtn_golden.sha256
group() { # arguments: name, then the keys of the weights
    printf 's_stage:\n  s_modifiers:\n    QuantizationModifier:\n      ignore: [lm_head]\n      config_groups:\n        group_0:\n          targets: [Linear]\n          weights: {%s}\n' "$2" >"$1.yaml"
}
group FP8_WEIGHT_CHANNEL 'num_bits: 8, type: float, strategy: channel, symmetric: true'
group INT3_G32_SYM 'num_bits: 3, type: int, strategy: group, group_size: 32, symmetric: true'
group INT5_CHANNEL_ASYM 'num_bits: 5, type: int, strategy: channel, symmetric: false'
group INT8_TENSOR 'num_bits: 8, type: int, strategy: tensor, symmetric: true'
group INT4_G64_ASYM 'num_bits: 4, type: int, strategy: group, group_size: 64, symmetric: false'
group MSE_INT4_G128 'num_bits: 4, type: int, strategy: group, group_size: 128, symmetric: true, observer: mse'
group MSE_INT4_G64_ASYM 'num_bits: 4, type: int, strategy: group, group_size: 64, symmetric: false, observer: memoryless_mse, observer_kwargs: {maxshrink: 0.5, grid: 50, norm: 2.0, patience: 3}'
group MSE_INT8_CHANNEL 'num_bits: 8, type: int, strategy: channel, symmetric: true, observer: mse, observer_kwargs: {norm: 3.0}'
group MSE_INT4_TENSOR_ASYM 'num_bits: 4, type: int, strategy: tensor, symmetric: false, observer: mse'
group MSE_FP8_BLOCK 'num_bits: 8, type: float, strategy: block, block_structure: [128, 128], symmetric: true, observer: mse, observer_kwargs: {expand: 1.5, maxshrink: 0.4}'
group MSE_MXFP4 'num_bits: 4, type: float, strategy: group, group_size: 32, symmetric: true, scale_dtype: torch.uint8, observer: mse'
nvfp4='num_bits: 4, type: float, strategy: tensor_group, group_size: 16, symmetric: true, scale_dtype: torch.float8_e4m3fn'
group FOUROVERSIX_NVFP4 "$nvfp4, observer: fouroversix, observer_kwargs: {norm: 2.0, grid: 50}"
n=0
# NVFP4 with activations needs data. The largest activation may differ by a rounding between CPUs,
# so the checksum of the file is not compared. (static.sh compares the tensors.)
"$ONESHOT" --model "$model" --scheme NVFP4 --ignore lm_head --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 4 --max-seq-length 64 --output out-NVFP4 --progress none >/dev/null
"$ONESHOT" verify out-NVFP4 --model "$model" >/dev/null || { echo "NVFP4: verify found something"; exit 1; }
while read -r sum name; do
    if [ -e "$name.yaml" ]; then set -- --recipe "$name.yaml"; else set -- --scheme "$name" --ignore lm_head; fi
    "$ONESHOT" --model "$model" "$@" --output "out-$name" --progress none >/dev/null
    "$ONESHOT" verify "out-$name" --model "$model" >/dev/null || { echo "$name: verify found something"; exit 1; }
    got=$(sha256sum "out-$name/model.safetensors" | cut -d' ' -f1)
    [ "$got" = "$sum" ] || { echo "$name: got $got, want $sum"; exit 1; }
    n=$((n + 1))
done <"$want"
[ $n = 42 ] || { echo "only $n of 42 schemes were compared"; exit 1; }
