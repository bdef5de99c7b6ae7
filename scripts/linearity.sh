#!/usr/bin/env bash
# linearity.sh - measures how the time of GPTQ on random weights depends on three numbers: samples,
# layers, and tokens of a sample. For each of these numbers, prints the straight line that fits the
# times best, and the distances of the times from this line.
#
# Usage: scripts/linearity.sh --make-model BINARY --out DIR [options] [-- flags of oneshot]
#   --oneshot BINARY     build/release/oneshot
#   --make-model BINARY  build/release/tests/make_model, which is built with the tests
#   --samples "8 16 32 64"           numbers of samples to measure
#   --layers "2 4 8 16"              numbers of layers to measure
#   --tokens "128 256 512 1024"      numbers of tokens of a sample to measure
#   --at "16 4 512"      samples, layers and tokens; two of them are fixed while the third changes
#   --shape "..."        sizes of a layer, as arguments of make_model (default: those of
#                        SmolLM2-135M)
#   --runs N             number of runs (default: 3); the shortest time counts
# Takes 4 minutes on two cores with AVX2. Do not use the machine during the run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oneshot=$here/../build/release/oneshot make_model= out= runs=3 at="16 4 512"
samples="8 16 32 64" layers="2 4 8 16" tokens="128 256 512 1024"
shape="hidden=576 intermediate=1536 heads=9 kv=3 vocab=8192"
. "$here/options.sh"
options "oneshot make_model out samples layers tokens at shape runs" "$@"
needed make_model out
mkdir -p "$out"
cat >"$out/recipe.yaml" <<'YAML' # groups of 64, because SmolLM2-135M is 576 wide
quant_stage:
  quant_modifiers:
    GPTQModifier:
      ignore: [lm_head]
      config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 64}
YAML

seconds() { # arguments: samples, layers, tokens; prints the shortest time of the runs
    local dir=$out/model.$1.$2.$3 best= s
    rm -rf "$dir"
    # shellcheck disable=SC2086
    "$make_model" "$dir" $shape samples="$1" layers="$2" tokens="$3"
    for ((run = 0; run < runs; run++)); do
        local begin=$EPOCHREALTIME
        "$oneshot" --model "$dir" --recipe "$out/recipe.yaml" --dataset "$dir/calibration.jsonl" \
            --num-calibration-samples "$1" --max-seq-length "$3" --progress none --overwrite --output "$out/compressed" \
            ${flags[@]+"${flags[@]}"} >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
        s=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }')
        best=$(awk -v a="${best:-$s}" -v b="$s" 'BEGIN { print a < b ? a : b }')
    done
    rm -rf "$dir"
    echo "$best"
}

read -r at_samples at_layers at_tokens <<<"$at"
for what in samples layers tokens; do
    for n in ${!what}; do
        case $what in
        samples) t=$(seconds "$n" "$at_layers" "$at_tokens") ;;
        layers) t=$(seconds "$at_samples" "$n" "$at_tokens") ;;
        tokens) t=$(seconds "$at_samples" "$at_layers" "$n") ;;
        esac
        echo "$what $n $t"
    done
done | tee "$out/times" | awk '
    function table(   i, a, b, d, far) { # fits a line by least squares
        b = (k * xy - x * y) / (k * xx - x * x); a = (y - b * x) / k
        printf "%-8s %10s %12s %10s\n", what, "seconds", "on the line", "off"
        for (i = 0; i < k; i++) {
            d = (ts[i] / (a + b * ns[i]) - 1) * 100
            printf "%-8d %10.2f %12.2f %9.1f%%\n", ns[i], ts[i], a + b * ns[i], d
            if (d * d > far * far) far = d
        }
        printf "%.3f s + %.4f s each, at most %.1f %% off\n\n", a, b, far < 0 ? -far : far
        k = x = y = xx = xy = 0
    }
    BEGIN { k = 0 }
    $1 != what { if (k) table() }
    { what = $1; ns[k] = $2; ts[k++] = $3; x += $2; y += $3; xx += $2 * $2; xy += $2 * $3 }
    END { if (k) table() }'
