# hub_cache.sh - tests a model in a cache with the layout of huggingface_hub, without a network. The
# commands name the model by its Hub name. Tests that the output bytes are the same as from the
# model's directory. Tests that a path is never used as a Hub name, and that errors name the files
# that the cache lacks.
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
"$ONESHOT" --model org/tiny@main --scheme W4A16 >said 2>/dev/null
grep -qx 'next       oneshot verify tiny-W4A16 --model org/tiny@main' said || { cat said; exit 1; }
cmp tiny-W4A16/model.safetensors b/model.safetensors
"$ONESHOT" inspect "org/tiny@$commit" | grep -q model.layers.0 || fail "inspect"
"$ONESHOT" plan --model org/tiny --scheme W4A16 >/dev/null
# a directory org/tiny has precedence over the model org/tiny of the Hub
mkdir -p org && cp -r m org/tiny
sed -i 's/"LlamaForCausalLM"/"Local"/' org/tiny/config.json
"$ONESHOT" inspect org/tiny | grep -q Local || fail "a directory does not have priority over the cache"
rm -r org

refused() { # arguments: part of the message, command
    local want=$1 code=0; shift
    "$@" >out 2>err || code=$?
    [ $code = 1 ] && grep -qF -- "$want" err || fail "$*: exit $code, $(cat err), wanted: $want"
}
refused "the cache $PWD/home/hub has no org/other at revision main" "$ONESHOT" plan --model org/other --scheme W4A16
refused "no org/tiny at revision v2" "$ONESHOT" inspect org/tiny@v2
refused "./org/tiny: is not a directory" "$ONESHOT" plan --model ./org/tiny --scheme W4A16
# Tests snapshots that another program has downloaded, and that seem to lack files.
repo=home/hub/models--org--tiny
plan="$ONESHOT plan --model org/tiny --scheme W4A16"
ln -s ../../blobs/gone "$snapshot/tokenizer.json"
refused "org/tiny: its snapshot lacks tokenizer.json, in $PWD/$snapshot" $plan
rm "$snapshot/tokenizer.json"
mkdir $repo/trees
echo '{"format_version": 1, "files": {"tokenizer.json": {"size": 2}, "README.md": {}, "x.py": {}, "original/a.json": {}, "config.json": {}}}' >$repo/trees/$commit.json
refused "org/tiny: its snapshot lacks tokenizer.json, in $PWD/$snapshot" $plan
sed -i 's/"tokenizer.json"/"notes.txt"/' $repo/trees/$commit.json
$plan >/dev/null
: >$repo/blobs/0123.abcd.incomplete
refused "org/tiny: its snapshot lacks the file of blobs/0123.abcd.incomplete (its download was interrupted), in $PWD/$snapshot" $plan
# Tests the mark of a snapshot (src/hub/mark.h). The mark is a file that lists the files of the
# snapshot. The listed files must exist. A damaged mark means that the download did not end.
mkdir $repo/.oneshot
bytes=$(stat -Lc %s "$snapshot/config.json")
mark() { printf 'oneshot snapshot 1\n%b' "$1" >$repo/.oneshot/$commit; }
for text in open '' "all\n-1 ab config.json\n" "all\n$bytes ab ../config.json\n" "whole\n$bytes ab" "all\n$bytes ab\n" 'what\n'; do
    mark "$text"
    refused "org/tiny: its snapshot lacks files: its download was interrupted, in $PWD/$snapshot" $plan
done
mark "whole\n$bytes ab config.json\n2 ab x/tokenizer.json\n"
refused "org/tiny: its snapshot lacks x/tokenizer.json, in" $plan
mark "whole\n$((bytes + 1)) ab config.json\n"
refused "org/tiny: its snapshot lacks config.json, in" $plan
mark "all\n$bytes ab config.json\n"
$plan >/dev/null
rm -r $repo/.oneshot $repo/blobs/0123.abcd.incomplete
rm "$snapshot"/*.safetensors
refused "org/tiny: its snapshot lacks model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, in $PWD/$snapshot" "$ONESHOT" plan --model org/tiny --scheme W4A16
