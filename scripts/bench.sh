#!/usr/bin/env bash
# bench.sh - compares oneshot with LLM Compressor (and llama.cpp) on the same job, in alternating
# turns. Prints ratios of time and memory, and the perplexity of each output. A ratio is the median
# over the turns. For each phase of oneshot, also prints its operations per second, divided by the
# peak speed of the machine. `oneshot bench` measures the peak before and after the run; the mean
# counts.
#
# Usage: scripts/bench.sh --model DIR --recipe FILE --dataset FILE.jsonl --out DIR [options]
#                         [-- flags of oneshot]
#   --samples N          128     --length N        512: most tokens of a sample
#   --runs N             3: number of turns; the median counts
#   --seconds S          1: seconds to measure each peak
#   --oneshot BINARY     build/release/oneshot
#   --peer-python FILE   Python of an environment with llmcompressor
#   --install-peer       makes that environment in OUT/peer (6 GB)
#   --peer-version X     version of llmcompressor for --install-peer (default: the newest)
#   --llama-cpp DIR      llama.cpp, built into DIR/build. It makes an imatrix from the text of the
#                        same samples, and then an output in Q4_K_M
#   --llama-python FILE  Python with torch, transformers and sentencepiece, which converts the model
#                        for llama.cpp (default: the Python of --peer-python)
#   --text FILE          plain text, on which the perplexity of the outputs is measured
#   --windows N          128: number of measured windows, each of --length tokens
#   --first-window N     0: number of windows that are skipped before the measured windows
# If the script is interrupted, it prints the results so far. The same command continues with the
# files of OUT; a different command starts from the beginning. Needs GNU time and python3. Do not
# use the machine during the run, because other work changes the times.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
samples=128 length=512 runs=3 oneshot=$here/../build/release/oneshot windows=128 first_window=0 seconds=1
model= recipe= dataset= out= text= peer_python= install_peer= peer_version= llama_cpp= llama_python=
. "$here/options.sh"
options "model recipe dataset out samples length runs oneshot peer_python install_peer! peer_version llama_cpp \
llama_python text windows first_window seconds" "$@"
needed model recipe dataset out
[ -x /usr/bin/time ] || { echo "bench.sh: GNU time is not installed" >&2; exit 2; }
mkdir -p "$out"
exec 9>"$out/lock"
flock -n 9 || { echo "bench.sh: another bench.sh uses $out" >&2; exit 2; }
job=$(printf '%s\n' "$@" | sed '/^--runs$/,+1d' && cksum <"$oneshot")
[ "$(cat "$out/job" 2>/dev/null)" = "$job" ] || rm -rf "$out"/{*.time,*.perplexity,*.gguf,calibration.txt}
echo "$job" >"$out/job"

if [ -n "$install_peer" ] && [ -z "$peer_python" ]; then
    peer_python=$out/peer/bin/python
    if ! "$peer_python" -c 'import llmcompressor, sentencepiece' 2>/dev/null; then
        python3 -m venv "$out/peer"
        "$out/peer/bin/pip" install -q "llmcompressor${peer_version:+==$peer_version}" sentencepiece
    fi
fi
llama_python=${llama_python:-${peer_python:-python3}}
peer() { # arguments: the Python to run, then the arguments of bench_peer.py
    local python=$1
    shift
    PYTHONPATH=${llama_cpp:+$llama_cpp/gguf-py} "$python" "$here/bench_peer.py" "$@"
}
same=() # flags of oneshot that the measurement of the peaks also gets
for ((i = 0; i + 1 < ${#flags[@]}; i++)); do
    case ${flags[i]} in --threads | --isa) same+=("${flags[i]}" "${flags[i + 1]}") ;; esac
done

# arguments: name, the command; writes seconds, KiB and processor seconds to OUT/name.run.time
timed() {
    local to=$out/$1.$run
    shift
    quietly "$to.log" /usr/bin/time -o "$to.part" -f '%e %M %U %S' "$@"
    mv "$to.part" "$to.time"
}
to_do() { [ ! -e "$out/$1.$run.time" ]; }
perplexity() { # arguments: name, checkpoint; measures the perplexity once
    [ -n "$text" ] && [ ! -e "$out/$1.perplexity" ] || return 0
    quietly "$out/eval.log" "$oneshot" eval --model "$2" --dataset "$text" --max-seq-length "$length" \
        --first-window "$first_window" --max-windows "$windows" --progress none
    sed -n 's/^perplexity //p' "$out/eval.log" >"$out/$1.perplexity"
}

peak() { "$oneshot" bench --json --seconds "$seconds" ${same[@]+"${same[@]}"} >"$out/$1.$run.json"; }
ours() {
    peak peak
    rm -rf "$out/ours"
    timed oneshot "$oneshot" --model "$model" --recipe "$recipe" --dataset "$dataset" \
        --num-calibration-samples "$samples" --max-seq-length "$length" --progress none --output "$out/ours" \
        ${flags[@]+"${flags[@]}"}
    peak peak-after # on a shared machine the rates may be different after the run
    cp "$out/ours/oneshot-report.json" "$out/report.$run.json"
}
llm_compressor() {
    rm -rf "$out/theirs"
    timed llm-compressor env OMP_NUM_THREADS="$threads" "$peer_python" "$here/bench_peer.py" compress "$model" \
        "$out/theirs" "$recipe" "$dataset" "$samples" "$length"
}
llama() {
    local bin=$llama_cpp/build/bin
    if [ ! -e "$out/calibration.txt" ]; then
        quietly "$out/convert.log" "$llama_python" "$llama_cpp/convert_hf_to_gguf.py" "$model" --outtype bf16 \
            --outfile "$out/model.gguf"
        quietly "$out/text.log" peer "$llama_python" text "$model" "$out/text.part" "$dataset" "$samples" "$length"
        mv "$out/text.part" "$out/calibration.txt"
    fi
    timed llama-imatrix "$bin/llama-imatrix" -m "$out/model.gguf" -f "$out/calibration.txt" -o "$out/imatrix.gguf" \
        -c "$length" --chunks "$samples" --no-ppl -t "$threads"
    timed llama-quantize "$bin/llama-quantize" --imatrix "$out/imatrix.gguf" "$out/model.gguf" "$out/q4.gguf" Q4_K_M \
        "$threads"
}

trap 'trap - EXIT; python3 "$here/bench_table.py" "$out" "$runs"' EXIT
for ((run = 1; run <= runs; run++)); do
    if to_do oneshot; then ours; fi
    perplexity oneshot "$out/ours"
    threads=$(sed -n 's/^{"threads": \([0-9]*\),.*/\1/p' "$out/peak.$run.json")
    if [ -n "$peer_python" ]; then
        if to_do llm-compressor; then llm_compressor; fi
        perplexity llm-compressor "$out/theirs"
    fi
    if [ -n "$llama_cpp" ]; then
        if to_do llama-quantize; then llama; fi
        if [ -n "$text" ] && [ ! -e "$out/llama-quantize.perplexity" ]; then
            rm -rf "$out/q4"
            quietly "$out/dense.log" peer "$llama_python" dense "$model" "$out/q4" "$out/model.gguf" "$out/q4.gguf"
            perplexity llama-quantize "$out/q4"
        fi
    fi
    perplexity dense "$model"
done
