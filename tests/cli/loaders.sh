# loaders.sh - checks that transformers and vLLM can read special outputs. Tests heads without a
# tensor in the checkpoint, and modules whose names differ from those in the file. Also tests
# entries of ignore that match no module of the source, and Linears that vLLM runs as one layer.
set -euo pipefail
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
tiny() { rm -rf "$2" && "$OSH_TOOLS/tiny_model" "$1" "$2"; }
edit() { "$OSH_TOOLS/st_edit" "$@"; }
run() { rm -rf out && "$ONESHOT" "$@" --output out --progress none >log 2>&1 || fail "$*: $(cat log)"; }
verify() { "$ONESHOT" verify out --model "$1" >log 2>&1 || fail "$1: $(cat log)"; }
# arguments: ENTRY must be in ignore; for -ENTRY, ENTRY must not be in ignore
has() { python3 - "$@" <<'P' || fail "$*: $(cat out/config.json)"; }
import json, sys
ignore = json.load(open("out/config.json"))["quantization_config"]["ignore"]
sys.exit(not all((a[1:] not in ignore) if a[0] == "-" else a in ignore for a in sys.argv[1:]))
P
tensor() { LC_ALL=C grep -aqF "\"$1\"" out/model.safetensors; }

# Tests a tied head of a model without a template. transformers has a Linear for the head, so the
# head is in the list `ignore`. The list also has all entries of the recipe, even entries that match
# nothing. verify reports a config that has the head in a group.
tiny qwen3_vl v
edit v drop lm_head.weight
edit v index
sed -i 's/Qwen3VLForConditionalGeneration/OddForConditionalGeneration/; s/"qwen3_vl"/"odd"/
        s/"tie_word_embeddings":	false/"tie_word_embeddings":	true/' v/config.json
run --model v --scheme FP8_DYNAMIC --ignore 're:.*lm_head,re:.*router.*,nothing.here'
has lm_head 're:(.*\.)?lm_head$' 're:.*lm_head' 're:.*router.*' nothing.here
verify v
sed -i '/lm_head/d; s/"re:.*router.*",//' out/config.json
if "$ONESHOT" verify out >log 2>&1; then fail "verify accepts a missing head in a config group: $(cat log)"; fi
grep -q '^lm_head: has no tensor, but config.json lists it in group_0' log || fail "$(cat log)"
run --model v --scheme W8A16 --group-size 8 --targets Embedding
tensor lm_head.weight || fail "the head has lost its weight"
[ "$(grep -c '"tie_word_embeddings":[[:space:]]*true' out/config.json)" = 0 ] || fail "still tied: $(cat out/config.json)"
verify v
sed -i 's/"odd"/"whisper"/' v/config.json # the head of this model has another name
run --model v --scheme FP8_DYNAMIC
has proj_out 're:(.*\.)?proj_out$'
verify v

# Tests a tied head that the checkpoint also stores. If the head or the embedding has codes, the
# head must be untied in the output, and verify must find an output in which it is still tied. If
# neither has codes, the head must stay tied. One model has a template, one has none, and one has
# the key tie_word_embeddings inside text_config.
tied() { grep -q '"tie_word_embeddings":[[:space:]]*true' out/config.json; }
tiny qwen3 n
tiny qwen3_vl inside
sed -i 's/"tie_word_embeddings":	false/"tie_word_embeddings":	true/' n/config.json inside/config.json
rm -rf odd && cp -r n odd && sed -i 's/Qwen3ForCausalLM/OddForCausalLM/; s/"qwen3"/"odd"/' odd/config.json
python3 - <<'P'
import json
c = json.load(open("inside/config.json"))
c["text_config"]["tie_word_embeddings"] = True
c.pop("tie_word_embeddings", None)
json.dump(c, open("inside/config.json", "w"))
P
for model in n odd inside; do
    for targets in Linear,lm_head lm_head 're:.*embed_tokens$'; do
        run --model $model --scheme W8A16 --group-size 8 --targets $targets
        tensor lm_head.weight || tensor lm_head.weight_packed || fail "$model, $targets: no head"
        if tied; then fail "$model, $targets: still tied: $(cat out/config.json)"; fi
        verify $model
        sed -i 's/\("tie_word_embeddings":[[:space:]]*\)false/\1true/' out/config.json
        if "$ONESHOT" verify out >log 2>&1; then fail "$model, $targets: a tied head with codes: $(cat log)"; fi
        grep -q '^config.json: tie_word_embeddings: is true, and the output has .*lm_head.weight' log || fail "$(cat log)"
    done
    run --model $model --scheme W8A16 --group-size 8
    tied || fail "$model: untied, and neither head nor table has codes"
    verify $model
done
# A pruned head must be untied, too.
printf 's_stage:\n  s_modifiers:\n    MagnitudePruningModifier: {init_sparsity: 0.0, final_sparsity: 0.5, targets: ["re:.*lm_head"]}\n' >prune.yaml
run --model n --recipe prune.yaml
if tied; then fail "a pruned head is tied: $(cat out/config.json)"; fi
verify n

# An entry of the ignore list is not written if it would match quantized modules in vLLM. Instead,
# the list has the names of the modules that the entry keeps dense.
tiny qwen3_vl v
run --model v --scheme FP8_DYNAMIC --ignore 're:.*attn.qkv.*,lm_head'
has '-re:.*attn.qkv.*' model.visual.blocks.0.attn.qkv
verify v

# Tests a model with a block for multi-token prediction. The block belongs to no layer. The head of
# the model is neither stored nor tied, so jobs that read logits fail.
tiny qwen3_vl v
for leaf in mlp.gate_proj mlp.up_proj self_attn.q_proj; do
    edit v dup model.language_model.layers.0.$leaf.weight mtp.layers.0.$leaf.weight
done
edit v drop lm_head.weight
edit v index
data=(--dataset v/calibration.jsonl --max-seq-length 16 --num-calibration-samples 2)
run --model v --scheme W8A16 --group-size 8 --method gptq "${data[@]}"
has mtp.layers.0.mlp.gate_proj 're:^mtp.*' lm_head
if grep -q '"re:.*language_model.*layers' out/config.json; then fail "a regex for mtp: $(cat out/config.json)"; fi
tensor model.language_model.layers.0.mlp.gate_proj.weight_packed || fail "layer 0 is dense"
verify v
if "$ONESHOT" eval --model v --dataset v/calibration.jsonl >log 2>&1; then fail "eval accepts a model without a head"; fi
grep -q 'has no lm_head.weight, and config.json does not tie it' log || fail "$(cat log)"
code=0; "$ONESHOT" plan --model v --scheme FP8_DYNAMIC --targets Linear,lm_head >log 2>&1 || code=$?
[ $code = 2 ] && grep -q 'target lm_head of .* is a head that the source does not have' log || fail "exit $code, $(cat log)"

# transformers may add a prefix to the names of blocks outside of the text model. So the ignore list
# also has a regex for each dense module of such a block. No regex matches a quantized module.
tiny qwen3_vl v
up=model.language_model.layers.0.mlp.up_proj.weight
edit v dup $up encoder.layers.0.attn.to_kv.weight
edit v dup $up encoder.layers.0.attn.o_proj.weight
edit v dup $up layers.0.mlp.up_proj.weight
edit v index
run --model v --scheme FP8_DYNAMIC --ignore lm_head,layers.0.mlp.up_proj
tensor encoder.layers.0.attn.o_proj.weight_scale || fail "o_proj of the encoder is dense"
has encoder.layers.0.attn.to_kv 're:(.*\.)?encoder\.layers\.0\.attn\.to_kv$' layers.0.mlp.up_proj \
    '-re:(.*\.)?layers\.0\.mlp\.up_proj$'
verify v

# If transformers gives the modules of a tower other names than the checkpoint, no module of the
# tower is quantized.
for type in llava granite_speech; do
    tiny llava w
    edit w dup language_model.model.layers.0.mlp.up_proj.weight encoder.layers.0.attn.o_proj.weight
    edit w index
    [ $type = llava ] || sed -i '0,/"llava"/s//"granite_speech"/; s/LlavaForCond/GraniteSpeechForCond/' w/config.json
    run --model w --scheme W8A16 --group-size 8
    if tensor encoder.layers.0.attn.o_proj.weight; then dense=1; else dense=0; fi
    [ $type$dense = llava0 ] || [ $type$dense = granite_speech1 ] || fail "$type: $dense dense Linears in the tower"
    verify w
done
has 're:.*encoder\.layers?\..*'

# A checkpoint that was saved without its head has names without "model.", but is the same model.
# Targets and the ignore list match its modules by both names.
tiny qwen3 n
edit n drop lm_head.weight
edit n index
sed -i 's/"tie_word_embeddings":	false/"tie_word_embeddings":	true/' n/config.json
rm -rf flat && cp -r n flat
LC_ALL=C sed -i 's/"model\.\([^"]*\)"/"\1"      /g' flat/model.safetensors
data=(--dataset n/calibration.jsonl --max-seq-length 16 --num-calibration-samples 2)
perplexity() { "$ONESHOT" eval --model "$1" --dataset n/calibration.jsonl --progress none | sed -n 's/^perplexity \([0-9.]*\).*/\1/p'; }
[ "$(perplexity n)" = "$(perplexity flat)" ] || fail "the model with other names has another perplexity: $(perplexity flat)"
run --model flat --scheme W4A16 --group-size 8 --method gptq --target-bits 5 --ignore layers.0.self_attn.o_proj "${data[@]}"
has layers.0.self_attn.o_proj model.layers.0.self_attn.o_proj lm_head
for name in layers.1.self_attn.q_proj model.layers.1.self_attn.q_proj; do
    grep -q "\"$name\"" out/config.json || fail "$name is not a target in config.json: $(cat out/config.json)"
done
verify flat

# In Gemma 4's config, layer numbers have leading zeros. vLLM also looks up v_proj in layers that
# use keys as values.
tiny gemma4 g
sed -i 's/"global_head_dim":	24/"per_layer_config": {"01": {"head_dim": 24}, "3": {"head_dim": 24}}/' g/config.json
run --model g --scheme FP8_DYNAMIC
verify g
tiny gemma4_k_eq_v k
run --model k --scheme FP8_DYNAMIC --ignore 're:.*layers.1.self_attn.[qk]_proj'
has model.layers.1.self_attn.q_proj model.layers.1.self_attn.k_proj model.layers.1.self_attn.v_proj

# In Qwen3.5, vLLM fuses in_proj_qkv with in_proj_z, and in_proj_b with in_proj_a.
tiny qwen3_5 q
data=(--dataset q/calibration.jsonl --max-seq-length 16 --num-calibration-samples 2)
run --model q --scheme W4A16 --group-size 8 --method gptq --target-bits 5 "${data[@]}"
verify q
run --model q --scheme W4A16 --group-size 8 --method gptq --target-bits 6 "${data[@]}"
python3 - <<'P' || fail "parts of a layer have other bits: $(cat out/config.json)"
import json
groups = json.load(open("out/config.json"))["quantization_config"]["config_groups"]
bits = {t: g["weights"]["num_bits"] for g in groups.values() for t in g["targets"]}
at = "model.layers.0.linear_attn.in_proj_"
assert bits[at + "qkv"] == bits[at + "z"] and bits[at + "b"] == bits[at + "a"], bits
P
code=0; "$ONESHOT" plan --model q --scheme FP8_DYNAMIC --ignore 're:.*in_proj_z' >log 2>&1 || code=$?
[ $code = 1 ] && grep -q 'in_proj_qkvz: ignore takes 1 of its 2 parts' log || fail "exit $code, $(cat log)"

# Linears that vLLM fuses share one global scale. verify finds a different scale.
"$OSH_TOOLS/make_model" m hidden=64 intermediate=64 heads=2 kv=2 head_dim=32 layers=1 vocab=96 experts=2 topk=1 samples=1 \
    tokens=8 >/dev/null
sed -i 's/Qwen3MoeForCausalLM/OddForCausalLM/; s/"qwen3_moe"/"odd"/' m/config.json
edit m rename model.layers.0.self_attn.q_proj.weight model.layers.0.linear_attn.in_proj_qkv.weight
edit m rename model.layers.0.self_attn.k_proj.weight model.layers.0.linear_attn.in_proj_z.weight
edit m index
run --model m --scheme NVFP4A16
verify m
edit out fill model.layers.0.linear_attn.in_proj_z.weight_global_scale 0 4 00006045
edit out manifest
if "$ONESHOT" verify out >log 2>&1; then fail "verify accepts different global scales of fused modules: $(cat log)"; fi
grep -q 'in_proj_z: weight_global_scale is 3584, wanted .*in_proj_qkv, because vLLM fuses both' log || fail "$(cat log)"

# kv_cache_scheme must be accepted for attention with a gate before o_proj, but not for latent
# attention.
recipe='{s_stage: {s_modifiers: {QuantizationModifier: {scheme: FP8_DYNAMIC, targets: [Linear], ignore: [lm_head], kv_cache_scheme: {num_bits: 8, type: float, strategy: tensor}}}}}'
echo "$recipe" >kv.yaml
run --model q --recipe kv.yaml "${data[@]}"
tensor model.layers.1.self_attn.k_scale && tensor model.layers.1.self_attn.v_scale || fail "the scales of keys and values are missing"
verify q
tiny deepseek_v2 d
if "$ONESHOT" plan --model d --recipe kv.yaml --dataset d/calibration.jsonl >log 2>&1; then fail "a cache with a latent is not refused"; fi
grep -q 'computes keys and values from a latent' log || fail "$(cat log)"
mkdir b # BLOOM has ALiBi
PYTHONPATH=$OSH_SOURCE_DIR/tests/tools python3 - <<'P'
import json, pathlib
from tensors import write
json.dump({"architectures": ["BloomForCausalLM"], "model_type": "bloom", "dtype": "bfloat16", "hidden_size": 64, "n_head": 4, "n_layer": 1,
           "vocab_size": 48, "tie_word_embeddings": True}, open("b/config.json", "w"))
json.dump({"input_ids": [1, 2, 3]}, open("b/calibration.jsonl", "w"))
shapes = {"word_embeddings.weight": [48, 64]}
for name in ("word_embeddings_layernorm", "h.0.input_layernorm", "h.0.post_attention_layernorm", "ln_f"):
    shapes[name + ".weight"] = shapes[name + ".bias"] = [64]
for name, o, i in (("self_attention.query_key_value", 192, 64), ("self_attention.dense", 64, 64), ("mlp.dense_h_to_4h", 256, 64),
                   ("mlp.dense_4h_to_h", 64, 256)):
    shapes[f"h.0.{name}.weight"], shapes[f"h.0.{name}.bias"] = [o, i], [o]
size = lambda s: 2 * s[0] * (s + [1])[1]
write(pathlib.Path("b/model.safetensors"), {"transformer." + n: ("BF16", s, bytes(size(s))) for n, s in shapes.items()})
P
if "$ONESHOT" plan --model b --recipe kv.yaml --dataset b/calibration.jsonl >log 2>&1; then fail "a cache with ALiBi is not refused"; fi
grep -q 'self_attention computes .* or has ALiBi' log || fail "$(cat log)"

# transformers loads an embedding with unpacked codes, and vLLM loads packed integers.
warned() { # arguments: scheme with flags, part of the warning, part of README.md
    run --model q --scheme $1 --targets Embedding,Linear --ignore lm_head
    grep -q "^warning: $2.* the embedding model.embed_tokens" log && grep -q "$3 the embedding" out/README.md ||
        fail "$1: $(cat log out/README.md)"
}
warned 'W4A16 --group-size -1' 'transformers 5.17 does not load' 'Transformers 5.17 does not load'
"$ONESHOT" plan --model q --scheme W4A16 --group-size -1 --targets Embedding,Linear --ignore lm_head 2>&1 | tr -s ' \n' ' ' |
    grep -q 'transformers 5.17 does not load embeddings' || fail "the plan names transformers"
warned FP8_DYNAMIC 'transformers 5.17 and vLLM 0.32 do not load' 'vLLM 0.32 does not load'
! grep -q 'vllm serve' out/README.md || fail "$(cat out/README.md)"
"$ONESHOT" plan --model q --scheme FP8_DYNAMIC --targets Embedding,Linear --ignore lm_head 2>&1 | tr -s ' \n' ' ' |
    grep -q 'vLLM 0.32 does not load embeddings; transformers 5.17 does not load embeddings' || fail "the plan names a loader"
cat >unpacked.yaml <<'Y'
q_modifiers:
  QuantizationModifier:
    config_groups:
      g: {targets: [Embedding, Linear], format: int-quantized, weights: {num_bits: 8, strategy: channel}}
    ignore: [lm_head]
Y
run --model q --recipe unpacked.yaml --target transformers
grep -q 'vLLM 0.32 does not load the embedding `model.embed_tokens`. Transformers loads it' out/README.md || fail "$(cat out/README.md)"
if "$ONESHOT" plan --model q --recipe unpacked.yaml --target vllm >log 2>&1; then fail "an unpacked embedding for vLLM"; fi
for engine in vllm transformers; do
    if "$ONESHOT" plan --model q --scheme FP8_DYNAMIC --targets Embedding --target $engine >log 2>&1; then fail "$engine"; fi
    grep -q 'does not load the embedding model.embed_tokens (float-quantized)' log || fail "$(cat log)"
done
