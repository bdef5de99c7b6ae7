# hub_shared.sh - tests downloads into a shared cache. Tests that the snapshot of a download that
# was killed at any file does not count as complete. Tests that downloads with and without links can
# run at the same time, that the program never writes through a link to another file, and that it
# replaces wrong blobs.
set -euo pipefail
fail() { echo "$*"; exit 1; }
command -v python3 >/dev/null || exit 77
"$OSH_TOOLS/make_model" m hidden=128 intermediate=128 heads=4 kv=2 layers=1 vocab=96 samples=1 tokens=8 >/dev/null
rm m/calibration.jsonl
mkdir m/additional_chat_templates
echo '{{ messages }}' >m/additional_chat_templates/tool.jinja
echo '{"model": {}}' >m/tokenizer.json # hub_server.py treats a file of this name as a large file
python3 "$OSH_SOURCE_DIR/tests/tools/hub_server.py" m log ports &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
while [ ! -e ports ]; do sleep 0.02; done
read -r hub cdn <ports
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
unset HUGGING_FACE_HUB_TOKEN HF_TOKEN HF_TOKEN_PATH HF_HUB_DISABLE_SYMLINKS
export HF_HUB_DOWNLOAD_TIMEOUT=600 # a long timeout, because a busy machine answers slowly
export HF_ENDPOINT=http://127.0.0.1:$hub HF_HOME=$PWD/home HF_HUB_OFFLINE=0 NO_PROXY=127.0.0.1
commit=c0ffee0000000000000000000000000000000000
whole() { # argument: a snapshot, which must have all files
    (cd m && find . -type f) | while read -r file; do cmp "m/$file" "$1/$file" || exit 1; done || fail "$1: $(ls -lR "$1")"
}
refused() { # arguments: part of the message, command
    local want=$1 code=0; shift
    "$@" >out 2>err || code=$?
    [ $code = 1 ] && grep -qF -- "$want" err || fail "$*: exit $code, $(cat err), wanted: $want"
}

# For each file of the loop below, a download is killed before this file has arrived. Then the model
# is named by its commit: a job without the network is refused, and a job with the network downloads
# the rest.
n=0
for file in config.json model.safetensors.index.json tokenizer.json generation_config.json model-00001-of-00002.safetensors; do
    [ -e "m/$file" ] || continue
    : >hold
    "$ONESHOT" pull "stall/$file" --progress none >/dev/null 2>&1 &
    job=$!
    while ! grep -q "^hub /stall/$file/resolve/.*/$file " log; do sleep 0.01; done
    kill -9 $job
    wait $job 2>/dev/null || true
    [ ! -e "home/hub/models--stall--$file/refs" ] || fail "$file: a ref"
    HF_HUB_OFFLINE=1 refused "stall/$file@$commit: its snapshot lacks " "$ONESHOT" plan --model "stall/$file@$commit" --scheme W4A16
    rm hold
    "$ONESHOT" --model "stall/$file@$commit" --scheme W4A16 --output "o-$file" --progress none >/dev/null
    whole "home/hub/models--stall--$file/snapshots/$commit"
    cmp m/tokenizer.json "o-$file/tokenizer.json"
    [ "$(sed -n 2p "home/hub/models--stall--$file/.oneshot/$commit")" = whole ] || fail "$file: no mark"
    [ "$(ls -A "home/hub/models--stall--$file/.oneshot")" = $commit ] || fail "$(ls -A "home/hub/models--stall--$file/.oneshot")"
    n=$((n + 1))
done
[ $n -ge 4 ] || fail "$n files"

# The run waits for a file that another process downloads. If a file is removed later, it is
# downloaded again.
: >hold
HF_HOME=$PWD/during "$ONESHOT" pull stall/tokenizer.json --progress none >/dev/null 2>&1 &
first=$!
at=during/hub/models--stall--tokenizer.json
while [ ! -e "$at/snapshots/$commit/model-00002-of-00002.safetensors" ]; do sleep 0.02; done
HF_HOME=$PWD/during "$ONESHOT" --model "stall/tokenizer.json@$commit" --scheme W4A16 --output during.o --progress none >/dev/null 2>err &
second=$!
sleep 0.3
rm hold
wait $first && wait $second || fail "$(cat err)"
cmp m/tokenizer.json during.o/tokenizer.json
rm "$at/snapshots/$commit/tokenizer.json"
HF_HOME=$PWD/during HF_HUB_OFFLINE=1 refused "lacks tokenizer.json" "$ONESHOT" inspect stall/tokenizer.json
HF_HOME=$PWD/during "$ONESHOT" inspect stall/tokenizer.json >/dev/null
whole "$at/snapshots/$commit"

# Downloads with and without links run at once, into one cache.
export HF_HUB_CACHE=$PWD/mixed
for i in 1 2 3; do
    HF_HUB_DISABLE_SYMLINKS=1 "$ONESHOT" pull slower/tiny --progress none >/dev/null 2>"plain$i" & jobs="${jobs:-} $!"
    "$ONESHOT" pull slower/tiny --progress none >/dev/null 2>"linked$i" & jobs="$jobs $!"
done
for job in $jobs; do wait "$job" || fail "$(cat plain? linked?)"; done
whole "mixed/models--slower--tiny/snapshots/$commit"
rm -r mixed
# the second pull makes no links, so it replaces the missing link by a file
"$ONESHOT" pull ok/tiny >/dev/null 2>&1
rm "mixed/models--ok--tiny/snapshots/$commit/config.json"
HF_HUB_DISABLE_SYMLINKS=1 "$ONESHOT" pull ok/tiny >/dev/null 2>&1
[ ! -L "mixed/models--ok--tiny/snapshots/$commit/config.json" ] || fail "a link"
whole "mixed/models--ok--tiny/snapshots/$commit"

# A repository has 99,000 files that are not part of a model. --host-memory is respected while the
# list of files is read.
python3 -c 'import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(code)' "$ONESHOT" --model many/tiny --scheme W4A16 --output many --progress none --host-memory 40MiB >out 2>err || fail "$(cat err)"
[ "$SANITIZED" ] || [ "$(tail -n 1 out)" -le 40 ] || fail "a long list: $(tail -n 1 out) MiB"
refused "over/tiny: its files have more than 2^63 bytes together" "$ONESHOT" pull over/tiny

# Tests wrong entries in the cache. A wrong file or link must be replaced if it has the path of a
# blob or of a link to a blob. A link in place of a directory must be refused.
shard=$(sha256sum <m/model-00001-of-00002.safetensors | cut -c1-64)
large=$(python3 -c 'import hashlib, random; print(hashlib.sha256(random.Random(1).randbytes(40 << 20)).hexdigest())')
# arguments: repository; path in the cache; kind of the wrong entry (link, hard, wrong); for
# `wrong`, the right file
planted() {
    rm -rf planted && mkdir planted
    echo precious >victim
    local at=planted/$2
    mkdir -p "$(dirname "$at")"
    case $3 in
        link) ln -s "$PWD/victim" "$at" ;;
        hard) ln victim "$at" ;;
        wrong) head -c "$(stat -c %s "$4")" /dev/zero >victim; ln -s "$PWD/victim" "$at" ;;
    esac
    local sum; sum=$(cksum <victim)
    HF_HUB_CACHE=$PWD/planted "$ONESHOT" pull "ok/$1" >out 2>err || fail "$2: $(cat err)"
    [ "$(cksum <victim)" = "$sum" ] || fail "$2: written through"
    [ "$1" = large ] || whole "$(cat out)"
}
repo=models--ok--tiny
for how in link hard; do
    planted tiny "$repo/blobs/$shard.oneshot.incomplete" $how
    planted large "models--ok--large/blobs/$large.oneshot.ranges" $how
    planted tiny "$repo/refs/main" $how
done
planted tiny ".locks/$repo/$shard.lock" link
planted tiny "$repo/blobs/$shard" link
planted tiny "$repo/snapshots/$commit/config.json" link
planted tiny "$repo/snapshots/$commit/config.json" wrong m/config.json
planted tiny "$repo/blobs/$shard" wrong m/model-00001-of-00002.safetensors
for dir in blobs snapshots refs .oneshot "snapshots/$commit" "snapshots/$commit/additional_chat_templates" "../.locks/$repo"; do
    rm -rf planted elsewhere
    mkdir -p elsewhere "$(dirname "planted/$repo/x/../$dir")" "planted/$repo"
    mkdir -p "$(dirname "planted/$repo/$dir")"
    ln -s "$PWD/elsewhere" "planted/$repo/$dir"
    HF_HUB_CACHE=$PWD/planted refused "is a symbolic link, wanted a directory" "$ONESHOT" pull ok/tiny
    [ -z "$(ls -A elsewhere)" ] || fail "$dir: $(ls -AR elsewhere)"
done
rm -rf planted elsewhere && mkdir planted elsewhere # the repository may be on another disk, by a link of this user
ln -s "$PWD/elsewhere" planted/$repo
HF_HUB_CACHE=$PWD/planted "$ONESHOT" pull ok/tiny >/dev/null 2>&1
whole "planted/$repo/snapshots/$commit"
