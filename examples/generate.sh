#!/usr/bin/env bash
# generate.sh - continues a prompt with a checkpoint (default: the small model before compression).
# Usage: examples/generate.sh [checkpoint directory]
# Last line: The option is used to
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=${ONESHOT:-$here/../build/release/oneshot}
model=${1:-$here/docs-llama-3m}

prompt="The option"
echo "$prompt$("$oneshot" generate "$model" "$prompt" --max-new-tokens 3)"
