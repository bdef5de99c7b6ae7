#!/usr/bin/env bash
# bench.sh - oneshot against LLM Compressor (and llama.cpp) on the same job, run in turn: ratios of time and memory,
# perplexity of each, and for each phase of ours the operations a second against the peak measured beside it. A ratio is
# the median of those of each turn.
#
# Usage: scripts/bench.sh --model DIR --recipe FILE --dataset FILE.jsonl --out DIR [options] [-- flags of oneshot]
#   --samples N          128     --length N        512      tokens of a sample, at most
#   --runs N             3       the median counts
#   --oneshot BINARY     build/release/oneshot
#   --peer-python FILE   Python of an environment with llmcompressor; --install-peer [VERSION] makes one in OUT/peer
#   --llama-cpp DIR      a llama.cpp built into DIR/build: its imatrix on --text, then Q4_K_M
#   --text FILE          plain text: the perplexity of what came out, 128 windows of --length
# Needs GNU time and python3. Leave the machine alone while it runs; what else runs on it is in the figures.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
samples=128 length=512 runs=3 oneshot=$here/../build/release/oneshot peer= llama= text= model= recipe= dataset= out= install=
flags=()
while [ $# -gt 0 ]; do
    case $1 in
    --model) model=$2 && shift ;;
    --recipe) recipe=$2 && shift ;;
    --dataset) dataset=$2 && shift ;;
    --out) out=$2 && shift ;;
    --samples) samples=$2 && shift ;;
    --length) length=$2 && shift ;;
    --runs) runs=$2 && shift ;;
    --oneshot) oneshot=$2 && shift ;;
    --peer-python) peer=$2 && shift ;;
    --install-peer)
        install=llmcompressor
        case ${2:-} in [0-9]*) install=llmcompressor==$2 && shift ;; esac ;;
    --llama-cpp) llama=$2 && shift ;;
    --text) text=$2 && shift ;;
    --) shift && flags=("$@") && break ;;
    *) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2 && exit 2 ;;
    esac
    shift
done
for name in model recipe dataset out; do
    [ -n "${!name}" ] || { echo "bench.sh: --$name is not given" >&2; exit 2; }
done
[ -x /usr/bin/time ] || { echo "bench.sh: GNU time is not installed" >&2; exit 2; }
mkdir -p "$out"
if [ -n "$install" ] && [ -z "$peer" ]; then
    [ -x "$out/peer/bin/python" ] || { python3 -m venv "$out/peer" && "$out/peer/bin/pip" install -q "$install"; }
    peer=$out/peer/bin/python
fi

cat >"$out/peer.py" <<'PYTHON'
import json, sys
from datasets import Dataset
from llmcompressor import oneshot
from transformers import AutoModelForCausalLM, AutoTokenizer
model_dir, out, recipe, data, samples, length = sys.argv[1:5] + [int(n) for n in sys.argv[5:]]
model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
tokenizer = AutoTokenizer.from_pretrained(model_dir)
rows = [json.loads(line) for line in open(data)][:samples]
ids = [(r["input_ids"] if "input_ids" in r else tokenizer(r["text"]).input_ids)[:length] for r in rows]
oneshot(model=model, recipe=recipe, pipeline="sequential", num_calibration_samples=len(ids), max_seq_length=length,
        dataset=Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * len(r) for r in ids]}),
        shuffle_calibration_samples=False, batch_size=1)
model.save_pretrained(out, save_compressed=True)
tokenizer.save_pretrained(out)
PYTHON

same=() # what changes the peak, too
for ((i = 0; i + 1 < ${#flags[@]}; i++)); do
    case ${flags[i]} in --threads | --isa) same+=("${flags[i]}" "${flags[i + 1]}") ;; esac
done

timed() { # name, run; then the command: seconds, KiB, seconds of processors of the whole process into OUT/name.run.time
    local to=$out/$1.$2
    shift 2
    /usr/bin/time -o "$to.time" -f '%e %M %U %S' "$@" >"$to.log" 2>&1 || { tail -20 "$to.log" >&2; exit 1; }
}

if [ -n "$llama" ]; then
    [ -n "$text" ] || { echo "bench.sh: --llama-cpp wants --text" >&2; exit 2; }
    bin=$llama/build/bin
    [ -e "$out/model.gguf" ] || "${peer:-python3}" "$llama/convert_hf_to_gguf.py" "$model" --outtype bf16 \
        --outfile "$out/model.gguf" >"$out/convert.log" 2>&1
fi
for ((run = 1; run <= runs; run++)); do
    "$oneshot" bench --json ${same[@]+"${same[@]}"} >"$out/peak.$run.json"
    rm -rf "$out/ours"
    timed oneshot $run "$oneshot" --model "$model" --recipe "$recipe" --dataset "$dataset" \
        --num-calibration-samples "$samples" --max-seq-length "$length" --progress none --output "$out/ours" \
        ${flags[@]+"${flags[@]}"}
    cp "$out/ours/oneshot-report.json" "$out/report.$run.json"
    if [ -n "$peer" ]; then
        rm -rf "$out/theirs"
        timed llm-compressor $run "$peer" "$out/peer.py" "$model" "$out/theirs" "$recipe" "$dataset" "$samples" "$length"
    fi
    if [ -n "$llama" ]; then
        timed llama-imatrix $run "$bin/llama-imatrix" -m "$out/model.gguf" -f "$text" -o "$out/imatrix.gguf" \
            -c "$length" --chunks "$samples"
        timed llama-quantize $run "$bin/llama-quantize" --imatrix "$out/imatrix.gguf" "$out/model.gguf" \
            "$out/q4.gguf" Q4_K_M
    fi
done
if [ -n "$text" ]; then
    for pair in "dense=$model" "oneshot=$out/ours" ${peer:+"llm-compressor=$out/theirs"}; do
        "$oneshot" eval --model "${pair#*=}" --dataset "$text" --max-seq-length "$length" --max-windows 128 \
            --progress none | sed -n 's/^perplexity //p' >"$out/${pair%%=*}.perplexity"
    done
fi

python3 - "$out" "$runs" <<'PYTHON'
import json, pathlib, statistics, sys
out, runs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
median = lambda values: statistics.median(list(values))
def figures(name):
    files = [out / f"{name}.{i}.time" for i in range(1, runs + 1)]
    if not files[0].exists():
        return None
    rows = [[float(x) for x in f.read_text().split()[-4:]] for f in files]
    seconds = [max(r[0], 0.01) for r in rows] # what time tells apart
    return seconds, [r[1] / 1024 for r in rows], [(r[2] + r[3]) / s for r, s in zip(rows, seconds)]
ours = figures("oneshot")
ratio = lambda theirs, mine: median(t / m for t, m in zip(theirs, mine))
print(f"{'':16}{'seconds':>10}{'each':>28}{'MiB':>8}{'times ours':>12}{'memory':>8}{'perplexity':>12}")
for name in ("oneshot", "llm-compressor", "llama-imatrix", "llama-quantize"):
    f = figures(name)
    if not f:
        continue
    p = out / f"{name}.perplexity"
    each = " ".join(f"{s:.1f}" for s in f[0])
    print(f"{name:16}{median(f[0]):10.1f}{each:>28}{median(f[1]):8.0f}{ratio(f[0], ours[0]):12.2f}"
          f"{ratio(f[1], ours[1]):8.2f}{p.read_text().strip() if p.exists() else '':>12}")
if (out / "dense.perplexity").exists():
    print(f"{'dense':16}{(out / 'dense.perplexity').read_text().strip():>78}")
peaks = [json.loads((out / f"peak.{i}.json").read_text()) for i in range(1, runs + 1)]
peak = median(p["bf16_flops"] for p in peaks)
reports = [json.loads((out / f"report.{i}.json").read_text()) for i in range(1, runs + 1)]
threads = peaks[0]["threads"]
print(f"\n{peaks[0]['isa']}, {threads} threads: products at most {peak / 1e9:.1f} GFLOP/s;"
      f" processors busy {median(ours[2]) / threads * 100:.0f} % of the time")
print(f"{'phase':16}{'seconds':>10}{'GFLOP':>12}{'GFLOP/s':>10}{'of peak':>9}")
flops = {}
for part in reports[0]["subgraphs"]:
    for phase, g in part["gflop"].items():
        flops[phase] = flops.get(phase, 0) + g
seconds = {k: median(r["seconds"][k] for r in reports) for k in reports[0]["seconds"]}
seconds["process"] = median(ours[0])
flops["process"] = sum(flops.values())
for phase, s in seconds.items():
    if phase == "total" or s < 0.005:
        continue
    g = flops.get(phase)
    rate = f"{g:12.0f}{g / s:10.1f}{g * 1e9 / s / peak:9.2f}" if g else ""
    print(f"{phase:16}{s:10.2f}{rate}")
PYTHON
