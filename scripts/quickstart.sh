#!/usr/bin/env bash
# quickstart.sh - installs missing packages and builds the preset "release". Compresses the small
# model of the repository by rounding to nearest and by GPTQ. Prints a table with the sizes and
# perplexities of the model and of the outputs. Then prints commands to try next. Prints the
# compiler's output only if the build fails.
set -euo pipefail
shopt -s inherit_errexit # a failed measurement ends the script, also inside of $(...)
cd "$(dirname "$0")/.."

model=examples/docs-llama-3m out=build/quickstart oneshot=build/release/oneshot
log=$(mktemp)
trap 'rm -f "$log"' EXIT

count() { # shows how many steps of the build are done: on a terminal in one line, else at the end
    local line done=0
    while IFS= read -r line; do
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        done="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
        if [ -t 1 ]; then printf '\rcompiling %s' "$done"; fi
    done
    if [ -t 1 ]; then printf '\r\033[K'; fi
    echo "compiled $done"
}

bash scripts/install-deps.sh
cmake --preset release -D OSH_CUDA=OFF >"$log" 2>&1 || { cat "$log"; exit 1; }
# the target `product` is oneshot, and the other files that are installed or packed
cmake --build --preset release --target product 2>&1 | tee "$log" | count || {
    echo "the build failed:"
    grep -vE '^\[[0-9]+/[0-9]+\] ' "$log"
    exit 1
}

rm -rf "$out"
mkdir -p "$out"
progress=none
if [ -t 2 ]; then progress=auto; fi
compress() { "$oneshot" --model "$model" --progress $progress "$@" >/dev/null; }
compress --recipe examples/w4a16-rtn.yaml --output "$out/rtn"
compress --recipe examples/w4a16-gptq.yaml --dataset "$model/data/calibration.jsonl" \
    --num-calibration-samples 256 --max-seq-length 512 --output "$out/gptq"

row() { # arguments: label, directory
    local bytes perplexity
    bytes=$(stat -c %s "$2/model.safetensors")
    perplexity=$("$oneshot" eval --model "$2" --dataset "$model/data/evaluation.txt" --max-seq-length 512 \
        --progress none | sed -n 's/^perplexity //p')
    printf '%-28s %12s %12s\n' "$1" "$bytes" "$perplexity"
}
table=$(
    printf '%-28s %12s %12s\n' model bytes perplexity
    row "$model" "$model"
    row "$out/rtn" "$out/rtn"
    row "$out/gptq" "$out/gptq"
)
printf '\n%s\n' "$table"
cat <<END

report     $out/gptq/oneshot-report.html
next       $oneshot generate $out/gptq "The option" --max-new-tokens 20
           $oneshot plan --model YOUR_MODEL --scheme W4A16 --quality best --dataset YOUR_CHATS.jsonl
           $oneshot --model YOUR_MODEL --scheme W4A16 --quality best --dataset YOUR_CHATS.jsonl
END
