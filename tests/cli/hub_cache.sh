# A model by its name on the Hub, from a cache as huggingface_hub writes it, without a network: the same bytes as from its
# directory. What is a path stays one; what the cache lacks is named.
set -euo pipefail
fail() { echo "$*"; exit 1; }
commit=0123456789abcdef0123456789abcdef01234567
snapshot=home/hub/models--org--tiny/snapshots/$commit
"$OSH_TOOLS/make_model" m hidden=128 intermediate=128 heads=4 kv=2 layers=1 vocab=96 samples=1 tokens=8 >/dev/null
mkdir -p home/hub/models--org--tiny/{refs,blobs} "$snapshot"
printf %s $commit >home/hub/models--org--tiny/refs/main
for file in m/*.json m/*.safetensors; do
    cp "$file" "home/hub/models--org--tiny/blobs/blob-$(basename "$file")"
    ln -s "../../blobs/blob-$(basename "$file")" "$snapshot/$(basename "$file")"
done
export HF_HOME=$PWD/home HF_HUB_OFFLINE=1
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
"$ONESHOT" --model m --scheme W4A16 --output a --progress none >/dev/null
"$ONESHOT" --model org/tiny --scheme W4A16 --output b --progress none >/dev/null
for file in a/*.safetensors a/config.json a/generation_config.json a/tokenizer.json; do
    [ ! -e "$file" ] || cmp "$file" "b/$(basename "$file")"
done
[ ! -L b/config.json ] || fail "links in the output"
"$ONESHOT" verify b --model org/tiny@main >/dev/null
"$ONESHOT" inspect "org/tiny@$commit" | grep -q model.layers.0 || fail "inspect"
"$ONESHOT" plan --model org/tiny --scheme W4A16 >/dev/null
mkdir -p org && cp -r m org/tiny # a directory of this name is meant
sed -i 's/"LlamaForCausalLM"/"Local"/' org/tiny/config.json
"$ONESHOT" inspect org/tiny | grep -q Local || fail "a directory is there"
rm -r org

refused() { # what is said, words
    local want=$1 code=0; shift
    "$@" >out 2>err || code=$?
    [ $code = 1 ] && grep -qF -- "$want" err || fail "$*: exit $code, $(cat err), wanted: $want"
}
refused "the cache $PWD/home/hub has no org/other at revision main" "$ONESHOT" plan --model org/other --scheme W4A16
refused "no org/tiny at revision v2" "$ONESHOT" inspect org/tiny@v2
refused "./org/tiny: is not a directory" "$ONESHOT" plan --model ./org/tiny --scheme W4A16
rm "$snapshot"/*.safetensors
refused "org/tiny: its snapshot lacks model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, in $PWD/$snapshot" "$ONESHOT" plan --model org/tiny --scheme W4A16
