# end_to_end.sh - compares a job on the emulated GPU with the same job on the host. The codes must
# be equal except for rounding, and the errors must be nearly the same. The manifest must name the
# device. Missing libraries must be reported. A run must continue only on the device on which it
# began.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
job=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 8 --max-seq-length 64 --threads 1 --progress none)
fail() { echo "$*"; exit 1; }
refused() { # arguments: exit code, part of the message, flags
    code=$1 want=$2 got=0
    shift 2
    "$@" >/dev/null 2>err || got=$?
    [ "$got" = "$code" ] && grep -q -- "$want" err || fail "exit $got (wanted $code) without '$want': $(cat err)"
}
"$PLAY" "${job[@]}" --output gpu --profile gpu.yaml >/dev/null # --device auto chooses the GPU
# While the device is open, the profile has two numbers: the GPU memory that the driver reports (3
# GiB in nvml.cc), and the memory of the arena. The profile of the job on the host does not have
# them.
[ "$(grep -c gpu_device_mb gpu.yaml)" -gt 20 ] && ! grep 'gpu_device_mb' gpu.yaml | grep -v '^#' | grep -qv 3072.00 ||
    fail "the driver's figures: $(grep gpu_device_mb gpu.yaml)"
grep -q '"driver_peak_bytes": 3221225472' gpu/oneshot-report.json || fail "the report has no figure of the driver"
"$PLAY" "${job[@]}" --output host --device cpu --profile host.yaml >/dev/null
if grep -v '^#' host.yaml | grep -q gpu_device_mb; then fail "a run on the host has figures of a GPU"; fi
grep -q '"back_end": "cuda"' gpu/oneshot-manifest.json || fail "the manifest does not name the back end"
grep -q '"device": "emulated GPU, compute capability' gpu/oneshot-manifest.json || fail "the manifest does not name the GPU"
grep -q '"isa"' gpu/oneshot-manifest.json && fail "the manifest of a GPU run names the host's instruction set"
grep -q '"back_end": "cpu"' host/oneshot-manifest.json || fail "a run with --device cpu has another back end"

errors() { grep -o '"relative_squared_error": [0-9.e-]*' "$1/oneshot-report.json" | cut -d' ' -f2; }
# On a GPU, attention rounds its intermediate values at other steps than on the host
# (docs/explanation/numerics.md). So the error of a module is up to 2 % larger or smaller than on
# the host. The mean error is the same.
paste <(errors gpu) <(errors host) | awk '{ d = $1 / $2 - 1; if (d > 0.04 || d < -0.04) { print; bad = 1 } n++; sum += d }
    END { mean = sum / n; exit bad || n < 28 || mean > 0.005 || mean < -0.005 }' || fail "the errors of modules differ"
perplexity() { "$ONESHOT" eval --model "$1" --dataset "$model/data/evaluation.txt" --max-seq-length 128 --max-windows 24 \
    --threads 1 --progress none | sed -n 's/^perplexity //p'; }
a=$(perplexity gpu) b=$(perplexity host)
awk -v a="$a" -v b="$b" 'BEGIN { exit !(a < 1.01 * b && a > 0.99 * b) }' || fail "perplexity $a, on the host $b"
differ=$(cmp -l gpu/model.safetensors host/model.safetensors | wc -l) all=$(stat -c %s host/model.safetensors)
[ "$differ" -lt $((all / 4)) ] || fail "$differ of $all bytes differ"
echo "perplexity $a, on the host $b; $differ of $all bytes differ"

# The report and the profile have the numbers that exist only for a job on a GPU.
for key in peak_bytes predicted_peak_bytes to_device to_device_ahead from_device; do
    sed -n '/"device": {/,/^  }/p' gpu/oneshot-report.json | grep -q "\"$key\"" || fail "no $key in the report"
done
peak=$(sed -n '/"device": {/,/^  }/s/.*"peak_bytes": \([0-9]*\).*/\1/p' gpu/oneshot-report.json)
plan=$(sed -n '/"device": {/,/^  }/s/.*"predicted_peak_bytes": \([0-9]*\).*/\1/p' gpu/oneshot-report.json)
[ "$peak" -gt 0 ] && [ "$peak" -le "$plan" ] || fail "$peak bytes of the arena were used, predicted $plan"

# The output bytes do not depend on the host's threads and batches, the order of the GPU's threads,
# or the time at which its streams work.
want=$(sha256sum <gpu/model.safetensors)
OSH_PLAY="protect=0 order=7 lazy=1" last_wins "$PLAY" "${job[@]}" --threads 2 --batch-size 3 --output other >/dev/null
[ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "another order: the output has other bytes"
rm -rf other

# Static input ranges are computed on the GPU. They must equal the host's ranges except for
# rounding.
for d in cuda cpu; do
    last_wins "$PLAY" "${job[@]}" --scheme FP8 --method rtn --num-calibration-samples 3 --device $d --output static.$d >/dev/null
done
differ=$(cmp -l static.cuda/model.safetensors static.cpu/model.safetensors | wc -l)
[ "$differ" -le 56 ] || fail "static ranges: $differ bytes differ" # 28 scales of two bytes

refused 1 'there is no GPU cuda:5: this machine has 1' "$PLAY" "${job[@]}" --output o --device cuda:5
refused 2 'want cpu, cuda or cuda:N' "$PLAY" "${job[@]}" --output o --device gpu
refused 2 'the GPU has [0-9]*MiB for the run: want at least' env OSH_PLAY=memory=538000000 "$PLAY" "${job[@]}" --output o
refused 1 'bytes free.*wanted 67108864' env OSH_PLAY=memory=20000000 "$PLAY" "${job[@]}" --output o --device-memory 64MiB
refused 2 'want at least --device-memory' "$PLAY" "${job[@]}" --output o --device-memory 32MiB
[ ! -e o ] && [ ! -e o.oneshot-partial ] || fail "a refused run left something"
