# families.sh - calibrates and solves a tiny checkpoint of every family of models/. The targets are
# whole layers, or single Linears. verify must accept the output, which must have codes for each
# Linear of the layers. The perplexity of the output must be near that of the source.
set -euo pipefail
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
gptq_recipe 8 8 >recipe.yaml
perplexity() { # argument: model
    "$ONESHOT" eval --model "$1" --dataset "$case/calibration.jsonl" --progress none | sed -n 's/^perplexity \([0-9.]*\).*/\1/p'
}
codes() { grep -o '"[^"]*weight_packed"' "$1/oneshot-manifest.json" | sort -u | wc -l; }
check() { # arguments: case, Linears in a layer, layers, other Linears
    case=$1
    case "$SANITIZED $case" in # builds with sanitizers are slow: they get one family of each kind
    ' '* | *' gemma3' | *' phi3_longrope' | *' gpt_neox' | *' opt_after' | *' qwen2_moe') ;;
    *) return ;;
    esac
    rm -rf "$case" out
    "$OSH_TOOLS/tiny_model" "$case" "$case"
    local job=(--model "$case" --recipe recipe.yaml --dataset "$case/calibration.jsonl" --progress none --threads 2 --output out)
    "$ONESHOT" "${job[@]}" --sequential-targets Linear >/dev/null || fail "$case: Linears as targets"
    rm -rf out
    "$ONESHOT" "${job[@]}" >/dev/null || fail "$case: the run fails"
    "$ONESHOT" verify out --model "$case" >log || fail "$case: $(cat log)"
    local n
    n=$(codes out)
    [ "$n" = $(($2 * $3 + ${4:-0})) ] || fail "$case: $n Linears have codes, want $(($2 * $3 + ${4:-0}))"
    awk -v a="$(perplexity "$case")" -v b="$(perplexity out)" -v name="$case" \
        'BEGIN { print name, a, b; exit !(a > 1 && b > 1 && b < 1.02 * a && a < 1.02 * b) }' || fail "$case: perplexity"
}
check smollm3 7 3
check granite 7 2
check olmo2 7 2
check olmo3 7 4
check ministral3 7 2
check stablelm 7 2
check stablelm_parallel 7 2
check phi3 4 2
check phi3_longrope 4 2
check glm4 6 2
check gemma2 7 2
check gemma3 7 3
# Two layers use keys and values of other layers, and a projection is before the first layer.
check gemma4 9 4 -3
check gemma4_k_eq_v 7 4 -2 # the layers with full attention use keys as values
check gpt_neox 4 2
check gpt_neox_serial 4 2
check opt 6 2
check opt_after 6 2 2
check falcon 4 2
check falcon_new 4 2
check falcon_old 4 2
check mixtral 16 2
check gpt_oss 4 2 # the experts have no codes
check qwen3_5 7 2 1 # the layer with a recurrent state has 8 Linears
check qwen3_next 6 2 13
check qwen3_5_moe 19 2 1
check qwen3_moe_stacked 16 2
check mamba2 2 2
check granite_hybrid 4 2 6 # the layer with attention has 4 Linears
check granite_hybrid_moe 4 2 6 # experts are in one tensor, so they are not quantized
check qwen2_moe 19 2 -12
check glm4_moe 7 2 18 # a dense layer, and a layer with 6 experts and a shared expert
check deepseek_v2 7 2 18
check deepseek_v3 8 2 18
check llava 7 2 # this line and some of the next lines: text models of vision models
check gemma3_vision 7 3
check gemma4_vision 9 2 1 # the towers stay dense
check gemma4_moe 7 2 # the experts are in one tensor, so they are not quantized
check qwen2_5_vl 7 2
check qwen3_vl 7 2
if [ -d qwen3_vl ]; then # the class Embedding names the table of tokens, not that of the tower's positions
    rm -rf out
    "$ONESHOT" --model qwen3_vl --scheme W8A16 --group-size -1 --targets Embedding --progress none --output out >/dev/null
    "$ONESHOT" verify out --model qwen3_vl >log || fail "qwen3_vl, Embedding: $(cat log)"
fi
check mllama 7 2 # only 2 of the 3 layers have codes, because text does not use the third layer
sed -i 's/lm_head/"re:.*lm_head"/' recipe.yaml # in these models the head is language_model.lm_head
# Two dense layers, and two MoE layers with 4 Linears in attention, 4 experts and a shared expert (3
# Linears each).
check llama4 7 2 38
# a dense layer, and a layer with 4 experts (two per token) and a shared expert
check llama4_two 7 2 12
sed -i 's/"re:.*lm_head"/lm_head/' recipe.yaml

# For each kind of layer, calibrates one family of tests/golden/families. Only Linears of layers
# have codes. Routers, convolutions, heads, towers and the block for multi-token prediction have no
# codes.
solved() { # arguments: family, number of Linears with codes
    case $SANITIZED in ?*) return ;; esac
    rm -rf "$1" out
    "$OSH_TOOLS/tiny_model" "../families/logits/$1" "$1"
    "$ONESHOT" --model "$1" --recipe recipe.yaml --dataset "$1/calibration.jsonl" --progress none --threads 2 --output out >/dev/null ||
        fail "$1: the run fails"
    "$ONESHOT" verify out --model "$1" >log || fail "$1: $(cat log)"
    [ "$(codes out)" = "$2" ] || fail "$1: $(codes out) Linears have codes, want $2"
}
solved lfm2 12
solved lfm2_moe 21
solved hunyuan_v1_moe 38
solved ernie4_5_moe 52
solved minimax_m2 32
solved bamba 12
solved codegen 8
solved qwen3_5 15
if [ -d qwen3_5 ]; then
    grep -qF '"re:^mtp.*"' out/config.json || fail "the block for multi-token prediction is not in ignore"
    grep -aqF '"mtp.layers.0.mlp.up_proj.weight"' out/model.safetensors || fail "the block for multi-token prediction is not dense"
    tr ',' '\n' <out/config.json | grep -F '"re:' | grep -E 'layers|proj' && fail "a pattern of ignore hits a layer"
fi

# Without data, towers are rounded, too. The model has 7 Linears in each of 2 layers, 6 in the tower
# and 2 after the tower; ignored Linears stay dense. The config lists an ignored Linear by its name
# in the file and by its module name.
"$OSH_TOOLS/tiny_model" llava sees
sed 's/GPTQModifier/QuantizationModifier/; s/lm_head/lm_head, "re:.*mlp.fc1", "re:language_model.*0.self_attn.[qkv]_proj"/' \
    recipe.yaml >tower.yaml
"$ONESHOT" --model sees --recipe tower.yaml --progress none --output seen >/dev/null || fail "a part of a tower is not left out"
[ "$(codes seen)" = 18 ] || fail "$(codes seen) Linears of a model that sees have codes, want 18"
for want in '"re:.*lm_head.*"' '"re:.*language_model.*layers.0.self_attn.q_proj$"' '"re:.*vision_tower.encoder.layers.0.mlp.fc1$"'; do
    grep -qF "$want" seen/config.json || fail "no $want in ignore"
done
"$ONESHOT" verify seen --model sees >/dev/null || fail "a tower with codes does not verify"

# The Linears of Llama 4's tower and projector stay dense, and Mistral 3's merging_layer, too. The
# classes of vLLM have no parameters for codes of these Linears.
"$OSH_TOOLS/tiny_model" llama4 tower
sed 's/GPTQModifier/QuantizationModifier/; s/lm_head/"re:.*lm_head", "re:.*experts"/' recipe.yaml >tower.yaml
"$ONESHOT" --model tower --recipe tower.yaml --progress none --output rest >/dev/null || fail "Llama 4 is not rounded"
[ "$(codes rest)" -gt 0 ] || fail "Llama 4: no codes"
grep -aqF 'vision_model.model.layers.0.self_attn.q_proj.weight"' rest/model.safetensors || fail "Llama 4: no dense tower"
"$OSH_TOOLS/tiny_model" llava merges
sed -i 's/LlavaFor/Mistral3For/; s/"llava"/"mistral3"/' merges/config.json
"$OSH_TOOLS/st_edit" merges dup multi_modal_projector.linear_1.weight multi_modal_projector.patch_merger.merging_layer.weight
"$ONESHOT" --model merges --recipe tower.yaml --progress none --output merged >/dev/null || fail "Mistral 3 is not rounded"
for want in linear_1.weight_packed patch_merger.merging_layer.weight; do
    grep -aqF "multi_modal_projector.$want\"" merged/model.safetensors || fail "Mistral 3: no $want"
done

# A config that the template does not support is refused before the job starts. Rounding to nearest
# needs no template.
"$OSH_TOOLS/tiny_model" stablelm s
sed -i 's/{/{"qk_layernorm": true,/' s/config.json
if "$ONESHOT" plan --model s --recipe recipe.yaml --dataset s/calibration.jsonl 2>err; then fail "qk_layernorm is not refused"; fi
grep -q 'qk_layernorm is true: want false' err || fail "$(cat err)"
"$OSH_TOOLS/tiny_model" qwen3_next q
sed -i 's/"hidden_act":[ \t]*"[a-z]*"/"hidden_act": "gelu"/' q/config.json
grep -q '"hidden_act": "gelu"' q/config.json || fail "no hidden_act: $(cat q/config.json)"
if "$ONESHOT" plan --model q --recipe recipe.yaml --dataset q/calibration.jsonl 2>err; then fail "gelu in a convolution"; fi
grep -q 'hidden_act is not silu, which the convolutions want' err || fail "$(cat err)"
sed -i 's/GPTQModifier/QuantizationModifier/' recipe.yaml
"$ONESHOT" --model s --recipe recipe.yaml --progress none --output rounded >/dev/null || fail "not rounded"
[ "$(codes rounded)" = 14 ] || fail "rounded: other Linears"

# GPT-2 has Conv1D modules instead of Linears. So it cannot be quantized, and a message must say so.
# `oneshot eval` must read its transposed weights. A checkpoint whose names do not begin with
# "transformer.", as in the released files, must give the same perplexity.
"$OSH_TOOLS/tiny_model" gpt2 conv
case=conv
mkdir bare
cp conv/config.json bare
LC_ALL=C sed 's/"transformer\.\([^"]*\)"/"\1"            /g' conv/model.safetensors >bare/model.safetensors
n=$(perplexity conv)
[ -n "$n" ] && [ "$n" = "$(perplexity bare)" ] || fail "without transformer. in its names: $(perplexity bare), want $n"
if "$ONESHOT" plan --model conv --recipe recipe.yaml --dataset conv/calibration.jsonl 2>err; then fail "Conv1D is quantized"; fi
grep -q 'c_attn: a Conv1D, stored transposed' err || fail "$(cat err)"

# GPTQ of gpt-oss can be planned for a GPU, even if experts get only their routed tokens. The
# experts of gpt-oss are in one tensor and stay dense, so the config lists them in ignore.
"$OSH_TOOLS/tiny_model" gpt_oss g
gptq_recipe 8 8 >recipe.yaml
job=(--model g --recipe recipe.yaml --dataset g/calibration.jsonl --device-model h100)
"$ONESHOT" plan "${job[@]}" >/dev/null || fail "sinks are not for a GPU"
"$ONESHOT" plan "${job[@]}" --moe-calibrate-all-experts false >/dev/null || fail "rows by route on a GPU"
"$ONESHOT" --model g --recipe recipe.yaml --dataset g/calibration.jsonl --progress none --output sunk >/dev/null || fail "gpt-oss"
grep -qF '"re:.*\\.mlp\\.experts\\..*"' sunk/config.json || fail "experts are not in ignore: $(cat sunk/config.json)"

# In Llama 4, the input of an expert is the token times the token's routing weight for this expert.
# So if a token selects two experts, their inputs differ. The weight also exists for experts to
# which the token is not sent.
"$OSH_TOOLS/tiny_model" llama4_two two
job=(--model two --recipe recipe.yaml --dataset two/calibration.jsonl --progress none)
"$ONESHOT" "${job[@]}" --moe-calibrate-all-experts false --output by_route >/dev/null || fail "two experts, routed rows"
"$ONESHOT" verify by_route --model two >log || fail "two experts, routed rows: $(cat log)"
