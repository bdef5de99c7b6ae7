# quantized_sources.sh - tests sources that are already quantized. A source in compressed-tensors'
# FP8 format gives the same output as a source with the same codes and with scales named
# weight_scale_inv. This is tested with data and without data. The output has one
# quantization_config. Modules that stay dense are dequantized. Budgets are respected. A changed
# source is detected by its dequantized values. The error for an unsupported method names the
# method.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=$model/data/calibration.jsonl
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
one() { last_wins "$ONESHOT" --progress none --group-size 32 --scheme W4A16 "$@" >log 2>&1 || fail "exit $?: $*"; }
gptq() { one --quality gptq --dataset "$data" --num-calibration-samples 4 --max-seq-length 64 "$@"; }
refused() { # arguments: exit code, part of the message, then the arguments of oneshot
    local code=0
    last_wins "$ONESHOT" --progress none "${@:3}" >log 2>&1 || code=$?
    [ $code = "$1" ] && grep -q -- "$2" log || fail "exit $code, wanted $1 and '$2': ${*:3}"
}
same() { cmp "$1/model.safetensors" "$2/model.safetensors"; cmp "$1/config.json" "$2/config.json"; }
"$ONESHOT" --model "$model" --scheme FP8_BLOCK --progress none --output packed >/dev/null
cp -r packed fp8
for name in $("$ONESHOT" inspect packed | awk '$1 ~ /\.weight_scale$/ {print $1}'); do
    "$OSH_TOOLS/st_edit" fp8 rename "$name" "${name}_inv"
done
config() { # argument: the value of quantization_config
    python3 - "$1" "$2" <<'P'
import json, sys
path = sys.argv[1] + "/config.json"
c = json.load(open(path))
c["quantization_config"] = json.loads(sys.argv[2])
open(path, "w").write(json.dumps(c, indent=2) + "\n")
P
}
config fp8 '{"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}'

one --model packed --output a
one --model fp8 --output b
same a b
python3 -c '
import json
c = json.load(open("b/config.json"))["quantization_config"]
assert c["quant_method"] == "compressed-tensors" and list(c["config_groups"]) == ["group_0"], c'
"$ONESHOT" verify b --model fp8 >log || fail "verify fails"
gptq --model packed --output c
gptq --model fp8 --output d --threads 1 --batch-size 2
same c d
"$ONESHOT" verify d --model fp8 >log || fail "verify fails"
"$ONESHOT" check-model fp8 >log || fail "check-model"
grep -q '^38 tensors, 4 layers: 0 wrong, 0 missing from the template, 0 not needed$' log || fail "check-model finds faults"

# Tests a source of 6-bit floats, with four codes in three bytes.
"$ONESHOT" --model "$model" --scheme MXFP6A8 --progress none --output six >/dev/null
"$ONESHOT" --model six --scheme MXFP6A16 --progress none --output again >/dev/null
cmp six/model.safetensors again/model.safetensors
"$ONESHOT" verify again --model six >log || fail "verify fails"
grep -q '"version": "0.20.0"' again/config.json || fail "config.json has another version than 0.20.0"

# Modules that no target matches are written dense. Prefetch and bands do not change the bytes.
one --model fp8 --ignore lm_head,re:.*down_proj$ --output e
one --model fp8 --ignore lm_head,re:.*down_proj$ --output e1 --threads 1 --prefetch false
same e e1
"$ONESHOT" inspect e >log
grep -q 'layers.0.mlp.down_proj.weight  *BF16' log || fail "down_proj is not dense"
grep -q '"rule": "dequantized", "source": "model.layers.0.mlp.down_proj.weight"' e/oneshot-manifest.json ||
    fail "the manifest does not call it dequantized"
"$ONESHOT" verify e --model fp8 >log || fail "verify fails"

# The message names the smallest budget that would be enough. The job works with this budget.
for how in "" "--quality gptq --dataset $data --num-calibration-samples 4 --max-seq-length 64"; do
    refused 2 'want at least' --model fp8 --scheme W4A16 --group-size 32 $how --output f --host-memory 5MiB
    least=$(grep -o 'host-memory [0-9]*MiB' log | tail -1)
    one --model fp8 $how --output f --$least
    rm -r f
done

# A run must continue if a file of the source has a new date but the same bytes. The run must be
# refused if a scale has changed.
touch fp8/model.safetensors
one --model fp8 --output b
cp -r fp8 other
"$OSH_TOOLS/st_edit" fp8 flip model.layers.1.mlp.up_proj.weight_scale_inv 0 0
refused 2 'up_proj.weight has checksum' --model fp8 --scheme W4A16 --group-size 32 --output b
if "$ONESHOT" verify b --model fp8 >log 2>&1; then fail "verify accepts another source"; fi

config other '{"quant_method": "aqlm", "bits": 4}'
refused 1 "quant_method is 'aqlm', want compressed-tensors, gptq" --model other --scheme W4A16 --output g
config other '{"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}'
refused 1 "quant_algo 'W4A16_AWQ': want FP8" --model other --scheme W4A16 --output g
config other '{"quant_method": "fp8", "weight_block_size": [64, 128]}'
refused 1 'weight_scale_inv has the shape .*, which does not fit blocks of .64, 128. in a weight' --model other --scheme W4A16 --output g
config other '{"quant_method": "fp8"}'
"$OSH_TOOLS/st_edit" other drop model.layers.1.mlp.up_proj.weight_scale_inv
refused 1 'up_proj.weight is F8_E4M3, but its scale is missing' --model other --scheme W4A16 --output g

# Codes of compressed-tensors with three dimensions are refused. No program writes such codes.
cp -r a three
python3 - <<'P'
import json, struct
path = "three/model.safetensors"
b = open(path, "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8 : 8 + n])
h["model.layers.1.mlp.up_proj.weight_packed"]["shape"].insert(0, 1)
text = json.dumps(h, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
open(path, "wb").write(struct.pack("<Q", len(text)) + text + b[8 + n :])
P
refused 1 'up_proj.weight_packed has 3 dimensions' --model three --scheme W4A16 --output g

# The released gpt-oss has experts in MXFP4. Such experts give the same result as dense experts with
# equal values. Tests a run with data, and eval.
"$OSH_TOOLS/tiny_model" gpt_oss sparse
python3 "$OSH_SOURCE_DIR/tests/tools/mxfp4.py" sparse mxfp4
for m in sparse mxfp4; do
    small="--scheme W4A16 --group-size 16 --quality gptq --dataset sparse/calibration.jsonl --progress none"
    last_wins "$ONESHOT" --model $m $small --output $m-out >log 2>&1 || fail "the run fails for experts: $m"
    "$ONESHOT" eval --model $m --dataset sparse/calibration.jsonl --progress none >$m-eval || fail "eval of $m fails"
done
cmp sparse-out/model.safetensors mxfp4-out/model.safetensors
cmp sparse-eval mxfp4-eval
"$ONESHOT" plan --verbose --model mxfp4 $small >plan.txt # experts are written dense, in BF16
grep -q '^dense: model.layers.\*.mlp.experts.gate_up_proj (2, .* MB, codes in the source): experts in one tensor' plan.txt &&
    grep -q '^warning: the output is 1.[0-9]* times as large as the source, which stores codes' plan.txt || fail "$(cat plan.txt)"
! "$ONESHOT" plan --verbose --model sparse $small | grep -q 'as large as the source' || fail "a dense source grows"
"$ONESHOT" verify mxfp4-out --model mxfp4 >log || fail "verify fails"
"$ONESHOT" --model mxfp4 $small --output f --host-memory 5MiB 2>log && fail "a budget of 5 MiB is not refused"
"$ONESHOT" --model mxfp4 $small --output f --$(grep -o 'host-memory [0-9]*MiB' log | tail -1) >log 2>&1 || fail "the run fails with the smallest budget"
cmp f/model.safetensors mxfp4-out/model.safetensors

# Tests sources with all experts in one FP8 tensor. The output has separate tensors for Qwen's
# experts, and one tensor for Granite's experts.
for case in qwen3_moe_stacked granite_hybrid_moe; do
    rm -rf stacked stacked-fp8 ./*-out f
    "$OSH_TOOLS/tiny_model" $case stacked
    python3 "$OSH_SOURCE_DIR/tests/tools/fp8_experts.py" stacked stacked-fp8
    for m in stacked stacked-fp8; do
        small="--scheme W4A16 --group-size 8 --quality gptq --dataset stacked/calibration.jsonl --progress none"
        last_wins "$ONESHOT" --model $m $small --output $m-out >log 2>&1 || fail "the run fails for experts in FP8: $m of $case"
    done
    cmp stacked-out/model.safetensors stacked-fp8-out/model.safetensors
    "$ONESHOT" verify stacked-fp8-out --model stacked-fp8 >log || fail "verify fails"
    "$ONESHOT" --model stacked-fp8 $small --output f --host-memory 5MiB 2>log && fail "a budget of 5 MiB is not refused"
    "$ONESHOT" --model stacked-fp8 $small --output f --$(grep -o 'host-memory [0-9]*MiB' log | tail -1) >log 2>&1 ||
        fail "the run fails with the smallest budget"
    cmp f/model.safetensors stacked-fp8-out/model.safetensors
done
