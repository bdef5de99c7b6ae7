# foreign_words.sh - tests messages about the commands, flags, values and directories of other
# tools. Each message must name the right command or flag of oneshot. The flags and pages in all
# hints must exist. A directory without a flag must be the model.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
says() { # arguments: exit code, part of the message, command line
    local code=0
    "$ONESHOT" "${@:3}" >out 2>err || code=$?
    [ $code = "$1" ] && grep -qF -- "$2" err || fail "oneshot ${*:3}: exit $code, want $1 and '$2': $(cat err)"
    [ ! -e o ] || fail "oneshot ${*:3}: an output"
}
says 2 "unknown command 'quantize': compressing needs no command: want oneshot --model DIR" quantize --model m
says 2 "unknown command 'lm_eval': the program runs no tasks: want \`lm_eval --model hf" lm_eval
says 2 "unknown command 'org/name': want --model org/name" org/name --scheme W4A16
says 2 "unknown command 'verfy'; did you mean verify?" verfy
says 2 "unknown option '--bits': want --num-bits" --bits 4
says 2 "unknown option '--max-length': want --max-seq-length" --max-length=4
says 2 "unknown option '--Max_Length': want --max-seq-length" --Max_Length 4
says 2 "unknown option '--gpus': a process uses one GPU: for 4 GPUs, want \`mpirun -n 4 oneshot" --gpus 2
says 2 "unknown option '--tensor-parallel-size': a process uses one GPU; --tensor-parallel N checks" --tensor-parallel-size 2
says 2 "--device cuda:0,cuda:1: want cpu, cuda or cuda:N, because a process uses one GPU (for several GPUs" --model "$model" --scheme W4A16 --output o --device cuda:0,cuda:1
says 2 "--verbose: a run prints no plan; the flag belongs to \`oneshot plan\`: want --log-level info" --model "$model" --scheme W4A16 --output o --verbose
for flag in --json --largest-layer; do
    says 2 "$flag: a run prints no plan; the flag belongs to \`oneshot plan\`" --model "$model" --scheme W4A16 --output o $flag
done
says 2 "sequential target LlamaDecodrLayer matches no module of the model; did you mean LlamaDecoderLayer?" --model "$model" --scheme W4A16 \
    --method gptq --dataset "$model/data/calibration.jsonl" --output o --sequential-targets LlamaDecodrLayer
says 2 "unknown option '-m': want --model" -m "$model"
says 2 "unexpected argument '-z'" -z
says 2 "unexpected argument 'scheme=W4A16': want --scheme=W4A16" "$model" scheme=W4A16
says 2 "--format gguf: the program does not write GGUF" --format gguf
says 2 "unknown option '--format': the program writes only compressed-tensors" --format=auto_awq
says 2 "--method awq: want a recipe: docs/how-to/awq.md" --model "$model" --scheme W4A16 --method awq
for scheme in "int4 W4A16" "FP4 NVFP4 or MXFP4" "q4_k_m W4A16 or W8A16" "nf4 W4A16"; do
    says 2 "unknown scheme '${scheme%% *}': " --model "$model" --scheme "${scheme%% *}" --output o
    grep -q "want ${scheme#* }" err || fail "$scheme: $(cat err)"
    ! grep -q "scheme:[0-9]" err || fail "the message names a position without a file: $(cat err)"
done

# All flags and pages that the hints name must exist.
words=$OSH_SOURCE_DIR/src/base/foreign.c
grep -v '"lm_eval\|TASKS "\|lm_eval --model hf' "$words" | grep -oE -- '--[a-z][a-z-]+' | sort -u >flags
for command in "" generate; do "$ONESHOT" help all $command; done >all
while read -r flag; do
    [ "$flag" = --version ] || grep -qE -- "^  $flag |alias $flag\$" all || fail "foreign.c names $flag, which is no flag"
done <flags
[ "$(wc -l <flags)" -ge 15 ] || fail "$(cat flags)"
for page in $(grep -oE 'docs/[a-z/-]+\.md' "$words" | sort -u); do [ -e "$OSH_SOURCE_DIR/$page" ] || fail "no $page"; done

# For each command that has a model, a directory without a flag is the model.
"$ONESHOT" plan "$model" --scheme W4A16 >with
"$ONESHOT" plan --model "$model" --scheme W4A16 >without
cmp <(head -3 with) <(head -3 without)
"$ONESHOT" "$model" --scheme W4A16 --output o --progress none >/dev/null
rm -r o
says 2 "--model was given twice" "$model" --model "$model" --scheme W4A16
says 2 "unexpected argument 'b'" plan b --scheme W4A16

# Tests directories and files that are not models.
kind() { # arguments: part of the message, names of files
    rm -rf m && mkdir m
    for name in "${@:2}"; do mkdir -p "$(dirname "m/$name")" && echo '{}' >"m/$name"; done
    says 1 "$1" --model m --scheme W4A16 --output o
}
kind "m: has no config.json, wanted a model as transformers saves it" readme.txt
kind "m: has no config.json, and holds GGUF files: want the checkpoint" a-q4.gguf
kind "m: has no config.json, and is a repository in the Hub's cache: want --model ORG/NAME" snapshots/1/config.json
kind "m: has no config.json, and has the layout of Mistral's or Meta's own programs" params.json consolidated.safetensors tekken.json
kind "m: has no config.json, and is a pipeline of diffusers" model_index.json unet/config.json
kind "no model.safetensors.index.json, and has pickled weights, and loading these can run code" config.json pytorch_model.bin
kind "no model.safetensors.index.json, and has weights of TensorFlow" config.json tf_model.h5
kind "m: has no model.safetensors and no model.safetensors.index.json, wanted a model" config.json
kind "m: is a PEFT adapter (adapter_config.json)" adapter_config.json adapter_model.safetensors
echo '{"base_model_name_or_path": "org/base"}' >m/adapter_config.json
says 1 "m: is a PEFT adapter of org/base (adapter_config.json): want the merged model" --model m --scheme W4A16 --output o
echo x >a.gguf
says 1 "a.gguf: is a GGUF file, wanted a model's directory" --model a.gguf --scheme W4A16 --output o
says 1 "wanted a model's directory, such as the directory of this file" --model "$model/model.safetensors" --scheme W4A16 --output o
says 1 "none: is not a directory, wanted a model's directory: nothing has this name" --model none --scheme W4A16 --output o
rm -rf m && cp -r "$model" m && mv m/tokenizer.json m/tokenizer.model
says 1 "m/tokenizer.json is missing, and tokenizer.model is not supported: want tokenizer.json, which" \
    tokenize --model m m/data/evaluation.txt
says 2 "the rows hold text, and the model's tokenizer.model is not supported: want input_ids in the rows, or tokenizer.json, which" \
    --model m --scheme W4A16 --method gptq --dataset m/data/calibration.jsonl --output o
rm m/tokenizer.model
says 2 "there is no tokenizer: want tokenizer.json in the model's directory, or input_ids" \
    --model m --scheme W4A16 --method gptq --dataset m/data/calibration.jsonl --output o
