# only.sh - tests --only. Modules that the flag does not name must be copied bit for bit: weights of
# a dense source, and codes of a compressed-tensors source. The config must keep the groups of the
# source next to the new groups. verify and eval must read the result. A job that would give a wrong
# config must be refused.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=$model/data/calibration.jsonl
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
one() { "$ONESHOT" --progress none "$@" >log 2>&1 || fail "exit $?: $*"; }
refused() { # arguments: exit code, part of the message, then the arguments of oneshot
    local code=0
    "$ONESHOT" --progress none "${@:3}" >log 2>&1 || code=$?
    [ $code = "$1" ] && grep -q -- "$2" log || fail "exit $code, wanted $1 and '$2': ${*:3}"
}
verify() { "$ONESHOT" verify "$@" >log 2>&1 || fail "verify fails: $*"; }
equal() { # arguments: A, B, regex, N; in A and B, N tensors must match regex and have the same
          # bytes
    "$ONESHOT" inspect "$1" | awk -v re="$3" '$1 ~ re {print $1}' >names
    [ "$(wc -l <names)" = "$4" ] || fail "$(wc -l <names) tensors match $3, wanted $4"
    while read -r name; do
        for d in "$1" "$2"; do
            grep -o "\"name\": \"$name\".*" "$d/oneshot-manifest.json" | grep -o '"xxh3": "[0-9a-f]*"' | head -1 >>sums.$d
        done
    done <names
    [ "$(wc -l <"sums.$1")" = "$4" ] || fail "no checksums of $3 in $1"
    cmp "sums.$1" "sums.$2" || fail "$3 of $1 and $2 differ"
    rm "sums.$1" "sums.$2"
}
one --model "$model" --scheme FP8_BLOCK --output packed
one --model "$model" --scheme W4A16 --group-size 32 --output dense --only 're:.*layers.1.mlp.*,model.layers.0.mlp.down_proj'
one --model "$model" --scheme W4A16 --group-size 32 --output full
equal dense full '(layers.1.mlp|layers.0.mlp.down_proj).*weight_(packed|scale)$' 8
grep -o '"rule": "quantized"' dense/oneshot-manifest.json >log
[ "$(wc -l <log)" = 12 ] || fail "the output does not have codes of exactly 12 Linears"
verify dense --model "$model"

mlps=(--scheme W4A16 --group-size 32 --only 're:.*layers.[01].mlp.*')
one --model packed "${mlps[@]}" --output mixed
verify mixed --model packed
equal packed mixed 'self_attn.*weight(_scale)?$' 32
equal packed mixed 'layers.[23].mlp.*weight(_scale)?$' 12
one --model packed --scheme W4A16 --group-size 32 --output again
equal again mixed 'layers.[01].mlp.*weight_(packed|scale)$' 12
python3 - <<'P'
import json
q = [json.load(open(d + "/config.json"))["quantization_config"] for d in ("packed", "mixed")]
assert q[0]["config_groups"]["group_0"] == q[1]["config_groups"]["group_0"], q[1]
assert q[1]["format"] == "mixed-precision" and q[1]["ignore"] == ["lm_head"], q[1]
assert len(q[1]["config_groups"]) == 2 and len(q[1]["config_groups"]["group_1"]["targets"]) == 6, q[1]
P
"$ONESHOT" check-model mixed >log 2>&1 || fail check-model
one --model packed "${mlps[@]}" --output solved --quality gptq --dataset "$data" --num-calibration-samples 4 \
    --max-seq-length 64 --threads 2
one --model packed "${mlps[@]}" --output solved1 --quality gptq --dataset "$data" --num-calibration-samples 4 \
    --max-seq-length 64 --threads 1 --batch-size 3
cmp solved/model.safetensors solved1/model.safetensors
verify solved --model packed
equal packed solved 'self_attn.*weight(_scale)?$' 32
one --model packed "${mlps[@]}" --output mixed # the output exists already
# Inference engines fuse some modules into one layer. If --only names only some of these modules,
# the message names the missing ones.
refused 1 'qkv_proj: .*want all or none of them ignored; k_proj, v_proj would be ignored, q_proj would not' --model "$model" --scheme NVFP4A16 --only 're:.*q_proj$' --output part
refused 1 'up_proj has .*would take group_2; want one scheme for gate_proj, up_proj' --model mixed --scheme NVFP4A16 --only 're:.*gate_proj' --output part
refused 2 'only' --model packed --scheme W4A16 --group-size 32 --only 're:.*mlp.*' --output mixed
# makes an output with three formats
one --model mixed --scheme W8A16 --group-size 32 --only 're:.*layers.1.mlp.*' --output third
verify third --model mixed

refused 1 'q_proj has group_1, but vLLM looks it up as .*qkv_proj' --model packed --scheme W4A16 \
    --only 're:.*q_proj' --output no
refused 2 'the recipe leaves it dense: want it out of --only' --model packed --scheme W4A16 --only 're:.*mlp.*' \
    --ignore 're:.*up_proj$' --output no
refused 2 'matches no module' --model packed --scheme W4A16 --only nothing --output no
grep -q 'warning: --only nothing matches no module' log || fail "no warning"
# If two of the --only flags have the same value, the flags after them must still have an effect.
"$ONESHOT" plan --verbose --model packed --scheme W4A16 --only nothing --only nothing --only 're:.*[.]0[.]mlp.*' \
    --only 're:.*mlp.*' >log 2>&1 || { cat log; exit 1; }
[ "$(grep 'matches no module' log)" = 'warning: --only nothing matches no module' ] || { cat log; fail "warnings"; }
printf 's_stage:\n  s_modifiers:\n    SmoothQuantModifier: {}\n    QuantizationModifier: {scheme: W8A8, targets: Linear, ignore: [lm_head]}\n' >r.yaml
refused 2 'SmoothQuantModifier changes weights that are not quantized' --model packed --recipe r.yaml --dataset "$data" \
    --only 're:.*mlp.*' --output no
python3 - <<'P'
import json
c = json.load(open("packed/config.json"))
c["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
json.dump(c, open("packed/config.json", "w"))
P
refused 2 'would mix codes of quant_method fp8 with' --model packed --scheme W4A16 --only 're:.*mlp.*' --output no
