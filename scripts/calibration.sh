#!/usr/bin/env bash
# calibration.sh - measures the calibration of static activations on a synthetic model, in which
# values take much more memory than weights. Prints a table in Markdown for
# docs/how-to/calibration.md.
#
# The table has one row for each observer that reads values once. An observer that reads values
# twice has four rows. In three of them, --calib-cache is `ram`, `disk` or `recompute`. In the
# fourth, the values of all layers are kept until the end. Two more rows are for the model in F32,
# because `--calib-cache disk_f16` saves space only for F32 values.
#
# Usage: scripts/calibration.sh --build DIR --out DIR [options] [-- flags of oneshot]
#   --build DIR       build directory that has tests/make_model and tests/watch_memory
#   --shape SHAPE     arguments of make_model (default: "hidden=512 intermediate=1024 heads=8 kv=8
#                     layers=8 vocab=1024 samples=256 tokens=256")
# Memory is the highest RssAnon + RssShmem. Disk is the size of scratch files according to the plan.
# Time is processor time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build= out= shape="hidden=512 intermediate=1024 heads=8 kv=8 layers=8 vocab=1024 samples=256 tokens=256"
. "$here/options.sh"
options "build out shape" "$@"
needed build out
mkdir -p "$out"
# shellcheck disable=SC2086 # each word of the shape is an argument
"$build/tests/make_model" "$out/model" $shape
# shellcheck disable=SC2086
"$build/tests/make_model" "$out/model-f32" $shape f32=1
model=$out/model
echo "| observer | kept | peak, predicted | peak, measured | scratch | processor time |"
echo "|---|---|---|---|---|---|"
row() { # arguments: observer, kwargs, label, flags
    local observer=$1 kwargs=$2 text=$3
    shift 3
    cat >"$out/recipe.yaml" <<YAML
s_modifiers:
  QuantizationModifier:
    ignore: [lm_head]
    config_groups:
      g:
        targets: [Linear]
        weights: {num_bits: 8, strategy: channel}
        input_activations: {num_bits: 8, dynamic: false, strategy: tensor, observer: $observer, observer_kwargs: {$kwargs}}
YAML
    job=(--model "$model" --recipe "$out/recipe.yaml" --dataset "$model/calibration.jsonl" --threads 2 "$@" ${flags[@]+"${flags[@]}"})
    "$build/oneshot" plan "${job[@]}" --json >"$out/plan.json"
    python3 - "$build" "$out" "$observer" "$text" "${job[@]}" <<'P'
import json, os, subprocess, sys
build, out, observer, text, *job = sys.argv[1:]
plan = json.load(open(out + "/plan.json"))["memory"]
run = subprocess.Popen([build + "/tests/watch_memory", out + "/watched", build + "/oneshot", *job, "--output", out + "/compressed",
                        "--overwrite", "--restart", "--progress", "none"], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(run.pid, 0)
assert status == 0, status
peak = int(open(out + "/watched").read().split()[0])
print(f"| {observer} | {text} | {plan['host_bytes'] / 1e6:.0f} MB | {peak / 1e6:.0f} MB | {plan['scratch_bytes'] / 1e6:.0f} MB | "
      f"{used.ru_utime + used.ru_stime:.1f} s |", flush=True)
P
}
row static_minmax "" "two numbers"
for observer in percentile layerwise_percentile min_mse entropy distribution; do row $observer "" "a histogram"; done
for cache in ram disk recompute; do row layerwise_percentile "exact: true" "exact, \`$cache\`" --calib-cache $cache; done
row layerwise_percentile "exact: true" "exact, all layers in memory" --calib-cache ram --pipeline basic
model=$out/model-f32
for cache in disk disk_f16; do row layerwise_percentile "exact: true" "exact, \`$cache\`, F32" --calib-cache $cache; done
