#!/usr/bin/env bash
# big-model.sh BUILD_DIR WORK_DIR [LAYERS...] - compresses synthetic Llama checkpoints by RTN and by
# GPTQ with --host-memory 2GiB. Every Linear is 4096 wide, and a layer has 185 MB. GPTQ has 8
# samples of 128 tokens. RLIMIT_DATA limits the data segment to 2 GiB. LAYERS are the numbers of
# layers (default 8 16 32); 98 layers are 20 GB. Prints one line per job: layers, bytes, seconds,
# predicted and measured peak. The variables METHODS (default "rtn gptq") and SHAPE select other
# jobs.
set -euo pipefail
build=$(realpath "$1") work=$2
shift 2
[ $# -gt 0 ] || set -- 8 16 32
threads=${THREADS:-2}
mkdir -p "$work"
for layers in "$@"; do
    model=$work/model-$layers
    "$build/tests/make_model" "$model" layers="$layers" samples=8 tokens=128 \
        ${SHAPE:-hidden=4096 intermediate=4096 heads=32 kv=8 vocab=128256}
    bytes=$(cat "$model"/*.safetensors | wc -c)
    for method in ${METHODS:-rtn gptq}; do
        job=(--model "$model" --scheme W4A16 --method $method --ignore lm_head --threads "$threads" --host-memory 2GiB)
        [ $method = rtn ] || job+=(--dataset "$model/calibration.jsonl")
        predicted=$("$build/oneshot" plan "${job[@]}" --json |
            sed -n '/"memory"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' | head -1)
        start=$(date +%s)
        (ulimit -d $((2 << 20)) && exec "$build/tests/watch_memory" "$work/watched" "$build/oneshot" "${job[@]}" \
            --output "$work/out" --progress none >/dev/null)
        read -r peak _ <"$work/watched"
        echo "$layers layers, $bytes bytes, $method: $(($(date +%s) - start)) s, predicted $predicted, measured $peak"
        rm -rf "$work/out"
    done
    rm -rf "$model"
done
