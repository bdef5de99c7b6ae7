# broken_sources.sh - tests faults in quantized sources, for every format of codes. Tests that every
# command refuses a source in which a tensor is missing or has a wrong dtype or shape. Tests that
# scales that are not finite are refused when they are read.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=$model/data/calibration.jsonl
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
make() { # arguments: output, then the arguments of oneshot
    "$ONESHOT" --model "$model" --output "$@" --ignore lm_head --progress none >log 2>&1 || fail "$*"
}
recipe() { # arguments: output, weights, other keys of the group
    echo "{\"s_stage\": {\"q_modifiers\": {\"QuantizationModifier\": {\"ignore\": [\"lm_head\"], ${3-}
        \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], $2}}}}}}" >$1.yaml
    "$ONESHOT" --model "$model" --recipe $1.yaml --output $1 --dataset "$data" --num-calibration-samples 1 \
        --max-seq-length 32 --progress none >log 2>&1 || fail "$1"
}
int8='"num_bits": 8, "type": "int"' fp8='"num_bits": 8, "type": "float", "strategy": "tensor"'
make pack --scheme W4A16
make zeros --scheme W4A16_ASYM
make naive --scheme FP8_BLOCK
make mx4 --scheme MXFP4A16
make mx6 --scheme MXFP6A16
make mx8 --scheme MXFP8A16
make nv --scheme NVFP4 --dataset "$data" --num-calibration-samples 1 --max-seq-length 32
recipe int "\"weights\": {$int8, \"strategy\": \"channel\", \"symmetric\": false},
    \"input_activations\": {$int8, \"strategy\": \"tensor\", \"symmetric\": false}"
recipe float "\"weights\": {$fp8}, \"input_activations\": {$fp8}, \"output_activations\": {$fp8}" \
    "\"kv_cache_scheme\": {$int8, \"strategy\": \"tensor\", \"symmetric\": false},"
# Makes an FP8 source without a config group.
cp -r naive fp8
python3 - <<'P'
import json
c = json.load(open("fp8/config.json"))
c["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
json.dump(c, open("fp8/config.json", "w"))
P
tool="python3 $OSH_SOURCE_DIR/tests/tools/broken_sources.py $ONESHOT $data"
attn=model.layers.1.self_attn
$tool pack $attn.k_proj.,$attn.k_scale,$attn.k_zero,$attn.v_scale,$attn.v_zero pack zeros naive mx4 mx6 mx8 nv int float fp8

# Makes sources with equal codes in the formats of other libraries.
for how in gptq awq awq_gemv; do python3 "$OSH_SOURCE_DIR/tests/tools/repack.py" zeros $how $how; done
python3 "$OSH_SOURCE_DIR/tests/tools/repack.py" nv modelopt modelopt
$tool pack $attn.k_proj. gptq awq awq_gemv
python3 "$OSH_SOURCE_DIR/tests/tools/repack.py" pack bnb bitsandbytes
$tool pack $attn.k_proj.weight modelopt bnb

# Makes sources whose experts are in one tensor.
"$OSH_TOOLS/tiny_model" gpt_oss dense
python3 "$OSH_SOURCE_DIR/tests/tools/mxfp4.py" dense mxfp4
"$OSH_TOOLS/tiny_model" qwen3_moe_stacked moe
python3 "$OSH_SOURCE_DIR/tests/tools/fp8_experts.py" moe experts
experts=model.layers.0.mlp.experts.down_proj
for source in mxfp4 experts; do
    "$ONESHOT" --model $source --scheme W8A16 --group-size 8 --ignore lm_head --output $source.out --progress none >log 2>&1 || fail $source
    parts=$experts && [ $source = experts ] || parts=${experts}_blocks,${experts}_scales
    $tool $source.out $parts $source
done

# If a weight_shape is not a multiple of the group size, the message names the module.
rm -rf bad && cp -r pack bad
"$OSH_TOOLS/st_edit" bad fill $attn.k_proj.weight_shape 8 2 fe00
code=0
"$ONESHOT" plan --model bad --scheme W8A16 --ignore lm_head >log 2>&1 || code=$?
[ $code = 1 ] && grep -q "$attn.k_proj has 254 input features, which groups of 128 do not divide" log || fail "exit $code"

# NaN and infinity as a scale are refused. A scale of 0 makes weights of 0. A negative scale is used
# like any other scale.
refused() { # argument: part of the message
    ! "$ONESHOT" --model bad --scheme W8A16 --ignore lm_head --output made --progress none >log 2>&1 || fail "not refused: $1"
    grep -q -- "$1" log || fail "the message lacks '$1'"
}
plant() { # arguments: source, tensor, bytes in hexadecimal
    rm -rf bad made* && cp -r $1 bad
    "$OSH_TOOLS/st_edit" bad fill $attn.k_proj.$2 0 $((${#3} / 2)) $3
}
plant pack weight_scale c07f && refused 'k_proj.weight_scale holds nan, want finite numbers'
plant pack weight_scale 80ff && refused 'k_proj.weight_scale holds -inf'
plant nv weight_scale 7f && refused 'k_proj.weight_scale holds nan'
plant nv weight_global_scale 00000000 && refused 'k_proj.weight_global_scale is 0, want a positive number'
plant mx4 weight_scale ff && refused 'k_proj.weight_scale holds inf'
plant fp8 weight_scale 0000c07f && refused 'k_proj.weight_scale holds nan'
plant pack weight_scale 0000
"$ONESHOT" --model bad --scheme W8A16 --group-size 128 --ignore lm_head --output made --progress none >log 2>&1 || fail "a scale of 0 is not accepted"
"$ONESHOT" verify made --model bad >log || fail "a scale of 0 is not accepted"
plant float input_scale 0000
! "$ONESHOT" eval --model bad --dataset "$data" --max-seq-length 32 --progress none >log 2>&1 || fail "an input scale of 0 is not refused"
grep -q 'a static scale is 0, want a positive number.*k_proj' log || fail "an input scale of 0 is not refused"
