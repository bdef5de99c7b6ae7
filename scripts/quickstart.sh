#!/usr/bin/env bash
# quickstart.sh - installs missing packages, builds the preset release, compresses the small model
# of the repository by rounding to nearest and by GPTQ, and prints size and perplexity before and
# after.
set -euo pipefail
cd "$(dirname "$0")/.."

model=examples/docs-llama-3m out=build/quickstart oneshot=build/release/oneshot

bash scripts/install-deps.sh
cmake --preset release -D OSH_CUDA=OFF >/dev/null
# builds oneshot, and the other files that install and cpack need
cmake --build --preset release --target product

rm -rf "$out"
mkdir -p "$out"
"$oneshot" --model "$model" --recipe examples/w4a16-rtn.yaml --output "$out/rtn"
"$oneshot" --model "$model" --recipe examples/w4a16-gptq.yaml --dataset "$model/data/calibration.jsonl" \
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
