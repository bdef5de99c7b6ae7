# check_model.sh - tests oneshot check-model. The command must accept a checkpoint that fits its
# template. It must report tensors that are missing, have another shape, are read by no node, or are
# outside the template. It must print the loss of a sample, and a remark if the loss is that of
# random guesses.
set -euo pipefail
fail() { echo "$*"; [ ! -e out ] || cat out; exit 1; }
check() { # arguments: wanted exit code, then arguments
    local want=$1 code=0
    shift
    "$ONESHOT" check-model "$@" >out 2>err || code=$?
    [ $code = "$want" ] || fail "exit $code, wanted $want: $* $(cat err)"
}
says() { grep -q -- "$1" out err || fail "no line has '$1'"; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
check 0 "$model"
says '^38 tensors, 4 layers: 0 wrong, 0 missing from the template, 0 not needed$'
says 'loss 5\.[0-9]*; a random guess has ln 4096 = 8.3178'
! grep -q "the loss is that of a random guess" out || fail "the command takes a trained model for a random one"

"$OSH_TOOLS/make_model" random hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=300 samples=1 tokens=8
check 0 random
says 'with made-up ids because there is no tokenizer.json'
cp "$model/tokenizer.json" random
check 1 random # the ids of the sample exceed this model's vocabulary
says 'token id'
sed -i 's/"vocab_size": 300/"vocab_size": 4096/' random/config.json
check 1 random
says 'wrong  tensor model.embed_tokens.weight has 2 dimensions, shape \[300, 64...\], config.json wants \[4096, 64\]'
says 'wrong  tensor lm_head.weight has'
says '0 missing from'
! grep -q 'loss' out || fail "a sample runs, although tensors are wrong"
rm -r random
"$OSH_TOOLS/make_model" random hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=4096 samples=1 tokens=8
cp "$model/tokenizer.json" random
check 0 random
says '^the loss is that of a random guess: the weights are random, or the template is wrong$'

# Tests a template that omits a tensor, a template that wants another shape, and tensors that are
# outside of the template.
mkdir templates
sed '/post_attention_layernorm/d; s/"in": \["m"\]/"in": ["h"]/' "$OSH_SOURCE_DIR/models/llama.json" >templates/llama.json
check 1 random --models-dir templates
says '^unread model.layers.1.post_attention_layernorm.weight BF16 \[64\]$'
says '0 wrong, 2 missing from the template, 0 not needed'
says 'loss'
sed 's/"self_attn.o_proj"/"self_attn.out_proj"/' "$OSH_SOURCE_DIR/models/llama.json" >templates/llama.json
check 1 random --models-dir templates
says 'wrong  tensor model.layers.0.self_attn.out_proj.weight is missing in random'
says '2 wrong, 2 missing from'
"$OSH_TOOLS/st_edit" random dup model.norm.weight vision_tower.norm.weight
"$OSH_TOOLS/st_edit" random index
check 0 random
says '^aside  vision_tower.norm.weight BF16 \[64\]$'
# In mllama, no node reads the gates of cross-attention, because only images use them.
"$OSH_TOOLS/tiny_model" mllama seen
check 0 seen
says '^aside  language_model.model.layers.1.cross_attn_attn_gate BF16 \[1\]$'
says ' 0 wrong, 0 missing from the template'

# Tests --logits, which compares the logits of the program with those of a file. The tested files
# have the program's own logits, one changed logit, or a wrong format.
"$OSH_TOOLS/make_model" f32 hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=300 f32=1 samples=1 tokens=8
"$OSH_TOOLS/logits" f32 5,7,9,11,13 raw
logits() { # arguments: file, dtype of ids, tokens, vocabulary, number that is added to logit 600
    python3 - "$@" <<'END'
import json, struct, sys
file, dtype, n, vocab, more = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
made = list(struct.unpack("<1500f", open("raw", "rb").read()))[: n * vocab]
if n * vocab > 600:
    made[600] += more
ids = struct.pack("<%d%s" % (n, "q" if dtype == "I64" else "i" if dtype == "I32" else "f"), *[5, 7, 9, 11, 13][:n])
data = ids + struct.pack("<%df" % len(made), *made)
head = json.dumps({"input_ids": {"dtype": dtype, "shape": [n], "data_offsets": [0, len(ids)]},
                   "logits": {"dtype": "F32", "shape": [n, vocab], "data_offsets": [len(ids), len(data)]}}).encode()
open(file, "wb").write(struct.pack("<Q", len(head)) + head + data)
END
}
for dtype in I32 I64; do
    logits same $dtype 5 300 0
    check 0 f32 --logits same
    says '^5 tokens: logits differ from those of same by at most [0-9.]*e[-+]0[0789] of the largest'
done
! grep -q "random guess" out || fail "the sample ran, too"
logits other I64 5 300 0.1
check 1 f32 --logits other
says 'logits differ by [0-9.e+-]* of the largest logit of other, want at most 5e-06'
for added in inf -inf nan; do
    logits wrong I64 5 300 $added
    for of in f32 bf16; do
        [ -e $of ] || "$OSH_TOOLS/make_model" $of hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=300 samples=1 tokens=8
        check 1 $of --logits wrong
        says "wrong: logits\[2, 0\] is -*$(tr -d - <<<$added), want a finite number"
    done
done
"$OSH_TOOLS/st_edit" bf16 fill lm_head.weight 0 2 807f # makes an element infinite
logits same I64 5 300 0
check 1 bf16 --logits same
says "the model's logits\[0, 0\] is -*inf, want a finite number"
logits small I64 5 200 0
check 1 f32 --logits small
says 'small: logits is F32 with 2 dimensions, want F32 \[5, 300\]'
logits words F32 5 300 0
check 1 f32 --logits words
says 'words: input_ids is F32 with 1 dimensions, want I32 or I64 \[T\] with 2 to 4096 tokens'
check 1 f32 --logits f32/model.safetensors.index.json
check 2 # there is no argument for the directory
check 1 nowhere
