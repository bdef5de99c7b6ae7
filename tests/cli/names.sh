# names.sh - tests names of tensors, files and architectures that contain control characters. The
# program escapes them in the log, messages, progress lines, plans, findings of verify, and the
# output of `inspect`.
set -euo pipefail
fail() { echo "$*"; exit 1; }
"$OSH_TOOLS/make_model" m hidden=128 intermediate=128 heads=4 kv=2 layers=2 vocab=96 samples=1 tokens=8 >/dev/null
sed -i 's/"LlamaForCausalLM"/"Odd\\u001b[31mForCausalLM"/' m/config.json
evil=$(printf 'model.layers.0.mlp.\033]0;x\007\r\177\302\233\342\200\256\342\200\250\342\200\213_proj')
"$OSH_TOOLS/st_edit" m rename model.layers.0.mlp.up_proj.weight "$evil.weight"
"$OSH_TOOLS/st_edit" m rename model.layers.1.mlp.up_proj.weight "$evil
_proj.weight"
"$OSH_TOOLS/st_edit" m index
shown='model.layers.0.mlp.\u001b]0;x\u0007\u000d\u007f\u009b\u202e\u2028\u200b_proj'
# argument: a file. The file must have no control characters (C0 or C1) except newlines, and no
# bidirectional or invisible characters.
clean() {
    local seen="[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8b-\x8f\xa8-\xae]"
    if LC_ALL=C grep -nP "$seen" "$1"; then fail "control characters in $1"; fi
}
says() { # arguments: a file, text that it must contain
    clean "$1"
    grep -qF -- "$2" "$1" || fail "$1 has no '$2': $(cat "$1")"
}
"$ONESHOT" inspect m >inspect
says inspect "$shown.weight"
says inspect "$shown\\u000a_proj.weight"
says inspect 'architecture Odd\u001b[31mForCausalLM'
"$ONESHOT" plan --verbose --model m --scheme W4A16 --ignore 're:.*_proj' --targets 're:.*embed_tokens' >plan 2>err
says plan "dense: ${shown/layers.0/layers.*} ("
"$ONESHOT" --model m --scheme W4A16 --progress line --log-level debug --log-file log --output out >stdout 2>stderr
says stderr "$shown"
says log "$shown"
clean stdout
says out/oneshot-report.html "$shown"
# The objective of GPTQ is printed only if there is a Hessian.
if grep -q objective stderr log; then fail "the log has an objective without a Hessian"; fi
sed -i 's/"ignore": \[/&"re:.*_proj", /' out/config.json
if "$ONESHOT" verify out >findings 2>err; then fail "verify accepts the changed output"; fi
says findings "$shown: is quantized, but config.json lists it as dense"
code=0
"$ONESHOT" --model "$evil" --scheme W4A16 --output other --progress none 2>err || code=$?
[ $code = 1 ] || fail "exit $code"
says err "$shown: is not a directory"
# Tests names in a template of the user.
mkdir templates
sed 's/"h"/"h\\u202e"/g' "$OSH_SOURCE_DIR/models/llama.json" >templates/llama.json
data=$OSH_SOURCE_DIR/examples/docs-llama-3m
"$ONESHOT" plan --verbose --model "$data" --scheme W4A16 --method gptq --dataset "$data/data/calibration.jsonl" \
    --num-calibration-samples 2 --max-seq-length 32 --models-dir templates >plan
says plan 'live out: h\u202e'

# If the model has no lm_head, the warning about `ignore` names the head.
mkdir internlm
PYTHONPATH=$OSH_SOURCE_DIR/tests/tools python3 - <<'P'
import pathlib
from tensors import write
layer = "model.layers.0."
shapes = {"model.tok_embeddings": [96, 64], "model.norm": [64], "output": [96, 64], layer + "attention_norm": [64],
          layer + "attention.wqkv": [128, 64], layer + "attention.wo": [64, 64], layer + "feed_forward.w1": [128, 64],
          layer + "feed_forward.w3": [128, 64], layer + "feed_forward.w2": [64, 128], layer + "ffn_norm": [64]}
write(pathlib.Path("internlm/model.safetensors"),
      {k + ".weight": ("BF16", s, bytes(2 * s[0] * (s[1:] or [1])[0])) for k, s in shapes.items()})
pathlib.Path("internlm/config.json").write_text(
    '{"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "hidden_size": 64, "intermediate_size": 128,'
    ' "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "vocab_size": 96, "bias": false,'
    ' "torch_dtype": "bfloat16", "max_position_embeddings": 128, "tie_word_embeddings": false}')
P
for targets in "Linear:stays dense" "output:is quantized"; do
    "$ONESHOT" plan --model internlm --scheme W4A16 --group-size 32 --method rtn --targets "${targets%:*}" --ignore lm_head >/dev/null 2>err
    says err "ignore lm_head of QuantizationModifier matches no module: the head of this model is output, and ${targets#*:}"
done
