#!/usr/bin/env bash
# quality-table.sh - compares methods of quantization of oneshot and of other programs. All methods
# get the same scheme and the same calibration samples. `oneshot eval` evaluates all outputs on the
# same text. Prints a table in Markdown: perplexity, KL divergence and top-1 agreement with the
# dense model, seconds, CPU seconds and MiB of each method.
#
# Usage: scripts/quality-table.sh --model DIR --dataset FILE.jsonl --text FILE --out DIR [options]
#                                 [-- flags of oneshot]
#   --rows "A:B ..."     methods B of programs A, in this order     (default: the first five)
#                          oneshot:rtn  oneshot:gptq  oneshot:best  oneshot:awq  oneshot:autoround-N
#                          llm-compressor:rtn  llm-compressor:gptq  llm-compressor:awq
#                          auto-round:autoround-N    (N steps of 8 samples)
#   --weights ARGS       weights of the scheme, as in a recipe     (default: {num_bits: 4,
#                        type: int, symmetric: true, strategy: group, group_size: 64})
#   --samples N          number of calibration samples     (default: 128)
#   --length N           largest number of tokens of a sample     (default: 512)
#   --seed N             seed of methods with random numbers     (default: 1)
#   --windows N          number of evaluated windows of --length tokens     (default: 128)
#   --first-window N     number of windows before the evaluated windows     (default: 0)
#   --oneshot BINARY     the program     (default: build/release/oneshot)
#   --peer-python FILE   Python of an environment with llmcompressor and auto-round
# Finished rows stay in OUT. The same command adds the missing rows. Needs GNU time and python3.
# Other work on the machine changes the seconds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rows="oneshot:rtn oneshot:gptq oneshot:best oneshot:awq oneshot:autoround-50"
weights="{num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 64}"
samples=128 length=512 seed=1 windows=128 first_window=0 oneshot=$here/../build/release/oneshot
model= dataset= text= out= peer_python=
. "$here/options.sh"
options "model dataset text out rows weights samples length seed windows first_window oneshot peer_python" "$@"
needed model dataset text out
[ -x /usr/bin/time ] || { echo "quality-table.sh: GNU time is not installed" >&2; exit 2; }
for row in $rows; do
    case $row in
    oneshot:rtn | oneshot:gptq | oneshot:best | oneshot:awq | oneshot:autoround-[1-9]*) ;;
    llm-compressor:rtn | llm-compressor:gptq | llm-compressor:awq | auto-round:autoround-[1-9]*) needed peer_python ;;
    *) echo "quality-table.sh: --rows: unknown row '$row'" >&2; exit 2 ;;
    esac
done
mkdir -p "$out"
exec 9>"$out/lock"
flock -n 9 || { echo "quality-table.sh: another quality-table.sh uses $out" >&2; exit 2; }
# results of a job with other options or another binary are removed
job=$(printf '%s\n' "$model" "$dataset" "$text" "$weights" "$samples" "$length" "$seed" "$windows" "$first_window" \
    ${flags[@]+"${flags[@]}"} && cksum <"$oneshot")
[ "$(cat "$out/job" 2>/dev/null)" = "$job" ] || rm -f "$out"/*.time "$out"/*.json
echo "$job" >"$out/job"

recipe() { # argument: method
    local modifier=QuantizationModifier iters=
    case $1 in
    gptq | best) modifier=GPTQModifier ;;
    autoround-*) modifier=AutoRoundModifier iters=${1#autoround-} ;;
    esac
    printf '%s\n' "quality_stage:" "  quality_modifiers:"
    [ "$1" != awq ] || echo "    AWQModifier: {}"
    printf '%s\n' "    $modifier:" "      config_groups:" "        group_0:" "          targets: [Linear]" \
        "          weights: $weights" "      ignore: [lm_head]"
    [ "$1" != best ] || echo "      quality: best"
    [ -z "$iters" ] || echo "      iters: $iters"
}
command_of() { # arguments: program, method; sets `command`, which writes the checkpoint OUT/compressed
    local calibration=(--dataset "$dataset" --num-calibration-samples "$samples" --max-seq-length "$length")
    local to=$out/compressed recipe=$out/recipe.yaml peer=("$peer_python" "$here/bench_peer.py")
    [ "$2" != rtn ] || calibration=()
    case $1 in
    oneshot)
        command=("$oneshot" --model "$model" --recipe "$recipe" ${calibration[@]+"${calibration[@]}"} --seed "$seed"
            --progress none --output "$to" ${flags[@]+"${flags[@]}"})
        ;;
    llm-compressor)
        command=("${peer[@]}" compress "$model" "$to" "$recipe" "$dataset" "$samples" "$length")
        ;;
    auto-round)
        command=("${peer[@]}" auto_round "$model" "$to" "$recipe" "$dataset" "$samples" "$length" "$seed")
        ;;
    esac
}
evaluate() { # arguments: checkpoint, JSON file
    "$oneshot" eval --model "$1" --reference "$model" --dataset "$text" --max-seq-length "$length" --json \
        --first-window "$first_window" --max-windows "$windows" --progress none >"$2.part"
    mv "$2.part" "$2"
}

for row in $rows; do
    name=$out/${row/:/.}
    [ ! -e "$name.json" ] || continue
    rm -rf "$out/compressed"
    recipe "${row#*:}" >"$out/recipe.yaml"
    command_of "${row%:*}" "${row#*:}"
    quietly "$name.log" /usr/bin/time -o "$name.time" -f '%e %U %S %M' "${command[@]}"
    evaluate "$out/compressed" "$name.json"
done
[ -e "$out/dense.json" ] || evaluate "$model" "$out/dense.json"
rm -rf "$out/compressed"
python3 - "$out" $rows <<'PYTHON'
import json
import pathlib
import sys

out = pathlib.Path(sys.argv[1])
print("| Program | Method | Perplexity | KL divergence | Top-1 agreement | Seconds | CPU seconds | MiB |")
print("|---|---|---|---|---|---|---|---|")
print(f"| | dense | {json.loads((out / 'dense.json').read_text())['perplexity']:.3f} | | | | | |")
for row in sys.argv[2:]:
    program, method = row.split(":")
    e = json.loads((out / f"{program}.{method}.json").read_text())
    seconds, user, system, kib = map(float, (out / f"{program}.{method}.time").read_text().split())
    print(f"| {program} | {method} | {e['perplexity']:.3f} | {e['kl_divergence']:.4f} | {e['top1_agreement'] * 100:.1f} % "
          f"| {seconds:.1f} | {user + system:.1f} | {kib / 1024:.0f} |")
PYTHON
