# hub_python.sh - tests that this program and huggingface_hub share one cache. One of them downloads
# from the emulated Hub, then the other works without a network. Both directions are tested.
# OSH_PYTHON names a Python that has huggingface_hub.
set -euo pipefail
fail() { echo "$*" >&2; exit 1; } # prints to stderr, because some calls are inside $( )
python=${OSH_PYTHON:-python3}
"$python" -c 'import huggingface_hub' 2>/dev/null || { echo "no huggingface_hub"; exit 77; }
"$OSH_TOOLS/make_model" m hidden=128 intermediate=128 heads=4 kv=2 layers=1 vocab=96 samples=1 tokens=8 >/dev/null
rm m/calibration.jsonl
echo '{"model": {}}' >m/tokenizer.json
# The host of large files has another name than the Hub, whose name is 127.0.0.1.
"$python" "$OSH_SOURCE_DIR/tests/tools/hub_server.py" m log ports localhost &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
while [ ! -e ports ]; do sleep 0.02; done
read -r hub cdn <ports
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_TOKEN HF_HOME
export HF_ENDPOINT=http://127.0.0.1:$hub NO_PROXY=127.0.0.1,localhost HF_HUB_DISABLE_XET=1 HF_HUB_DOWNLOAD_TIMEOUT=600 HF_HUB_ETAG_TIMEOUT=600
snapshot() { # arguments: cache, repository, offline
    HF_HOME=$PWD/$1 HF_HUB_OFFLINE=$3 "$python" -c 'import sys; from huggingface_hub import snapshot_download
print(snapshot_download(sys.argv[1], local_files_only=sys.argv[2] == "1"))' "$2" "$3" 2>err || fail "$2: $(cat err)"
}
same() { # argument: directory
    for file in m/*; do cmp "$file" "$1/$(basename "$file")" || fail "$1: $file"; done
}

# huggingface_hub downloads the files. This program finds them and downloads nothing again.
theirs=$(snapshot theirs ok/tiny 0)
same "$theirs"
HF_HOME=$PWD/theirs HF_HUB_OFFLINE=1 "$ONESHOT" plan --verbose --model ok/tiny --scheme W4A16 >plan
grep -q 'modules quantized' plan || fail "$(cat plan)"
lines=$(grep -c '^cdn' log)
[ "$(HF_HOME=$PWD/theirs HF_HUB_OFFLINE=0 "$ONESHOT" pull ok/tiny 2>/dev/null)" = "$theirs" ] || fail "another snapshot"
[ "$(grep -c '^cdn' log)" = "$lines" ] || fail "requested an existing file"

# This program downloads the files, one of them in ranges. huggingface_hub finds them at the same
# path, without a network.
ours=$(HF_HOME=$PWD/ours HF_HUB_OFFLINE=0 "$ONESHOT" pull ok/tiny 2>/dev/null)
[ "$(snapshot ours ok/tiny 1)" = "$ours" ] || fail "$(snapshot ours ok/tiny 1), and ours is $ours"
same "$ours"
large=$(HF_HOME=$PWD/ours HF_HUB_OFFLINE=0 "$ONESHOT" pull ok/large 2>/dev/null)
[ "$(snapshot ours ok/large 1)" = "$large" ] || fail "ok/large: $large"
kill $server
