# hub_data.sh - tests data sets that are given by their name on the Hub. A server on the loopback
# sends their rows (tests/tools/hub_server.py). The output bytes must be the same as from a file
# with these rows. The program must know LLM Compressor's names of data sets, and must make the same
# texts from their rows. Rows that are in the cache must need no network. Errors must give the
# reason.
set -euo pipefail
fail() { echo "$*"; exit 1; }
command -v python3 >/dev/null || { echo "wants python3"; exit 77; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
mkdir empty
python3 "$OSH_SOURCE_DIR/tests/tools/hub_server.py" empty log ports &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
while [ ! -e ports ]; do sleep 0.02; done
read -r hub cdn <ports
export HF_HUB_DOWNLOAD_TIMEOUT=600 # a long timeout, because a busy machine answers slowly
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY HF_TOKEN_PATH
export HF_DATASETS_SERVER=http://127.0.0.1:$hub HF_HOME=$PWD/home HF_HUB_OFFLINE=0 HF_TOKEN=hf_good NO_PROXY=127.0.0.1
run() { # arguments: output, data
    "$ONESHOT" --model "$model" --scheme W4A16 --method gptq --max-seq-length 32 --progress none --output "$@" >/dev/null
}
rows() { echo "home/oneshot/rows/$1.jsonl"; }

# Tests slices, whose rows are requested in pages, and texts that are made as in LLM Compressor.
run a --dataset ok/data --splits 'train[:4]'
file=$(rows "ok--data/-/train%5B%3A4%5D.512")
[ "$(wc -l <"$file")" = 4 ] || fail "$(wc -l <"$file") rows"
python3 - "$file" "$OSH_SOURCE_DIR/tests/tools/hub_server.py" <<'PY' || fail "rows"
import ast, json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
tree = ast.parse(open(sys.argv[2], encoding="utf-8").read())
space = {}
exec(compile(ast.Module([n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "row"], []), "", "exec"), space)
assert lines == [space["row"](i) for i in range(4)], lines
PY
cp "$file" local.jsonl
run b --dataset local.jsonl
cmp a/model.safetensors b/model.safetensors
cmp "$file.revision" <(printf c0ffee0000000000000000000000000000000000) || fail "the file of the revision is wrong"
run c --dataset gsm8k --dataset-config-name main --splits 'train[10:13]'
[ "$(sed -n 1p "$(rows "openai--gsm8k--text/main/train%5B10%3A13%5D.512")")" = '{"text":"Question: 10 {plus} 10?\nAnswer: #### 20"}' ] ||
    fail "$(cat home/oneshot/rows/openai--gsm8k--text/main/*)"
run d --dataset CNN_DailyMail --splits 'test[-2:]' --dataset-config-name default
[ "$(tail -n 1 "$(rows "abisee--cnn_dailymail--text/default/test%5B-2%3A%5D.512")")" = '{"text":"Article:\nNews 2\n\n### Summarization:\nshort 2\n"}' ] || fail "cnn_dailymail"

# Uses two data sets by name, each with a configuration and a split. The README.md of the output
# must have the names of the data sets.
run m --dataset ok/data --splits 'train[:4]' --dataset-config-name '' --dataset gsm8k:0.25 --splits 'train[10:13]' \
    --dataset-config-name main --num-calibration-samples 4
{ sed -n 1,1p local.jsonl; sed -n 2p local.jsonl; head -n 1 "$(rows "openai--gsm8k--text/main/train%5B10%3A13%5D.1")"
  sed -n 3p local.jsonl; } >mixed.jsonl
grep -q '^| Data set | openai/gsm8k: 1 samples, ' m/README.md && grep -q '^| Data set | ok/data: 3 samples, ' m/README.md ||
    fail "$(cat m/README.md)"
run n --dataset mixed.jsonl
cmp m/model.safetensors n/model.safetensors

# The model's chat template renders conversations. A template of the user renders other rows.
run g --dataset ultrachat --splits 'train[:3]' 2>err
file=$(rows "HuggingFaceH4--ultrachat_200k--chat/-/train_sft%5B%3A3%5D.512")
[ "$(sed -n 1p "$file")" = '{"messages":[{"role":"system","content":""},{"role":"user","content":"ask 0"},{"role":"assistant","content":"say 0 é"}]}' ] ||
    fail "$(cat "$file")"
grep -q '^{"messages":\[{"role":"system","content":""},{"role":"assistant"' "$file" && [ "$(wc -l <"$file")" = 3 ] || fail "$(cat "$file")"
run h --dataset perfectblend --splits 'train[:3]' 2>err
[ "$(head -n 1 "$(rows "mlabonne--open-perfectblend--chat/-/train%5B%3A3%5D.512")")" = '{"conversations":[{"from":"human","value":"ask 0"},{"from":"gpt","value":"say"}]}' ] || fail "perfectblend"
run i --dataset open_platypus --splits 'train[:3]' --text-template '{{ instruction }}: {{ answer }}'
for k in 0 1 2; do echo "{\"text\": \"do $k: #### $((2 * k))\"}"; done >filled.jsonl
run j --dataset filled.jsonl
cmp i/model.safetensors j/model.safetensors

# Only the needed rows are read. Tests a whole split, percents, smaller pages for a server with
# limits, and a busy server.
plan() { "$ONESHOT" plan --verbose --model "$model" --scheme W4A16 --method gptq "$@" >out 2>err || fail "$*: $(cat err)"; }
plan --dataset ok/data --num-calibration-samples 130
[ "$(wc -l <"$(rows "ok--data/-/train.130")")" = 130 ] || fail "130"
plan --dataset ok/data
[ "$(wc -l <"$(rows "ok--data/-/train.512")")" = 250 ] || fail "all"
plan --dataset ok/data --splits 'train[10%:20%]'
[ "$(sed -n 's/.*"n":\([0-9]*\).*/\1/p' "$(rows "ok--data/-/train%5B10%25%3A20%25%5D.512")" | tr '\n' ' ')" = "$(seq -s ' ' 25 49) " ] || fail "percents"
plan --dataset big/data --splits 'train[:90]' --shuffle-calibration-samples --num-calibration-samples 5
[ "$(wc -l <"$(rows "big--data/-/train%5B%3A90%5D")")" = 90 ] || fail "big"
plan --dataset ok/data --splits 'train[10%:12%]+test[-2:] + train[:3]' --num-calibration-samples 9
[ "$(sed -n 's/.*"n":\([0-9]*\).*/\1/p' home/oneshot/rows/ok--data/-/*%2B*.9.jsonl | tr '\n' ' ')" = "25 26 27 28 29 1 2 0 1 " ] || fail "the rows of a sum of slices are wrong"
plan --dataset ultrachat --splits 'train[:1]+test_gen[:1]'
ls home/oneshot/rows/HuggingFaceH4--ultrachat_200k--chat/-/train_sft%5B%3A1%5D%2Btest_gen%5B%3A1%5D.512.jsonl >/dev/null
plan --dataset unready/data --splits 'train[:2]'
grep -q '^hub /rows.* auth=Bearer hf_good' log || fail "the token is not sent"

refused() { # arguments: exit code, part of the message, then the arguments of oneshot
    local want=$1 says=$2 code=0
    shift 2
    "$ONESHOT" plan --model "$model" --scheme W4A16 --method gptq "$@" >out 2>err || code=$?
    [ $code = "$want" ] && grep -qF -- "$says" err || fail "$*: exit $code, $(cat err), wanted: $says"
}
refused 2 "openai/gsm8k has several configurations: want --dataset-config-name, one of main, socratic" --dataset gsm8k
refused 2 "two/data has no configuration 'x', want one of main, socratic" --dataset two/data --dataset-config-name x
refused 2 "has no split 'val': want --splits with one of train, test" --dataset ok/data --splits val
refused 2 "splits 'train[300:]' has no row" --dataset ok/data --splits 'train[300:]'
refused 2 "needs a number of rows: want --splits 'train[:N]'" --dataset ok/data --shuffle-calibration-samples true
refused 2 "want a split" --dataset ok/data --splits 'train+'
refused 2 "has no split 'val'" --dataset ok/data --splits 'train[:2]+val'
refused 2 "is a file, which has no configurations" --dataset local.jsonl --dataset-config-name x
refused 2 "all data sets are files, which have no configurations" --dataset local.jsonl --dataset filled.jsonl --dataset-config-name x
refused 2 "want it once, or once for each of the 2 data sets" --dataset local.jsonl --dataset filled.jsonl \
    --dataset-config-name x --dataset-config-name y --dataset-config-name z
refused 2 "a data set by name needs a number of rows" --dataset ok/data --num-calibration-tokens 9
refused 1 "not found at $HF_DATASETS_SERVER, or private" --dataset gone/data
refused 1 "is cut off by the server" --dataset short/data
refused 1 "asked for row 0, got row 1" --dataset other/data
refused 1 "has only a part of the rows: want --splits 'train[:N]'" --dataset part/data --splits 'train[-5:]'
refused 1 "want --text-template" --dataset open_platypus
refused 1 "images or sound" --dataset flickr
refused 1 "some/rows.parquet" --dataset some/rows.parquet
refused 1 "no column 'story'" --dataset ok/data --splits 'train[:3]' --text-column story
refused 1 "missing/data.jsonl" --dataset missing/data.jsonl

# The run stays within --host-memory while it reads rows of 200,000 numbers. As a JSON tree, such a
# row would take 16 MB.
most() { # arguments: MiB that the command may use (python3 needs some of them), command
    local want=$1; shift
    python3 -c 'import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(code)' "$@" >out 2>err || fail "$*: $(cat err)"
    [ "$SANITIZED" ] || [ "$(tail -n 1 out)" -le "$want" ] || fail "$*: $(tail -n 1 out) MiB"
}
most 48 "$ONESHOT" plan --model "$model" --scheme W4A16 --method gptq --dataset wide/data --num-calibration-samples 20 --host-memory 48MiB
[ "$(wc -l <"$(rows "wide--data/-/train.20")")" = 20 ] || fail "wide"

# The perplexity on a data set that is given by name equals that on a file with the same rows.
eval() { # arguments: flags of eval
    "$ONESHOT" eval --model "$model" --progress none "$@" 2>err || fail "eval $*: $(cat err)"
}
"$ONESHOT" eval --model "$model" --dataset ok/data 2>err && fail "a data set without a split is not refused"
grep -qF "ok/data is a data set of the Hub: want --splits, such as 'test[:100]'" err || fail "$(cat err)"
eval --dataset ok/data --splits 'train[2:5]+test[:1]' >by_name
eval --dataset home/oneshot/rows/ok--data/-/train%5B2%3A5%5D%2Btest%5B%3A1%5D.jsonl >by_file
diff by_name by_file || fail "the perplexity differs from that of the file"
grep -q '^samples 4 ' by_name || fail "$(cat by_name)"
eval --dataset gsm8k --dataset-config-name main --splits train --first-window 1 --max-windows 2 >two
[ "$(wc -l <"$(rows openai--gsm8k--text/main/train.3)")" = 3 ] && grep -q '^samples 2 ' two || fail "$(cat two)"
cp home/oneshot/rows/ok--data/-/train%5B2%3A5%5D%2Btest%5B%3A1%5D.jsonl local4.jsonl
eval --dataset local4.jsonl --splits 'x[1:3]' >sliced
grep -q '^samples 2 ' sliced || fail "$(cat sliced)"

# Rows that are in the cache need no network.
kill $server
: >log
run e --dataset ok/data --splits 'train[:4]'
cmp a/model.safetensors e/model.safetensors
HF_HUB_OFFLINE=1 run f --dataset ok/data --splits 'train[:4]'
refused 1 "does not answer" --dataset ok/data --splits 'train[:5]'
export HF_HUB_OFFLINE=1
refused 1 "its rows are not in $PWD/home/oneshot/rows, and HF_HUB_OFFLINE is set" --dataset ok/data --splits 'train[:5]'
