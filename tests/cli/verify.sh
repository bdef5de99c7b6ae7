# verify.sh - makes faults in outputs. `oneshot verify` must find each fault by comparison with the
# source. Each fault is tested twice: with the old manifest, and with a manifest that was rewritten
# to match the fault. The test prints the number of faults that verify finds without the source.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
edit() { "$OSH_TOOLS/st_edit" "$@"; }
make() { # arguments: output, flags
    "$ONESHOT" --model "$model" --output "$@" --ignore lm_head --max-shard-size 1MB --progress none >/dev/null
}
gptq=(--method gptq --dataset "$model/data/calibration.jsonl" --num-calibration-samples 5 --max-seq-length 64)
make rtn --scheme W4A16
make gptq --scheme W4A16 "${gptq[@]}"
make asym --scheme W4A16_ASYM
make w8a8 --scheme W8A8
make w8a16 --scheme W8A16
make solved8 --scheme W8A8 "${gptq[@]}"
make fp8 --scheme FP8 --method rtn --dataset "$model/data/calibration.jsonl" --num-calibration-samples 2 --max-seq-length 32
for out in rtn gptq asym w8a8 w8a16 solved8 fp8; do
    "$ONESHOT" verify $out --model "$model" >log || { echo "$out is sound:"; cat log; exit 1; }
    "$ONESHOT" verify $out >log || { echo "$out is sound, alone:"; cat log; exit 1; }
    # st_edit rewrites the index and the manifest of a copy of the output. The tensors do not
    # change, so verify must find no fault.
    cp -r $out again && edit again index && edit again manifest
    "$ONESHOT" verify again --model "$model" >log || { echo "$out, rewritten, is sound:"; cat log; exit 1; }
    rm -rf again
done
# Tensors that the template does not name must be copied. A tied head that is quantized must be
# untied.
cp -r "$model" mtp && chmod -R u+w mtp && edit mtp dup model.layers.3.mlp.up_proj.weight model.layers.4.mtp.fc.weight
"$ONESHOT" --model mtp --scheme W4A16 --ignore lm_head --output mtp.out --progress none >/dev/null
"$ONESHOT" verify mtp.out --model mtp >log || { cat log; exit 1; }
grep -q '"name": "model.layers.4.mtp.fc.weight", .*"rule": "copied"' mtp.out/oneshot-manifest.json
grep -q '"model.layers.4.mtp.fc"' mtp.out/config.json || { echo "mtp.fc is not in ignore"; exit 1; }
"$ONESHOT" plan --model mtp --scheme W4A16 --ignore lm_head --json | tr -d ' \n' >plan.txt
grep -q '"name":"model.layers.4.mtp.fc.weight","rule":"copied"' plan.txt
"$ONESHOT" --model "$model" --scheme W8A16 --targets Linear --targets 're:lm_head$' --output head --progress none >/dev/null
"$ONESHOT" verify head --model "$model" >log || { cat log; exit 1; }

# Scales have the dtype of the weights, even if config.json does not name it.
cp -r "$model" half && chmod -R u+w half && sed -i 's/"bfloat16"/"float16"/' half/config.json
grep -q '"float16"' half/config.json
for scheme in W4A16 FP8_DYNAMIC NVFP4A16; do
    "$ONESHOT" --model half --scheme $scheme --output half.out --overwrite --progress none >/dev/null
    "$ONESHOT" verify half.out --model half >log || { cat log; exit 1; }
    "$ONESHOT" verify half.out >log || { cat log; exit 1; }
done

cp -r "$model" other && chmod -R u+w other && edit other noise model.layers.2.mlp.up_proj.weight 1001 1
"$ONESHOT" --model other --output other.out --scheme W4A16 --ignore lm_head --max-shard-size 1MB --progress none >/dev/null

q0=model.layers.0.self_attn.q_proj q1=model.layers.1.self_attn.q_proj up2=model.layers.2.mlp.up_proj
n=0 rewritten=0 alone=0
check() { # arguments: text that verify must print, name of the fault
    if "$ONESHOT" verify f --model "$model" >log 2>err; then echo "$2: not found"; exit 1; fi
    grep -qE -- "$1" log || { echo "$2: other findings than '$1'"; cat log err; exit 1; }
    [ "$(wc -l <log)" -gt 1 ] || { echo "$2: no finding is listed"; cat log err; exit 1; }
}
fault() { # arguments: name, output, message of verify, command that makes the fault in f
    local name=$1 base=$2 want=$3
    rm -rf f && cp -r "$base" f
    shift 3
    "$@"
    n=$((n + 1))
    # A fault is verified in three ways: with the source and the old manifest, with only the old
    # manifest, and with the source and a rewritten manifest. With sanitizers, which are slow, only
    # every eighth fault is verified in all ways. The other faults are verified only in the last
    # way, which compares most.
    [ -z "$SANITIZED" ] || [ $((n % 8)) = 1 ] || {
        edit f manifest 2>/dev/null || true
        check "$want" "$name, manifest rewritten"
        rewritten=$((rewritten + 1))
        return 0
    }
    check . "$name"
    if "$ONESHOT" verify f >log 2>&1; then :; else alone=$((alone + 1)); fi
    # a shard that cannot be read keeps its entry in the manifest
    edit f manifest 2>/dev/null || true
    check "$want" "$name, manifest rewritten"
    rewritten=$((rewritten + 1))
    }
both() { edit f "$@" && edit f index; }
config() { # argument: sed command, which must change config.json
    sed -i "$1" f/config.json
    ! cmp -s f/config.json "$base/config.json"
}
fault "a missing tensor" rtn "$q0.weight_scale: is not there" both drop $q0.weight_scale
fault "a missing tensor that the index lists" rtn 'is not in its shard' edit f drop $q0.weight_packed
fault "a missing copied tensor" rtn 'layers.3.input_layernorm.weight: is not there' both drop model.layers.3.input_layernorm.weight
fault "a missing shard" rtn 'No such file' rm f/model-00002-of-*.safetensors
fault "a truncated shard" rtn 'truncated' bash -c 'truncate -s -16 f/model-00003-of-*.safetensors'
swap_shards() { mv f/model-00001-of-* t && mv f/model-00002-of-* "$(ls -d rtn/model-00001-of-* | sed s/rtn/f/)" &&
    mv t "$(ls -d rtn/model-00002-of-* | sed s/rtn/f/)"; }
fault "two shards swapped" rtn 'is not in its shard' swap_shards
swap_with_index() { swap_shards && edit f index; }
fault "two shards swapped, and the index" rtn 'is in model-0000' swap_with_index
wrong_index() { sed -i "s/\(\"$q0.weight_scale\": \"model-0000\)./\19/" f/model.safetensors.index.json; }
fault "an index that points to the wrong shard" rtn "No such file" wrong_index
wrong_total() { sed -i 's/"total_size": [0-9]/&7/' f/model.safetensors.index.json; }
fault "a wrong total_size" rtn 'total_size is' wrong_total
fault "a zeroed scale" rtn "$q0: weight_scale 7 is 0" edit f fill $q0.weight_scale 14 2 0000
fault "a zeroed scale, GPTQ" gptq "$q0: weight_scale 7 is 0" edit f fill $q0.weight_scale 14 2 0000
fault "a NaN scale" rtn "$q0: weight_scale 7 is nan" edit f fill $q0.weight_scale 14 2 c07f
fault "an infinite scale" gptq "$q0: weight_scale 7 is inf" edit f fill $q0.weight_scale 14 2 807f
fault "a negative scale" rtn "$q0: weight_scale 7 is -" edit f flip $q0.weight_scale 15 7
fault "a flipped bit in a scale" gptq 'computed from the source.s weight' edit f flip $up2.weight_scale 200 0
fault "a flipped bit in a code" rtn 'the code of row 3, column 9 is .*the nearest' edit f flip $q0.weight_packed $((3 * 128 + 4)) 4
fault "a flipped bit in a code, GPTQ" gptq 'relative squared error is .*the run recorded' edit f flip $q0.weight_packed 388 4
fault "a flipped bit in a code, INT8" w8a8 "the nearest" edit f flip $q0.weight 70 0
fault "a flipped bit in a code, FP8" fp8 "the nearest" edit f flip $q0.weight 70 0
fault "a NaN code, FP8" fp8 "a code of the scheme's bits" edit f fill $q0.weight 70 1 7f
fault "a flipped bit in a zero point" asym 'weight_zero_point .* is' edit f flip $up2.weight_zero_point 40 1
fault "a flipped bit in a copied tensor" rtn 'norm.weight: differs from byte 30 on' edit f flip model.norm.weight 30 3
fault "a flipped bit in the embedding" gptq 'embed_tokens.weight: differs' edit f flip model.embed_tokens.weight 99999 6
fault "a zeroed input scale" fp8 'input_scale is 0' edit f fill $q0.input_scale 0 2 0000
fault "rows of noise for codes, GPTQ" gptq "squared error is [0-9.]* times that of rounding" edit f noise $up2.weight_packed 0 32768
fault "twenty rows of noise, GPTQ" gptq "rows have a larger squared error" edit f noise $up2.weight_packed $((9 * 128)) $((20 * 128))
fault "codes more than half of the range away, GPTQ" solved8 'the error of row .*, column .* scales' edit f fill $q0.weight 70 8 8080808080808080
fault "a wrong shape" rtn "has another shape" edit f shape $q0.weight_packed 32 256
fault "a scale that lost a dimension" rtn "has another shape" edit f shape $q0.weight_scale 512
fault "a wrong dtype" rtn "weight_scale: is F16, wanted BF16" edit f dtype $q0.weight_scale F16
fault "a wrong dtype of codes" w8a8 "weight: is U8, wanted I8" edit f dtype $q0.weight U8
fault "a weight_shape that lies" rtn 'weight_shape' edit f fill $q0.weight_shape 0 1 80
fault "an extra tensor" rtn 'rotary_emb.inv_freq: is not planned' both dup model.norm.weight model.rotary_emb.inv_freq
fault "codes at a dense module" rtn 'norm.weight_scale: is not planned' both dup model.norm.weight model.norm.weight_scale
fault "a renamed tensor" rtn 'is not there' both rename $q0.weight_scale $q0.weight_scales
fault "a tensor of another model" rtn "$up2: " edit f take $up2.weight_packed other.out
whole() { rm -rf f && cp -r other.out f; }
fault "an output of another model" rtn "$up2: weight_scale" whole
cross() { for leaf in weight_packed weight_scale; do edit f swap $q0.$leaf $q1.$leaf; done; }
fault "two modules of one shape swapped" rtn "$q1: " cross
fault "two modules of one shape swapped, GPTQ" gptq "$q1: weight_scale" cross
fault "codes of two modules swapped, GPTQ" gptq "$q0: the squared error is" edit f swap $q0.weight_packed $q1.weight_packed
fault "norms of two layers swapped" rtn 'layernorm.weight: differs' edit f swap model.layers.0.input_layernorm.weight model.layers.2.input_layernorm.weight
fault "a config with other bits" rtn 'weights.num_bits: is 8, wanted 4' config 's/"num_bits": 4/"num_bits": 8/'
fault "a config with another group size" gptq 'group_size: is 64, wanted 128' config 's/"group_size": 128/"group_size": 64/'
fault "a config with another strategy" rtn 'strategy: is "channel"' config 's/"strategy": "group"/"strategy": "channel"/'
fault "a config with another symmetry" rtn 'symmetric: is false' config 's/"symmetric": true/"symmetric": false/'
fault "a config with other activations" w8a8 'input_activations' config '/"input_activations"/,/num_bits/s/"num_bits": 8/"num_bits": 4/'
fault "a config that ignores less" rtn 'ignore.0.: is "model.embed_tokens"' config 's/^ *"lm_head"$/"model.embed_tokens"/'
fault "a config that ignores a quantized module" rtn 'is quantized, but config.json lists it as dense' config "s/^ *\"lm_head\"$/\"lm_head\", \"$q0\"/"
fault "a config of another format" rtn 'format: is "int-quantized"' config 's/pack-quantized/int-quantized/'
fault "a config without quantization" rtn 'config.json: has none' config 's/"quantization_config"/"quantization"/'
fault "a config that lost tie_word_embeddings" rtn 'tie_word_embeddings: is not there' config '/tie_word_embeddings/d'
fault "a config with another epsilon" rtn 'rms_norm_eps: is' config 's/1e-05/1e-06/'
fault "a config that is spelled otherwise" rtn 'config.json: has the same values, but other bytes' config 's/"rms_norm_eps": /&  /'
mixed() { # makes an output with q_proj in 8 bits, and k_proj and v_proj in 4
    for leaf in weight_packed weight_scale; do edit f take $q0.$leaf w8a16; done
    edit f index
    sed -i "s/^    \"config_groups\": {/&\"group_1\": {\"targets\": [\"$q0\"], \"weights\": {\"num_bits\": 8, \"type\": \"int\", \"symmetric\": true, \"strategy\": \"group\", \"group_size\": 128}, \"format\": \"pack-quantized\"},/" f/config.json
}
fault "fused siblings with two schemes" rtn 'q_proj has group_1, but vLLM looks it up as .*qkv_proj .* would take group_0' mixed
stale() { cp w8a16/recipe.yaml f/recipe.yaml; }
fault "a recipe of another run" rtn 'num_bits: is 4, wanted 8' stale
fault "no recipe" rtn 'recipe.yaml: is not there' rm f/recipe.yaml
fault "another tokenizer" rtn 'tokenizer.json: has' sed -i '0,/the/s//teh/' f/tokenizer.json
fault "no tokenizer" gptq 'tokenizer_config.json: is not there' rm f/tokenizer_config.json
fault "a file that nobody wrote" rtn 'modeling_odd.py: is not in the plan and not in the manifest' touch f/modeling_odd.py
fault "a directory that nobody made" rtn 'remote: is not in the plan and not in the manifest' mkdir f/remote
fault "weights beside the shards" rtn 'is not a shard' cp "$model/model.safetensors" f/model-extra.safetensors
rm -rf f && cp -r rtn f && sed -i 's/"source config.json": "/&9/' f/oneshot-manifest.json
check 'source config.json: is .*, wanted 9' "made of another source"
# verify must find any changed bit of the manifest, even in fields that no other check reads.
python3 - <<'P' || exit 1
import os, random, re, subprocess
text = open("rtn/oneshot-manifest.json", "rb").read()
spots = [m.start() + len(m.group(0)) // 2 for m in re.finditer(rb'"(format|read_from|modifier|rule|bytes|xxh3|seed|isa|back_end)[^,}]*', text)]
random.seed(1)
for at in random.sample(spots, 8) + random.sample(range(len(text)), 4) + [len(text) - 12, len(text) - 1]:
    os.system("rm -rf f && cp -r rtn f")
    open("f/oneshot-manifest.json", "wb").write(text[:at] + bytes([text[at] ^ 1 << random.randrange(7)]) + text[at + 1:])
    if subprocess.run([os.environ["ONESHOT"], "verify", "f"], capture_output=True).returncode != 1:
        exit(f"byte {at} of the manifest was changed, and verify found nothing")
P
rm -rf f && cp -r rtn f && sed -i 's/"manifest_xxh3": "[0-9a-f]*"/"other": 1/' f/oneshot-manifest.json
check 'has no checksum of itself' "a manifest without its checksum"
rm -rf f && cp -r rtn f && rm f/oneshot-manifest.json && check 'oneshot-manifest.json: is not there' "no manifest"
# Without the source, verify finds all faults except one: the output of another model is valid by
# itself.
[ "$SANITIZED" ] || [ "$alone" = $((n - 1)) ] || { echo "with the manifest as it was, $alone of $n are found without the source"; exit 1; }
echo "$n faults: all found, $rewritten also with the manifest rewritten; without the source $alone"

# Tests the output of verify.
! "$ONESHOT" verify f --model "$model" --json >json 2>err
grep -q '"ok": false' json && grep -q '"wanted"' json && grep -q 'is not correct' err
"$ONESHOT" verify gptq --model "$model" --json | grep -q '"ok": true'
code=0
"$ONESHOT" verify nothing 2>err || code=$?
[ $code = 2 ] && grep -q 'nothing is not a directory' err
