# nonfinite.sh - tests values that are not finite. A NaN or an infinity in a weight or an activation
# must stop the run with a message that names the tensor and the position. A module that cannot be
# solved must be rounded and reported. With --strict, such a module must be an error.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
begins() { # arguments: file, tensor; prints the offset of its first byte
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    at=$(head -c $((8 + header)) "$1" | tail -c "$header" | grep -o "\"$2\":{[^}]*}" | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
    echo $((8 + header + at))
}
plant() { # arguments: copy, tensor, element, two bytes of BF16 in octal
    rm -rf "$1" && cp -r "$model" "$1" && chmod -R u+w "$1"
    printf "$4" | dd of="$1/model.safetensors" bs=1 seek=$(($(begins "$1/model.safetensors" "$2") + 2 * $3)) conv=notrunc status=none
}
run() { # arguments: model, output, flags
    from=$1 to=$2
    shift 2
    last_wins "$ONESHOT" --model "$from" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 3 --max-seq-length 32 \
        --progress none --output "$to" "$@" >/dev/null 2>stderr.txt
}
refused() { # arguments: label, part of the message, then the arguments of run()
    want=$1
    shift
    if run "$@"; then echo "accepted: $want"; exit 1; fi
    grep -Eq -- "$want" stderr.txt || { echo "wanted: $want"; cat stderr.txt; exit 1; }
    [ ! -e "$2" ] || { echo "$want: $2 was made"; exit 1; }
    rm -rf "$2.oneshot-partial" # removes the work of earlier runs
}
gptq="--scheme W4A16 --method gptq --ignore lm_head"
plant nan model.layers.1.mlp.up_proj.weight 1000 '\300\177'
refused 'model.layers.1.mlp.up_proj.weight.*not finite' nan out $gptq
refused 'model.layers.1.mlp.up_proj.weight.*not finite' nan out --scheme W4A16 --ignore lm_head
plant inf model.layers.0.self_attn.q_proj.weight 7 '\200\377'
refused 'model.layers.0.self_attn.q_proj.weight.*not finite' inf out $gptq
# the program warns of a NaN in a tensor that it only copies, and copies it unchanged
plant copied model.norm.weight 3 '\300\177'
"$ONESHOT" --model copied --scheme W4A16 --ignore lm_head --progress none --output copied_out 2>stderr.txt >/dev/null
grep -q '1 of the copied tensors have a NaN or an infinity in the source: model.norm.weight$' stderr.txt
grep -A4 '"not_finite"' copied_out/oneshot-report.json | tr -d '\n\t ' | grep -q '"not_finite":{"n":1,"tensors":\["model.norm.weight"\]'
# 3.4e38 is finite, but its product with most activations is not
plant large model.layers.1.input_layernorm.weight 5 '\177\177'
refused 'model.layers.1.input_layernorm \(rms_norm\): the output is not finite in sample [0-9]+, token [0-9]+, channel 5' \
    large out $gptq

# Three samples of 8 tokens have singular Hessians. Without damping they have no Cholesky factor, so
# the solver increases the damping step by step.
cat >undamped.yaml <<YAML
quant_stage:
  quant_modifiers:
    GPTQModifier:
      dampening_frac: 0
      scheme: W4A16
      targets: Linear
      ignore: [lm_head]
YAML
refused 'damping 0.01 in place of 0; --strict allows no fallback' "$model" out --recipe undamped.yaml --max-seq-length 8 --strict
if grep -q 'the same command' stderr.txt; then echo "stopped by --strict, and told to do the same again:"; cat stderr.txt; exit 1; fi
run "$model" out --recipe undamped.yaml --max-seq-length 8
grep -q 'model.layers.0.self_attn.q_proj: damping 0.01 in place of 0' stderr.txt
grep -q '"fallback": *"damping 0.01 in place of 0"' out/oneshot-report.json
run "$model" healthy $gptq --strict
