#!/usr/bin/env bash
# bench-gpu.sh - measures GPTQ with 4 bits in groups of 128 on a GPU, on random weights with the
# shapes of Llama-3-8B or Qwen3-30B-A3B. It measures one or two models of few layers. From two
# models, it computes the time per layer and the time of the whole model. It compares each phase
# with the highest rate of matrix products of the GPU, and with the estimate of oneshot plan. It
# also times the reference algorithm in PyTorch on one layer (scripts/bench_gpu_peer.py). If OUT has
# a peak.json, the script reads the rates from this file and does not measure them.
#
# Usage: scripts/bench-gpu.sh --build DIR --out DIR [options] [-- flags of oneshot]
#   --device cuda[:N]    the GPU     (default: cuda)
#   --layers "A B"       numbers of layers of the two models, or of the only model  (default: "2 6")
#   --samples N          number of samples     (default: 512)
#   --tokens N           number of tokens of a sample     (default: 2048)
#   --like NAME          llama-3-8b (the default) or qwen3-30b-a3b. It decides the defaults of
#                        --shape, --whole and --targets:
#   --shape "..."        hidden=4096 intermediate=14336 heads=32 kv=8 vocab=32000      (llama-3-8b)
#                        hidden=2048 intermediate=768 heads=32 kv=4 head_dim=128 experts=128 topk=8
#                        vocab=32000      (qwen3-30b-a3b)
#   --whole N            number of layers of the whole model     (32, or 48)
#   --targets "..."      "LlamaDecoderLayer Linear", or "Qwen3MoeDecoderLayer Linear"
#   --seconds S          seconds to measure each rate     (default: 5)
#   --device-model NAME  the GPU whose estimate is printed     (default: by the GPU's name, or none)
#   --peer-python FILE   Python with torch, and with triton for the faster loop. The loops of
#                        bench_gpu_peer.py are always timed. If llmcompressor is installed, its own
#                        loops are timed, too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build= out= device=cuda layers="2 6" samples=512 tokens=2048 whole= seconds=5 peer_python= side=8192
like=llama-3-8b shape= targets= device_model=
. "$here/options.sh"
options "build out device layers samples tokens like shape whole targets seconds side peer_python device_model" "$@"
needed build out
case $like in
llama-3-8b) shapes="hidden=4096 intermediate=14336 heads=32 kv=8 vocab=32000" class=LlamaDecoderLayer n_whole=32 ;;
qwen3-30b-a3b)
    shapes="hidden=2048 intermediate=768 heads=32 kv=4 head_dim=128 experts=128 topk=8 vocab=32000"
    class=Qwen3MoeDecoderLayer n_whole=48 ;;
*) echo "bench-gpu.sh: --like $like: want llama-3-8b or qwen3-30b-a3b" >&2 && exit 2 ;;
esac
shape=${shape:-$shapes} targets=${targets:-$class Linear} whole=${whole:-$n_whole}
oneshot=${ONESHOT:-$build/oneshot}
mkdir -p "$out"
[ -e "$out/peak.json" ] || "$oneshot" bench --seconds "$seconds" --device "$device" --side "$side" --json >"$out/peak.json"
if [ -z "$device_model" ]; then # its name in docs/how-to/cuda.md
    case $(sed -n 's/.*"gpu": "\([^"]*\)".*/\1/p' "$out/peak.json") in
    *H200*) device_model=h200 ;; *H100*) device_model=h100 ;; *A100*80G*) device_model=a100 ;; *L40S*) device_model=l40s ;;
    *B200*) device_model=b200 ;; *"RTX "[345]0[0-9]0*) device_model=$(sed -n 's/.*RTX \([345]0[0-9]0\).*/rtx\1/p' "$out/peak.json") ;;
    esac
fi
for n in $layers; do
    model=$out/model-$n
    [ -e "$model/config.json" ] || "$build/tests/make_model" "$model" $shape layers="$n" samples="$samples" tokens="$tokens"
    for target in $targets; do
        job=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/calibration.jsonl"
             --num-calibration-samples "$samples" --max-seq-length "$tokens" --sequential-targets "$target" ${flags[@]+"${flags[@]}"})
        rm -rf "$out/output"
        "$oneshot" "${job[@]}" --device "$device" --output "$out/output" --progress none >"$out/$target.$n.log" 2>&1 ||
            { tail -20 "$out/$target.$n.log" >&2; exit 1; }
        [ -z "$device_model" ] || "$oneshot" plan "${job[@]}" --device-model "$device_model" --json >"$out/$target.$n.plan.json" 2>>"$out/$target.$n.log" ||
            rm "$out/$target.$n.plan.json" # the table of GPUs lacks this GPU
        cp "$out/output/oneshot-report.json" "$out/$target.$n.json"
    done
done
rm -rf "$out/output"
if [ -n "$peer_python" ]; then
    options=()
    for pair in $shape; do
        case ${pair%%=*} in vocab) ;; *) name=${pair%%=*} && options+=("--${name//_/-}" "${pair#*=}") ;; esac
    done
    torch_device=${PEER_DEVICE:-$device}
    "$peer_python" "$here/bench_gpu_peer.py" "${options[@]}" --samples "$samples" --tokens "$tokens" --device "$torch_device" \
        2>"$out/peer.log" | tail -1 >"$out/peer.json"
fi

python3 - "$out" "$whole" "$layers" "$targets" <<'PYTHON'
import json, pathlib, sys
out, whole, counts = pathlib.Path(sys.argv[1]), int(sys.argv[2]), [int(n) for n in sys.argv[3].split()]
few, many = counts[0], counts[-1]
load = lambda name: json.loads((out / name).read_text())
peak = load("peak.json")
print(f"{peak['gpu']}\nbf16 products {peak['gpu_bf16_flops'] / 1e12:.3g} TFLOP/s, f32 {peak['gpu_f32_flops'] / 1e12:.3g} TFLOP/s, attention "
      f"{peak['gpu_attention_flops'] / 1e12:.3g} TFLOP/s, "
      f"copies inside {peak['gpu_copy_bytes'] / 1e9:.4g} GB/s, from the host {peak['gpu_put_bytes'] / 1e9:.3g} GB/s")

def by_phase(report):
    """seconds and GFLOP of each phase of the whole run"""
    flops = {}
    for part in report["subgraphs"]:
        for phase, g in part["gflop"].items():
            flops[phase] = flops.get(phase, 0) + g
    flops["total"] = sum(flops.values())
    return report["seconds"], flops

def estimate(target, n):
    """seconds of each phase by oneshot plan"""
    if not (out / f"{target}.{n}.plan.json").exists():
        return {}
    s = load(f"{target}.{n}.plan.json")["device_model"]["estimated_seconds"]
    return {**s, "total": s["observe"] + s["solve"] + s["propagate"]}

solves = {}
for target in sys.argv[4].split():
    (a, fa), (b, fb) = (by_phase(load(f"{target}.{n}.json")) for n in (few, many))
    planned, planned_few = estimate(target, many), estimate(target, few)
    two = few < many
    print(f"\n{target}: seconds of {few} and {many} layers, of a layer, of {whole} layers" if two else f"\n{target}: seconds of {many} layers")
    print(f"{'phase':12}" + (f"{few:>10}{many:>10}{'a layer':>12}{whole:>10}" if two else f"{many:>10}")
          + f"{'TFLOP/s':>10}{'of peak':>9}" + (f"{'planned':>10}" if planned else ""))
    for phase in b:
        # with two models: seconds of a layer; with one model: seconds of the model
        each = (b[phase] - a.get(phase, 0)) / (many - few) if two else b[phase]
        if b[phase] < 0.005 and phase != "total":
            continue
        if phase == "solve":
            solves[target] = each if two and each > 0 else b[phase] / many  # <= 0: the time is noise
        g = (fb.get(phase, 0) - fa.get(phase, 0)) / (many - few) if two else fb.get(phase, 0)
        rate = f"{g / each / 1e3:10.3g}{g * 1e9 / each / peak['gpu_bf16_flops']:9.2f}" if g and each > 0 else f"{'':19}"
        plan = ""
        if phase in planned:
            plan = f"{(planned[phase] - planned_few[phase]) / (many - few) if two else planned[phase]:10.3f}"
        print((f"{phase:12}" + (f"{a.get(phase, 0):10.2f}{b[phase]:10.2f}{each:12.3f}{b[phase] + each * (whole - many):10.1f}" if two
                                else f"{b[phase]:10.2f}") + rate + plan).rstrip())
    gpu = load(f"{target}.{many}.json").get("device")
    if gpu:
        print("GPU: " + ", ".join(f"{k} {v}" for k, v in gpu.items()))
if (out / "peer.json").exists():
    peer = load("peer.json")
    print(f"\nPyTorch {peer['torch']} on {peer['device']}, llmcompressor {peer['llmcompressor'] or 'not installed'}; passes measured "
          f"on {peer['measured_samples']} of {peer['samples']} samples; seconds of a layer, of {whole}:")
    row = lambda name, s: print(f"{name:40}{s:10.3f}{s * whole:10.1f}", end="")
    for name, s in peer["seconds_a_layer"].items():
        row(name, s), print()
    for solve in peer["solves_a_layer"]:
        s, how = solve["seconds"], "weights of a shape together" if solve["batched"] else "a weight at a time"
        row(f"solve, {solve['loop']}, {solve['code']}", s)
        print(f"  {how};", ", ".join(f"{s / ours:.1f} times ours of {t}" for t, ours in solves.items() if ours > 0))
    for what, why in peer["left_out"].items():
        print(f"without {what}: {why}")
PYTHON
