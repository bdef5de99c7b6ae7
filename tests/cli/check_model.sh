# check-model: a checkpoint that fits its template, tensors that are missing, of another shape, read by no node or aside of the
# template; the sample's loss, and what is said of one that guesses.
set -euo pipefail
fail() { echo "$*"; [ ! -e out ] || cat out; exit 1; }
check() { # exit code wanted, then arguments
    local want=$1 code=0
    shift
    "$ONESHOT" check-model "$@" >out 2>err || code=$?
    [ $code = "$want" ] || fail "exit $code, wanted $want: $* $(cat err)"
}
says() { grep -q -- "$1" out err || fail "nothing says '$1'"; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
check 0 "$model"
says '^38 tensors, 4 layers: 0 wrong, 0 forgotten by the template, 0 aside$'
says 'loss 5\.[0-9]*; who guesses has ln 4096 = 8.3178'
! grep -q guessing out || fail "a trained model guesses"

"$OSH_TOOLS/make_model" random hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=300 samples=1 tokens=8
check 0 random
says 'made up without a tokenizer.json'
cp "$model/tokenizer.json" random
check 1 random # its ids are not this model's
says 'token id'
sed -i 's/"vocab_size": 300/"vocab_size": 4096/' random/config.json
check 1 random
says 'wrong  tensor model.embed_tokens.weight has 2 dimensions, shape \[300, 64...\], config.json wants \[4096, 64\]'
says 'wrong  tensor lm_head.weight has'
says '0 forgotten'
! grep -q 'loss' out || fail "a sample ran"
rm -r random
"$OSH_TOOLS/make_model" random hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=4096 samples=1 tokens=8
cp "$model/tokenizer.json" random
check 0 random
says '^that is what guessing gives: the weights are random, or the template is wrong$'

# a template that forgets a tensor, one that wants another, and what is no business of it
mkdir templates
sed '/post_attention_layernorm/d; s/"in": \["m"\]/"in": ["h"]/' "$OSH_SOURCE_DIR/models/llama.json" >templates/llama.json
check 1 random --models-dir templates
says '^unread model.layers.1.post_attention_layernorm.weight BF16 \[64\]$'
says '0 wrong, 2 forgotten by the template, 0 aside'
says 'loss'
sed 's/"self_attn.o_proj"/"self_attn.out_proj"/' "$OSH_SOURCE_DIR/models/llama.json" >templates/llama.json
check 1 random --models-dir templates
says 'wrong  tensor model.layers.0.self_attn.out_proj.weight is missing in random'
says '2 wrong, 2 forgotten'
"$OSH_TOOLS/st_edit" random dup model.norm.weight vision_tower.norm.weight
"$OSH_TOOLS/st_edit" random index
check 0 random
says '^aside  vision_tower.norm.weight BF16 \[64\]$'
"$OSH_TOOLS/tiny_model" mllama seen # a layer that text passes by
check 0 seen
says '^aside  language_model.model.layers.1.cross_attn_attn_gate BF16 \[1\]$'
says ' 0 wrong, 0 forgotten by the template'
check 2 # no directory
check 1 nowhere
