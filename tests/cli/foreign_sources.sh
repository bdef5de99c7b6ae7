# foreign_sources.sh - tests 4-bit sources in the formats of other libraries. With and without data,
# such a source must give the same output as a source of compressed-tensors with equal codes. The
# config of the output must not describe the quantization of the source. Budgets must be kept. The
# program must refuse sources that it cannot read.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=$model/data/calibration.jsonl
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
one() { last_wins "$ONESHOT" --progress none --group-size 32 --scheme W8A16 "$@" >log 2>&1 || fail "exit $?: $*"; }
gptq() { one --quality gptq --dataset "$data" --num-calibration-samples 2 --max-seq-length 48 "$@"; }
refused() { # arguments: part of the message, then the arguments of oneshot
    local code=0
    rm -rf x x.oneshot-partial
    last_wins "$ONESHOT" --progress none --scheme W8A16 --group-size 32 "${@:2}" >log 2>&1 || code=$?
    [ $code = 1 ] && grep -q -- "$1" log || fail "exit $code, wanted 1 and '$1': ${*:2}"
}
same() { cmp "$1/model.safetensors" "$2/model.safetensors"; cmp "$1/config.json" "$2/config.json"; }
describe() { # arguments: a source, members of its description as Python
    rm -rf other && cp -r "$1" other
    python3 - "$2" <<'P'
import json, sys
c = json.load(open("other/config.json"))
c["quantization_config"].update(eval(sys.argv[1]))
json.dump(c, open("other/config.json", "w"))
P
}
"$ONESHOT" --model "$model" --scheme W4A16_ASYM --group-size 32 --progress none --output packed >/dev/null 2>&1
one --model packed --output a
gptq --model packed --output b
"$ONESHOT" eval --model packed --dataset "$data" --max-seq-length 48 --max-windows 2 --progress none >packed.eval
formats="gptq gptq_v2 gptq_file awq awq_gemv"
for how in $formats; do
    python3 "$OSH_SOURCE_DIR/tests/tools/repack.py" packed $how $how
    one --model $how --output $how.a
    same a $how.a
    [ -z "$(find $how.a -name 'quant*')" ] || fail "$how.a has a description of its source"
    "$ONESHOT" verify $how.a --model $how >log || fail "verify of $how fails"
    "$ONESHOT" eval --model $how --dataset "$data" --max-seq-length 48 --max-windows 2 --progress none >log || fail "eval of $how fails"
    cmp log packed.eval
    "$ONESHOT" inspect $how >log || fail "inspect of $how fails"
    grep -q "^quantized  28 modules by ${how%%_*}$" log || fail "inspect of $how fails"
    "$ONESHOT" plan --model $how --scheme W8A16 --group-size 32 >log || fail "plan of $how fails"
    [ $how = gptq ] || [ $how = awq ] || continue
    gptq --model $how --output $how.b
    same b $how.b
    code=0 # checks that the smallest budget in the message is enough
    last_wins "$ONESHOT" --model $how --scheme W8A16 --group-size 32 --progress none --output c --host-memory 5MiB >log 2>&1 || code=$?
    [ $code = 2 ] || fail "5 MiB are enough for $how"
    one --model $how --output c --threads 1 --prefetch false --$(grep -o 'host-memory [0-9]*MiB' log | tail -1)
    same a c
    rm -r c
done

# Tests the 4-bit format of bitsandbytes, in which the codes are one sequence of blocks.
"$ONESHOT" --model "$model" --scheme W4A16 --group-size 32 --progress none --output sym >/dev/null 2>&1
python3 "$OSH_SOURCE_DIR/tests/tools/repack.py" sym bnb bitsandbytes
for m in sym bnb; do
    one --model $m --output $m.a --threads 1
    gptq --model $m --output $m.b
    "$ONESHOT" verify $m.b --model $m >log || fail "verify of $m fails"
done
same sym.a bnb.a
same sym.b bnb.b
up=model.layers.1.mlp.up_proj
cp -r bnb other2 && "$OSH_TOOLS/st_edit" other2 fill $up.weight.quant_state.bitsandbytes__nf4 0 1 5b
refused 'quant_state.bitsandbytes__nf4' --model other2 --output x
rm -r other2 && cp -r bnb other2 && "$OSH_TOOLS/st_edit" other2 fill $up.weight.absmax 0 4 0000c07f
refused 'up_proj.weight.absmax holds nan' --model other2 --output x
rm -r other2 && cp -r bnb other2 && "$OSH_TOOLS/st_edit" other2 rename $up.weight.quant_state.bitsandbytes__nf4 $up.weight.quant_state.bitsandbytes__fp8
refused 'up_proj.weight.quant_state.bitsandbytes__fp4 are missing: want one' --model other2 --output x

# Tests NVFP4 of ModelOpt. ModelOpt stores the reciprocal of the global scale. The reciprocal is
# rounded, so the last bits of values may differ.
"$ONESHOT" --model "$model" --scheme NVFP4A16 --progress none --output nv >/dev/null 2>&1
python3 "$OSH_SOURCE_DIR/tests/tools/repack.py" nv modelopt modelopt
for m in nv modelopt; do
    gptq --model $m --output $m.b
    "$ONESHOT" verify $m.b --model $m >log || fail "verify of $m fails"
    "$ONESHOT" eval --model $m --dataset "$data" --max-seq-length 48 --max-windows 2 --progress none | tail -1 | cut -c 1-15 >$m.eval
done
cmp nv.eval modelopt.eval
grep -q '^perplexity ' nv.eval || fail "eval of NVFP4 fails"
describe modelopt '{"quant_algo": "NVFP4_AWQ"}'
refused "quant_algo 'NVFP4_AWQ': want FP8" --model other --output x
describe modelopt '{"group_size": 32}'
refused 'group_size is 32, want 16 for NVFP4' --model other --output x
rm -rf other && cp -r modelopt other
"$OSH_TOOLS/st_edit" other dup model.layers.1.mlp.up_proj.weight_scale model.layers.0.self_attn.q_proj.pre_quant_scale
refused 'q_proj.pre_quant_scale: weights with pre_quant_scale are not supported' --model other --output x
rm -rf other && cp -r modelopt other
"$OSH_TOOLS/st_edit" other dup model.layers.1.mlp.up_proj.weight_scale_2 model.layers.1.mlp.up_proj.weight_scale_3
refused 'up_proj.weight_scale_3: the program does not know this tensor of a module with codes of modelopt' --model other --output x
"$OSH_TOOLS/st_edit" modelopt fill model.layers.1.mlp.up_proj.weight_scale 0 1 7f
refused 'up_proj.weight_scale holds nan' --model modelopt --output x

# A quantize_config.json, which describes the quantization, is a part of the source. If this file
# changes, the run is refused.
sed -i 's/"bits": 4/"bits":  4/' gptq_file/quantize_config.json
code=0
last_wins "$ONESHOT" --progress none --group-size 32 --scheme W8A16 --model gptq_file --output gptq_file.a >log 2>&1 || code=$?
[ $code = 2 ] && grep -q 'quantize_config.json' log || fail "exit $code: a changed quantize_config.json is not refused"

# AutoRound writes tensors in the format of GPTQ (with one of two conventions of zero points), or in
# the format of AWQ.
for pair in gptq:auto_round:auto_gptq gptq_v2:auto_round awq:auto_round:auto_awq; do
    describe "${pair%%:*}" "{'quant_method': 'auto-round', 'packing_format': '${pair#*:}', 'data_type': 'int'}"
    rm -rf autoround
    one --model other --output autoround
    cmp a/model.safetensors autoround/model.safetensors
done

# Tests variants that the program does not know.
describe gptq '{"quant_method": "auto-round", "packing_format": "auto_round:fp8"}'
refused "packing_format is 'auto_round:fp8', want auto_round" --model other --output x
describe gptq '{"bits": 5}'
refused 'bits 5: want 2, 3, 4 or 8' --model other --output x
describe gptq '{"checkpoint_format": "marlin"}'
refused "checkpoint_format is 'marlin', want gptq or gptq_v2" --model other --output x
describe gptq '{"bits": 8}'
refused 'do not hold codes of 8 bits' --model other --output x
describe gptq '{"group_size": 64}'
refused 'scales for .* groups, want .*: 512 input features in groups of 64' --model other --output x
describe gptq '{"group_size": 33, "dynamic": {"+:.*": {"bits": 4}}}'
"$OSH_TOOLS/st_edit" other drop model.layers.1.mlp.up_proj.g_idx
refused 'can have groups of several sizes, and modules may differ' --model other --output x
describe awq '{"bits": 3}'
refused 'quant_method awq with bits 3: want 4' --model other --output x
describe awq '{"version": "marlin"}'
refused "version 'marlin': want gemm or gemv" --model other --output x
describe awq '{"version": "gemv"}'
refused 'qzeros has the shape .*: want' --model other --output x
describe awq '{"group_size": 48}'
refused 'input features, which groups of 48 do not divide' --model other --output x
describe gptq '{}'
"$OSH_TOOLS/st_edit" other fill model.layers.1.mlp.up_proj.g_idx 8 4 ffffff7f
refused 'up_proj.g_idx holds 2147483647, want a group from 0 to 7' --model other --output x
describe gptq '{}'
"$OSH_TOOLS/st_edit" other fill model.layers.1.mlp.up_proj.scales 0 2 c07f
refused 'up_proj.scales holds nan, want finite numbers' --model other --output x

# A source with codes, but without a description of the quantization, is refused. Tests a known and
# an unknown architecture.
rm -rf other && cp -r "$model" other
python3 - "$OSH_SOURCE_DIR/tests/tools" <<'P'
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from tensors import read, write
path = next(pathlib.Path("other").glob("*.safetensors"))
tensors, name = read(path), "model.layers.1.mlp.up_proj.weight"
_, shape, raw = tensors[name]
tensors[name] = ("I8", shape, raw[:len(raw) // 2])
write(path, tensors)
P
refused 'up_proj.weight is I8, want BF16, F16 or F32' --model other --output x
sed -i 's/"llama"/"nobody"/; s/LlamaForCausalLM/NobodyForCausalLM/' other/config.json
refused 'up_proj.weight is I8, and the model has no quantization_config for its codes' --model other --output x
