# no_template.sh - tests a checkpoint of an architecture without a template. Only tensors that are
# certainly Linears of a decoder block are quantized. The plan lists dense modules with the reason,
# and prints a warning if there are many. If no loader reads codes for a module, the module must not
# have codes.
set -euo pipefail
fail() { echo "$*"; exit 1; }
"$OSH_TOOLS/make_model" m hidden=128 intermediate=128 heads=4 kv=2 head_dim=32 layers=2 vocab=96 experts=4 topk=2 \
    samples=1 tokens=8 >/dev/null
sed -i 's/Qwen3MoeForCausalLM/OddForCausalLM/; s/"qwen3_moe"/"odd"/' m/config.json
edit() { "$OSH_TOOLS/st_edit" "$@"; }
plan() { "$ONESHOT" plan --verbose --model m --scheme W4A16 "$@"; }
run() { "$ONESHOT" --model m --scheme W4A16 --output out --progress none "$@"; }

plan >plan
grep -q '^dense: model.layers.\*.mlp.gate (2, 0.00 MB): a router$' plan || fail "no router: $(cat plan)"
grep -q '^dense: lm_head (1, 0.02 MB): a head$' plan || fail "no head: $(cat plan)"
grep -q 'it is unknown if vLLM and transformers load OddForCausalLM' plan || fail "the plan does not name the loaders: $(cat plan)"
if grep -qE 'vLLM on|^warning' plan; then fail "vLLM is named, or a warning is given: $(cat plan)"; fi
plan --json | tr -d '\n ' | grep -q '{"bytes":2048,"modules":"model.layers.\*.mlp.gate","n":2,"why":"arouter"}' ||
    fail "the list is not in the JSON"
run >/dev/null 2>err || fail "$(cat err)"
[ ! -s err ] || fail "the run prints a needless warning: $(cat err)"
tr -d '\n ' <out/config.json |
    grep -q '"ignore":\["model.layers.0.mlp.gate","model.layers.1.mlp.gate","lm_head"\]' || fail "ignore: $(cat out/config.json)"
"$ONESHOT" verify out --model m >log || fail "$(cat log)"
"$ONESHOT" inspect out | grep -q 'it is unknown if vLLM and transformers load OddForCausalLM' || fail "inspect"

# Checks the first lines of inspect, which have at most 80 columns.
summary() { # arguments: model, wanted lines; "..." in a line is any text
    local line want
    "$ONESHOT" inspect "$1" | sed '/^$/,$d' >said
    awk 'length($0) > 80 { exit 1 }' said || fail "a line is too long: $(cat said)"
    for want in "${@:2}"; do
        IFS= read -r line || line=
        [[ $line == ${want//.../*} ]] || fail "inspect $1: want '$want': $(cat said)"
    done <said
}
docs=$OSH_SOURCE_DIR/examples/docs-llama-3m
summary "$docs" 'model      LlamaForCausalLM, 3.4 million parameters, BF16, 6.8 MB in 1 file' 'layers     4 of LlamaDecoderLayer' \
    'head       lm_head, tied to model.embed_tokens.weight' 'tokenizer  tokenizer.json with 4096 tokens; with a chat template' \
    'quantized  no' 'data       recipes with calibration data are supported' ''
cp -r "$docs" stray && sed -i 's/"hidden_size"/"num_experts": 8, "num_experts_per_tok": 2, &/' stray/config.json
# the config has a key that is not used in Llama
summary stray 'model ...' 'layers     4 of LlamaDecoderLayer' 'head ...'
summary m 'model      OddForCausalLM, ... million parameters, BF16, ... MB in 3 files' \
    'layers     2; 4 experts, 2 of them for a token' 'head       not tied by config.json' \
    'tokenizer  no tokenizer.json: data must have token ids' 'quantized  no' \
    'data       only recipes without data are supported: OddForCausalLM is not known' '           (oneshot help models)' ''
"$ONESHOT" inspect m >whole
rm -rf f && cp -r out f
sed -i 's/OddForCausalLM/Qwen3MoeForCausalLM/; s/"odd"/"qwen3_moe"/' f/config.json
summary f 'model      Qwen3MoeForCausalLM, '"$(sed -n 's/^model.*, \(.* parameters\), .*/\1/p' whole)"', ...' \
    'layers     2 of Qwen3MoeDecoderLayer; 4 experts, 2 of them for a token' 'head       lm_head, with its own weight' \
    'tokenizer  no ...' 'quantized  ... modules by compressed-tensors: weights 4-bit integer, a scale ...' '           each group of 128' \
    'data       recipes with calibration data are supported' ''
sed -i 's/"hidden_size": 128/"hidden_size": 120/' f/config.json
"$ONESHOT" inspect f >said
grep -q "^data       only recipes without data are supported: tensor$" said || fail "inspect does not name the fault: $(head -8 said)"

# Tests outputs in which a module has codes, although loaders expect a dense weight.
# arguments: module, its new name, a description of the module, commands that edit the config
planted() {
    rm -rf f && cp -r out f
    for leaf in packed scale shape; do edit f rename "$1.weight_$leaf" "$2.weight_$leaf"; done
    sed -i "${4:-}" f/config.json
    edit f index
    edit f manifest
    if "$ONESHOT" verify f >log 2>err; then fail "$2: not found"; fi
    grep -qF "$2: has codes and is $3" log || fail "$2: $(cat log)"
}
o=model.layers.0.self_attn.o_proj
planted $o model.layers.0.mlp.router "a router"
planted model.layers.0.self_attn.k_proj model.layers.0.block_sparse_moe.gate "a router"
planted $o model.layers.0.mlp.shared_expert_gate "a router"
planted $o model.embed_positions "a table of positions"
planted $o model.layers.0.post_norm "a norm"
planted $o model.layers.0.attn.c_proj "a Conv1D, stored transposed" 's/"odd"/"gpt2"/'
rm -rf out f

# A module that is perhaps a Linear is quantized only if the targets name it. A router is never
# quantized.
run --targets 're:.*lm_head$' >/dev/null 2>&1
[ "$(grep -c '"rule": "quantized"' out/oneshot-manifest.json)" = 3 ] || fail "other modules than wanted are quantized"
rm -rf out
run --targets 're:.*' >/dev/null
if grep -q '"lm_head.weight_packed"\|gate.weight_packed\|embed_tokens.weight_packed' out/oneshot-manifest.json; then fail "re:.* names no head"; fi
rm -rf out
run --targets Embedding >/dev/null
grep -q '"model.embed_tokens.weight_packed"' out/oneshot-manifest.json || fail "the embedding has no codes"
"$ONESHOT" verify out --model m >log || fail "$(cat log)"
rm -rf out
code=0; run --targets model.layers.0.mlp.gate 2>err || code=$?
[ $code = 2 ] && grep -q 'target model.layers.0.mlp.gate of QuantizationModifier is a router and stays dense' err ||
    fail "a router in the targets: exit $code, $(cat err)"

# Tests the warning that a large part of the decoder blocks stays dense. The plan and the report
# must have it. The run must print it before and after its work.
rm -rf out
plan --ignore 're:.*self_attn.*' >plan
warning='20.2 % of the decoder blocks. weight bytes stay dense, most of them in model.layers.\*.self_attn.[qo]_proj: ignored by the recipe'
grep -qE "^warning: $warning" plan || fail "no warning: $(cat plan)"
run --ignore 're:.*self_attn.*' >/dev/null 2>err
[ "$(grep -cE "^warning: $warning" err)" = 2 ] || fail "not warned twice: $(cat err)"
grep -q '"dense_share": *0.20' out/oneshot-report.json || fail "not in the report"
rm -rf out

# A module may have another name in transformers. Then `ignore` also has a regex for the other name.
# An example is GPT-NeoX's embed_out, whose other name is lm_head.
edit m rename lm_head.weight embed_out.weight
edit m index
run >/dev/null
tr -d '\n ' <out/config.json | grep -q '"embed_out","re:.\*lm_head.\*"\]' || fail "ignore: $(cat out/config.json)"
"$ONESHOT" verify out --model m >log || fail "$(cat log)"

# A head with an unknown name is recognized by its number of rows (the size of the vocabulary). Such
# a head is not quantized, and no lm_head is added when the embedding gets codes.
rm -rf out
edit m rename embed_out.weight model.output.weight
edit m index
plan >plan
grep -q '^dense: model.output (1, 0.02 MB): a head$' plan || fail "no head by shape: $(cat plan)"
sed -i 's/"tie_word_embeddings": *false/"tie_word_embeddings": true/' m/config.json
run --targets Embedding >/dev/null
if grep -q lm_head.weight out/oneshot-manifest.json; then fail "the output has a second head"; fi
"$ONESHOT" verify out --model m >log || fail "$(cat log)"
