# commands.sh - runs the commands of README and docs/ that tests/examples/pages.sh does not run.
# Small files have the names that the commands use. scripts/check_commands.py lists the commands
# that no test can run, with the reasons.
set -euo pipefail
[ -z "$SANITIZED" ] || { echo "this test runs commands only"; exit 77; }
PATH=$(dirname "$ONESHOT"):$PATH
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
mkdir DIR
cp "$model"/*.json "$model/model.safetensors" DIR
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 4096/' DIR/config.json
for name in M SRC Qwen3-0.6B SmolLM2-135M smollm2-135m; do ln -s DIR $name; done
for name in R RECIPE w4a16-gptq.yaml w4g64-gptq.yaml; do ln -s "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" $name; done
echo 's_modifiers: {AutoRoundModifier: {scheme: W4A16, ignore: [lm_head], iters: 2, batch_size: 4}}' >autoround.yaml
ln -s "$OSH_SOURCE_DIR/examples" examples
head -n 4 "$model/data/calibration.jsonl" >D.jsonl
for name in calib.jsonl calib-128x512.jsonl wikitext-calibration.jsonl code.jsonl; do ln -s D.jsonl $name; done
mkdir data && ln -s "$OSH_SOURCE_DIR/tests/golden/parquet/folder/0.parquet" data/train-00000-of-00001.parquet
head -c 6000 "$model/data/evaluation.txt" >wiki.txt
for k in 1 2 3; do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"ask $k\"}, {\"role\": \"assistant\", \"content\": \"say $k\"}]}" >>chat.jsonl
    echo "{\"question\": \"$k?\", \"answer\": \"$k\"}" >>gsm8k.jsonl
done
ln -s chat.jsonl chats.jsonl
export HF_HOME=$PWD/home HF_HUB_OFFLINE=1 # cache of downloads and of rows of data sets
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
repo=home/hub/models--Qwen--Qwen3-0.6B commit=c0ffee0000000000000000000000000000000000
mkdir -p $repo/refs/refs/pr $repo/snapshots home/oneshot/rows/openai--gsm8k--text/main
ln -s "$PWD/DIR" $repo/snapshots/$commit
printf $commit | tee $repo/refs/main >$repo/refs/refs/pr/1
sed 's/"question": \("[^"]*"\), "answer": .*/"text": \1}/' gsm8k.jsonl >"home/oneshot/rows/openai--gsm8k--text/main/train%5B%3A512%5D.512.jsonl"
python3 "$OSH_SOURCE_DIR/scripts/check_commands.py" --run
