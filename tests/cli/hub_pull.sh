# hub_pull.sh - downloads models with `oneshot pull` and with --model from a Hub on the loopback
# (tests/tools/hub_server.py). Tests redirects, ranges, refusals, retries, checksums, resuming, two
# downloads at once, and a hostile server. Only the Hub gets the token.
set -euo pipefail
fail() { echo "$*"; exit 1; }
command -v python3 >/dev/null || { echo "wants python3"; exit 77; }
"$OSH_TOOLS/make_model" m hidden=128 intermediate=128 heads=4 kv=2 layers=2 vocab=96 samples=1 tokens=8 >/dev/null
rm m/calibration.jsonl # this file is not part of the model
mkdir m/additional_chat_templates m/original
echo '{{ messages }}' >m/additional_chat_templates/tool.jinja
echo '{"model": {}}' >m/tokenizer.json # hub_server.py treats a file of this name as a large file
echo x | tee m/original/consolidated.safetensors m/LICENSE.txt m/notes.txt >/dev/null
: >m/empty.json
python3 "$OSH_SOURCE_DIR/tests/tools/hub_server.py" m log ports &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
while [ ! -e ports ]; do sleep 0.02; done
read -r hub cdn <ports
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
export HF_HUB_DOWNLOAD_TIMEOUT=600 # a long timeout, because a busy machine answers slowly
unset HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH HF_HUB_DISABLE_SYMLINKS
export HF_ENDPOINT=http://127.0.0.1:$hub/ HF_HOME=$PWD/home HF_HUB_OFFLINE=0 HF_TOKEN=hf_good NO_PROXY=127.0.0.1
first=c0ffee0000000000000000000000000000000000 second=c0ffee1111111111111111111111111111111111
repo() { echo "home/hub/models--$1--tiny"; }
pull() { # arguments: fault[@revision], variables; runs in the background
    local name=${1%@*} revision=${1#"${1%@*}"}
    shift
    (code=0; env "$@" "$ONESHOT" pull "$name/tiny$revision" --progress none >"$name.out" 2>"$name.err" || code=$?; echo $code >"$name.exit") &
}
whole() { # argument: a repository, which must have exactly the files of the model
    local at; at=$(repo "$1")/snapshots/$first
    [ "$(cat "$1.exit")" = 0 ] || fail "$1: $(cat "$1.err")"
    [ "$(cat "$1.out")" = "$PWD/$at" ] || fail "$1: $(cat "$1.out")"
    for file in m/*.json m/*.safetensors m/LICENSE.txt m/additional_chat_templates/tool.jinja; do
        cmp "$file" "$at/${file#m/}" || fail "$1: $file"
    done
    [ ! -e "$at/original" ] && [ ! -e "$at/notes.txt" ] || fail "$1: $(ls "$at")"
    [ "$(cat "$(repo "$1")/refs/main")" = $first ] || fail "$1: no ref"
    ! ls "$(repo "$1")/blobs" | grep incomplete || fail "$1: a part is left"
}
refused() { # arguments: repository, part of the message
    [ "$(cat "$1.exit")" = 1 ] && grep -qF -- "$2" "$1.err" || fail "$1: exit $(cat "$1.exit"), $(cat "$1.err"), wanted: $2"
    [ ! -e "$(repo "$1")/refs" ] || fail "$1: a ref"
}

# Starts one download for each fault. All downloads run at the same time.
good="ok paged busy flaky cut norange slow wrongonce expired token dead moved"
bad="wrong disabled evil evilpath evilid huge loop long away pickle offset junk gone"
for fault in $good $bad; do pull $fault; done
pull gated HF_TOKEN=
pull private
pull slower # two downloads of this repository run at the same time
(code=0; "$ONESHOT" --model slower/tiny --scheme W4A16 --output both --progress none >run.out 2>run.err || code=$?; echo $code >run.exit) &
for job in $(jobs -p); do [ "$job" = $server ] || wait "$job"; done
for fault in $good slower; do whole $fault; done
[ "$(cat run.exit)" = 0 ] || fail "$(cat run.err)"
refused wrong "its SHA-256 is"
refused disabled "Access to this resource is disabled."
refused evil "'../../../evil.json' is not a valid file name"
refused evilpath "'/tmp/evil.json' is not a valid file name"
refused evilid "wanted one of 64 hex digits"
refused huge "MB free"
refused loop "more than 20 redirects"
refused long "more than the"
refused away "the list of files continues at 'http://127.0.0.1:$cdn/more'"
refused pickle "convert them to safetensors first"
refused offset "asked for bytes from"
refused junk "no JSON value"
refused gone "not found"
refused gated "is gated: want its terms accepted on its page at http://127.0.0.1:$hub, and HF_TOKEN of that account; no token was given, request Root=1-test"
refused private "not found at http://127.0.0.1:$hub, or private"
[ ! -e /tmp/evil.json ] && [ ! -e home/evil.json ] && [ ! -e evil.json ] || fail "a file outside of the cache"

# Checks the requests. Only the Hub may get the token. After an incomplete answer, the missing bytes
# must be requested as a range. If two processes download the same repository, each file must be
# requested only once.
grep -q '^hub .*auth=Bearer hf_good' log || fail "no token"
! grep '^cdn' log | grep -v 'auth=- ' || fail "the token left its host"
! grep -v ' agent=oneshot/[0-9.]*; libcurl/[0-9.]*$' log || fail "agent"
grep -q '^cdn /cut/.* range=bytes=[1-9][0-9]*- ' log || fail "the rest of the file is not requested"
for shard in m/*.safetensors; do
    [ "$(grep -c "^cdn /slower/tiny/$(basename "$shard")" log)" = 1 ] || fail "$shard: asked for by both"
done

# Tests that the files of a snapshot are links to blobs, that the name of a blob is its hash, and
# that no file is requested twice. Also tests pulls of a commit and of another revision, and a file
# system without links.
at=$(repo ok)/snapshots/$first
template=$( (printf 'blob 15\0'; cat m/additional_chat_templates/tool.jinja) | sha1sum | cut -c1-40)
[ "$(readlink "$at/additional_chat_templates/tool.jinja")" = "../../../blobs/$template" ] || fail "a link"
[ "$(readlink "$at/tokenizer.json")" = "../../blobs/$(sha256sum <m/tokenizer.json | cut -c1-64)" ] || fail "a link"
[ -e home/hub/CACHEDIR.TAG ] && [ -d home/hub/.locks/models--ok--tiny ] || fail "$(ls -A home/hub)"
lines=$(grep -c /resolve/ log)
"$ONESHOT" pull ok/tiny >/dev/null
[ "$(grep -c /resolve/ log)" = "$lines" ] || fail "requested an existing file"
rm "$at"/model-00002* # removes the link, but not the blob that it names
"$ONESHOT" --model ok/tiny --scheme W4A16 --output again --progress none >/dev/null
[ "$(grep -c /resolve/ log)" = "$lines" ] || fail "requested an existing blob"
"$ONESHOT" pull ok/tiny@refs/pr/1 >/dev/null
[ "$(cat "$(repo ok)/refs/refs/pr/1")" = $second ] && [ -e "$(repo ok)/snapshots/$second/config.json" ] || fail "refs/pr/1"
HF_HUB_CACHE=$PWD/plain HF_HUB_DISABLE_SYMLINKS=1 "$ONESHOT" pull "ok/tiny@$first" >/dev/null 2>&1
[ -z "$(find plain -type l)" ] && cmp m/config.json "plain/models--ok--tiny/snapshots/$first/config.json" || fail "links"
"$ONESHOT" pull ok/tiny@v9 2>err && fail "a revision that does not exist is not refused"
grep -q "ok/tiny@v9: there is no such revision" err || fail "$(cat err)"

# A plan of a model on the Hub must download only the headers of weight files, and each header only
# once. The plan must equal the plan of the whole model.
: >log
"$ONESHOT" plan --model m --scheme W4A16 --json >plan.here
HF_HOME=$PWD/headers "$ONESHOT" plan --model ok/planned --scheme W4A16 --json >plan.there
# removes the numbers of host bytes, which differ: the network needs additional memory
same() { sed "s|$PWD/headers/[^\"]*|m|g; /host_bytes\|base_bytes/d" "$1"; }
diff <(same plan.there) <(same plan.here) || fail "the plan from headers differs from the plan of the files"
! grep '^cdn.*safetensors' log | grep -v 'range=bytes=[0-9]*-[0-9]* ' || fail "the plan requests whole files"
for shard in m/*.safetensors; do # at most the header and 16 KiB of each shard were requested
    asked=$(sed -n "s|^cdn /ok/planned/$(basename "$shard").* range=bytes=\([0-9]*\)-\([0-9]*\) .*|\2 \1|p" log | awk '{ n += $1 - $2 + 1 } END { print n }')
    [ "$asked" -le $((16384 + $(od -An -N8 -tu8 "$shard"))) ] || fail "$shard: $asked bytes were asked for"
done
at=headers/oneshot/headers/models--ok--planned/$first
[ "$(stat -c %s "$at/model-00001-of-00003.safetensors")" = "$(stat -c %s m/model-00001-of-00003.safetensors)" ] || fail "size"
[ "$(du -k "$at/model-00001-of-00003.safetensors" | cut -f1)" -le 16 ] || fail "$(du -k "$at"/*)"
[ ! -e headers/hub/models--ok--planned/refs ] && [ -z "$(find headers/hub -name 'model-*')" ] || fail "the plan leaves files in the cache"
HF_HOME=$PWD/headers "$ONESHOT" inspect ok/planned >there
"$ONESHOT" inspect m >here
diff <(sed 1d there) <(sed 1d here) || fail "inspect"
HF_HOME=$PWD/headers "$ONESHOT" plan --model ok/planned --scheme W4A16 >/dev/null
for shard in m/*.safetensors; do
    [ "$(grep -c "^cdn /ok/planned/$(basename "$shard")" log)" -le 2 ] || fail "$shard: asked for again"
done
"$ONESHOT" plan --model norange/planned --scheme W4A16 2>err && fail "a plan without ranges is not refused"
grep -q "does not send the requested part" err || fail "$(cat err)"

# A process is killed during a download. The next process continues after the bytes that exist.
blobs=killed/models--slow--tiny/blobs
HF_HUB_CACHE=$PWD/killed "$ONESHOT" pull slow/tiny --progress none >/dev/null 2>&1 &
job=$!
while [ -z "$(find $blobs -name '*.incomplete' -size +20k 2>/dev/null)" ]; do sleep 0.01; done
kill -9 $job
wait $job 2>/dev/null || true
: >log
HF_HUB_CACHE=$PWD/killed "$ONESHOT" pull slow/tiny --progress none >/dev/null
cmp m/model-00001-of-00003.safetensors "killed/models--slow--tiny/snapshots/$first/model-00001-of-00003.safetensors"
grep -q '^cdn .*range=bytes=[1-9][0-9]*- ' log || fail "the download begins again from its start: $(cat log)"

# A large file is downloaded in parallel ranges. All bytes must be right, and the download must use
# little memory. Tests a range that ends early, a wrong byte in the first range, a server that
# ignores ranges, and a kill.
large() { # argument: fault; downloads into large/
    HF_HUB_CACHE=$PWD/large "$ONESHOT" pull "$1/large" --progress line >"$1.out" 2>"$1.err" || fail "$1/large: $(cat "$1.err")"
    [ "$(sha256sum <"$(cat "$1.out")/model.safetensors" | cut -c1-64)" = "$noise" ] || fail "$1/large: other bytes"
    [ "$(ls "large/models--$1--large/blobs" | wc -l)" = 2 ] || fail "$1/large: $(ls "large/models--$1--large/blobs")"
    [ "$SANITIZED" ] || [ "$(sed -n '$s/.*peak \([0-9]*\) MiB.*/\1/p' "$1.err")" -le 36 ] || fail "$1/large: $(tail -n 1 "$1.err")"
    rm -r "large/models--$1--large"
}
starts() { sed -n "s|^cdn /$1/large/.* range=bytes=\([0-9]*\)-[0-9]* .*|\1|p" log | sort -nu; }
noise=$(python3 -c 'import hashlib, random; print(hashlib.sha256(random.Random(1).randbytes(40 << 20)).hexdigest())')
for fault in ok cutone wrongonce norange; do large $fault; done
[ "$(grep -c '^cdn /wrongonce/large/.* range=bytes=0-' log)" = 2 ] || fail "$(grep wrongonce/large log)"
grep -q '^cdn /norange/large/.* range=- ' log || fail "the file is not requested as a whole"
HF_HUB_CACHE=$PWD/large "$ONESHOT" pull slow/large --progress none >/dev/null 2>&1 &
job=$!
while [ -z "$(find large -name '*.incomplete' -size +0 2>/dev/null)" ] ||
    [ "$(du -k large/models--slow--large/blobs | cut -f1)" -lt 16384 ]; do sleep 0.01; done
kill -9 $job
wait $job 2>/dev/null || true
[ "$(starts slow | wc -l)" -ge 3 ] || fail "ranges begin at $(starts slow)"
[ -s "large/models--slow--large/blobs/$noise.oneshot.ranges" ] || fail "$(ls -l large/models--slow--large/blobs)"
: >log
large slow
[ "$(starts slow | wc -l)" -ge 2 ] && [ "$(starts slow | head -1)" -gt 0 ] || fail "the download begins again from its start: $(starts slow)"

# Tests a download through the proxy that HTTP_PROXY names. Without a network, the cache must be
# used. A name that is a path, such as ./ok/tiny, must never be requested from the Hub.
HF_ENDPOINT=http://hub.invalid HF_HOME=$PWD/other NO_PROXY='' HTTP_PROXY=http://127.0.0.1:$hub "$ONESHOT" pull ok/tiny >/dev/null 2>err || fail "$(cat err)"
kill $server
"$ONESHOT" plan --model ok/tiny --scheme W4A16 >/dev/null
"$ONESHOT" inspect other/name 2>err && fail "a model is found without a network"
grep -q "does not answer.*looking for a model that is not a local directory and not complete in $PWD/home/hub" err || fail "$(cat err)"
HF_HUB_OFFLINE=1 "$ONESHOT" pull ok/tiny 2>err && fail "a pull is not refused offline"
grep -q 'HF_HUB_OFFLINE' err || fail "$(cat err)"
code=0; "$ONESHOT" pull ./ok/tiny 2>err || code=$?
[ $code = 2 ] && grep -q 'want org/name' err || fail "$code $(cat err)"
