# target.sh - tests --target. Some families store all experts in one tensor, and only vLLM's loader
# can read codes of single experts. With `--target vllm`, the output must have codes of these
# experts, under the names of vLLM's loader. With other targets these experts must stay dense.
# verify must check an output for the target that its manifest names.
set -euo pipefail
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
gptq_recipe 8 8 >gptq.yaml
sed 's/GPTQModifier/QuantizationModifier/' gptq.yaml >rtn.yaml
perplexity() { "$ONESHOT" eval --model "$1" --dataset "$case/calibration.jsonl" --progress none | sed -n 's/^perplexity \([0-9.]*\).*/\1/p'; }
names() { tr ',' '\n' <"$1/oneshot-manifest.json" | sed -n 's/.*"name": "\(.*experts[^"]*\)"/\1/p' | sort -u; }
has() { grep -qF "$2" "$1" || fail "$case: no '$2' in $1: $(cat "$1")"; }

check() { # arguments: case, name of an expert's codes, Linears with codes
    case=$1
    rm -rf "$case" vllm both rounded
    "$OSH_TOOLS/tiny_model" "$case" "$case"
    local job=(--model "$case" --recipe gptq.yaml --dataset "$case/calibration.jsonl" --progress none --threads 2)
    "$ONESHOT" "${job[@]}" --target vllm --output vllm >/dev/null 2>err || fail "$case: $(cat err)"
    names vllm >log
    has log "$2"
    [ "$(grep -c 'weight_packed$' log)" = "$3" ] || fail "$case: $(grep -c 'weight_packed$' log) experts' Linears, want $3"
    has vllm/README.md 'Transformers 5.17 finds no codes of the experts'
    "$ONESHOT" verify vllm --model "$case" >log || fail "$case: $(cat log)"
    awk -v a="$(perplexity "$case")" -v b="$(perplexity vllm)" -v name="$case" \
        'BEGIN { print name, a, b; exit !(a > 1 && b > 1 && b < 1.02 * a && a < 1.02 * b) }' || fail "$case: perplexity"
    "$ONESHOT" --model "$case" --recipe rtn.yaml --progress none --target vllm --output rounded >/dev/null || fail "$case: not rounded"
    "$ONESHOT" verify rounded --model "$case" >log || fail "$case, rounded: $(cat log)"
    "$ONESHOT" plan "${job[@]}" --target vllm --verbose >plan
    has plan '; transformers 5.17 finds no codes of experts'
    "$ONESHOT" plan "${job[@]}" --verbose >plan
    has plan 'experts in one tensor; transformers does not find their codes, vLLM does (--target vllm)'
}
check granite_hybrid_moe model.layers.0.block_sparse_moe.experts.1.up_proj.weight_packed 36
check gemma4_moe model.layers.0.experts.1.up_proj.weight_packed 24
check gpt_oss model.layers.0.mlp.experts.1.w13_weight_packed 16

# verify refuses an output if its target and its tensors do not agree.
sed 's/"target": "vllm"/"target": "both"/' vllm/oneshot-manifest.json >manifest
if cmp -s manifest vllm/oneshot-manifest.json; then fail "the manifest has no target"; fi
cp manifest vllm/oneshot-manifest.json
if "$ONESHOT" verify vllm --model gpt_oss >log; then fail "verify accepts an output without its target"; fi
has log 'experts.0.w13_weight_packed'

# For gpt-oss, vLLM's loader reads no zero points. In a quantized model it reads no dense experts.
refused() { # arguments: message, arguments of oneshot
    if "$ONESHOT" plan --model gpt_oss --target vllm "${@:2}" >log 2>err; then fail "not refused: $*"; fi
    has err "$1"
}
refused 'only as packed symmetric integers, and this is asymmetric pack-quantized' --scheme W4A16_ASYM --group-size 8 --quality fast
refused 'measure a model whose experts are in one tensor' --scheme W4A16 --group-size 8 --quality gptq --dataset gpt_oss/calibration.jsonl --target-bits 5
refused 'only as packed symmetric integers, and this is float-quantized' --scheme FP8_DYNAMIC
refused 'either all experts of gpt-oss are quantized or none' --scheme W4A16 --group-size 8 --quality fast --ignore 're:.*1.mlp.experts.*'

if "$ONESHOT" plan --model granite_hybrid_moe --target vllm --scheme NVFP4 --quality gptq --dataset gpt_oss/calibration.jsonl --indivisible dense >log 2>err; then
    fail "NVFP4 inputs of Granite's experts are not refused"
fi
case=granite_hybrid_moe
has err 'vLLM 0.32 stops at input_global_scale'

# Experts in FP8 are split with their scales.
case=granite_hybrid_moe
rm -rf stacked fp8 ./*-out
"$OSH_TOOLS/tiny_model" $case stacked
python3 "$OSH_SOURCE_DIR/tests/tools/fp8_experts.py" stacked fp8
for m in stacked fp8; do
    "$ONESHOT" --model $m --recipe gptq.yaml --dataset stacked/calibration.jsonl --progress none --target vllm --output $m-out >log 2>&1 || fail "$m: $(cat log)"
done
cmp stacked-out/model.safetensors fp8-out/model.safetensors || fail "the output of experts in FP8 has other bytes"

# Experts in MXFP4, as in the released gpt-oss, must give the same bytes as dense experts with equal
# values.
case=gpt_oss
"$OSH_TOOLS/tiny_model" gpt_oss sparse
python3 "$OSH_SOURCE_DIR/tests/tools/mxfp4.py" sparse mxfp4
for m in sparse mxfp4; do
    "$ONESHOT" --model $m --recipe gptq.yaml --dataset sparse/calibration.jsonl --progress none --target vllm --output $m-out >log 2>&1 || fail "$m: $(cat log)"
done
cmp sparse-out/model.safetensors mxfp4-out/model.safetensors || fail "the output of experts in MXFP4 has other bytes"
"$ONESHOT" verify mxfp4-out --model mxfp4 >log || fail "verify of experts in MXFP4 fails: $(cat log)"

# If transformers does not load experts with a scheme, only `--target transformers` refuses the
# scheme.
"$OSH_TOOLS/tiny_model" qwen3_moe q
job=(plan --model q --scheme W4A16_ASYM --group-size 8 --quality fast)
"$ONESHOT" "${job[@]}" >log 2>err || fail "$(cat err)"
case=qwen3_moe
has err 'transformers 5.17 does not load experts'
"$ONESHOT" "${job[@]}" --target vllm >log 2>err || fail "$(cat err)"
if grep -q transformers err; then fail "a warning about transformers for vLLM: $(cat err)"; fi
if "$ONESHOT" "${job[@]}" --target transformers >log 2>err; then fail "--target transformers does not refuse"; fi
has err 'want another scheme, or --target vllm'

# transformers uses one scheme for all experts, and finds dense experts only if other experts are
# FP8. The plan, the run, README.md and `oneshot inspect` name the experts that transformers would
# misread. --target transformers refuses outputs with such experts.
misread() { # arguments: message or "" (none), arguments of oneshot
    rm -rf out
    "$ONESHOT" --model q --output out --progress none "${@:2}" >log 2>err || fail "$*: $(cat err)"
    "$ONESHOT" inspect out >inspect
    "$ONESHOT" plan --model q --verbose "${@:2}" >plan 2>&1
    "$ONESHOT" verify out --model q >log || fail "$*: $(cat log)"
    if [ -z "$1" ]; then
        if grep -h 'transformers 5.17' err plan inspect; then fail "the text says that transformers does not load $*"; fi
        has out/README.md 'Transformers loads it'
        "$ONESHOT" plan --model q --target transformers "${@:2}" >log 2>err || fail "$*: $(cat err)"
        return
    fi
    has err "warning: transformers 5.17 $1 experts"
    has plan "; transformers 5.17 $1 experts"
    has inspect "transformers 5.17 $1 experts"
    has out/README.md "Transformers 5.17 $1 "
    if "$ONESHOT" plan --model q --target transformers "${@:2}" >log 2>err; then fail "not refused: $*"; fi
    has err 'want all experts'
}
mixed() { # arguments: target, bits, target, bits; writes mixed.yaml
    gptq_recipe "$2" 8 | sed "s/GPTQModifier/QuantizationModifier/; s/\[Linear\]/['$1']/" >mixed.yaml
    gptq_recipe "$4" 8 | sed "s/\[Linear\]/['$3']/; s/group_0/group_1/" | tail -3 >>mixed.yaml
}
case="one scheme of experts"
other="takes another group's scheme for"
mixed 're:.*self_attn.*' 8 're:.*mlp.*_proj$' 4
misread "$other" --recipe mixed.yaml
mixed 're:.*layers.[01].*' 4 're:.*layers.2.*' 8
misread "$other" --recipe mixed.yaml
mixed 're:.*self_attn.*' 8 're:.*mlp.experts.*' 4
misread "" --recipe mixed.yaml
mixed 're:.*self_attn.*' 8 Linear 4
misread "" --recipe mixed.yaml
rm -rf out
"$ONESHOT" --model q --output out --scheme W4A16 --group-size 8 --quality gptq --dataset gpt_oss/calibration.jsonl --target-bits 5 >log 2>err || fail "$(cat err)"
has err "$other"
has out/README.md "$other"
case="dense experts"
misread 'finds no dense' --scheme W8A16 --group-size 8 --quality fast --ignore 're:.*experts.*'
misread 'finds no dense' --scheme W8A16 --group-size 8 --quality fast --ignore 're:.*layers.0.mlp.experts.*'
misread "" --scheme FP8_DYNAMIC --ignore 're:.*layers.0.mlp.experts.*'
case="qwen3_vl_moe" # for qwen3_vl_moe, transformers reads experts only from tensors that have all
                    # experts
sed -i 's/"qwen3_moe"/"qwen3_vl_moe_text"/' q/config.json
misread 'finds no dense' --scheme FP8_DYNAMIC --ignore 're:.*experts.*'
"$ONESHOT" --model q --output codes --progress none --scheme FP8_DYNAMIC >log 2>err || fail "$(cat err)"
has err 'warning: transformers 5.17 finds no codes of experts'
if "$ONESHOT" plan --model q --scheme FP8_DYNAMIC --target transformers >log 2>err; then fail "the run is not refused"; fi
has err 'transformers 5.17 finds no codes of experts'
