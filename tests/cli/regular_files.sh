# regular_files.sh - passes a pipe, a directory or a device where the program wants an input file.
# The program must refuse it at once, with a message that names the path. No process writes into the
# pipe, so a program that opened the pipe would hang. For some inputs, a directory counts as a
# missing file.
set -euo pipefail
fail() { echo "$*"; exit 1; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
cp "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" recipe.yaml
cp "$model/data/calibration.jsonl" "$model/data/evaluation.txt" .
mkdir m
cp "$model"/*.json "$model"/*.safetensors m/
"$ONESHOT" --model m --scheme W8A16 --ignore lm_head --output sharded --max-shard-size 1MB --progress none >/dev/null
refused() { # arguments: file, kind of file, words of the command
    local code=0
    timeout -s KILL 120 "$ONESHOT" "${@:3}" >log 2>&1 </dev/null || code=$?
    [ $code = 1 ] || [ $code = 2 ] || fail "exit $code, $1 is $2: ${*:3}: $(cat log)"
    [ "$2" = "a directory" ] || grep -q "$1: it is $2, want a regular file" log || fail "$1 is $2: ${*:3}: $(cat log)"
    [ ! -e out ] && [ ! -e out.oneshot-partial ] || fail "$1 is $2: ${*:3}: something was begun"
}
in_its_place() { # arguments: file, words of the command
    mv "$1" kept
    mkfifo "$1" && refused "$1" "a pipe" "${@:2}" && rm "$1"
    mkdir "$1" && refused "$1" "a directory" "${@:2}" && rmdir "$1"
    ln -s /dev/zero "$1" && refused "$1" "a character device" "${@:2}" && rm "$1"
    mv kept "$1"
}
job=(--model m --recipe recipe.yaml --dataset calibration.jsonl --num-calibration-samples 2 --max-seq-length 32
     --progress none --output out)
eval=(eval --model m --dataset evaluation.txt --max-seq-length 32 --max-windows 1 --progress none)
for file in m/config.json m/model.safetensors m/tokenizer.json recipe.yaml calibration.jsonl; do
    in_its_place $file "${job[@]}"
    in_its_place $file plan "${job[@]}"
done
for file in m/config.json m/model.safetensors m/tokenizer.json evaluation.txt; do in_its_place $file "${eval[@]}"; done
in_its_place m/model.safetensors inspect m
for what in "inspect sharded" "verify sharded" "eval --model sharded --dataset evaluation.txt --max-seq-length 32"; do
    # shellcheck disable=SC2086
    in_its_place sharded/model.safetensors.index.json $what
    # shellcheck disable=SC2086
    in_its_place sharded/model-00002-of-*.safetensors $what
done
in_its_place m/tokenizer.json tokenize --model m evaluation.txt
in_its_place evaluation.txt tokenize --model m evaluation.txt
"$ONESHOT" "${job[@]}" >/dev/null
