# rotate.sh - runs rotations that are computed in each forward pass on the emulated GPU: R3 and R4
# of SpinQuantModifier, and QuIPModifier with computed matrices (calibration) and with stored
# matrices (eval). The errors of Linears and the perplexity are near the host's. The output bytes do
# not depend on the order of the GPU's threads or on budgets. The smallest --device-memory of the
# plan is enough, and the arena's peak is predicted.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
layers="targets: ['re:model.layers.0.*(o|down)_proj']"
printf 's_stage:\n  s_modifiers:\n    SpinQuantModifier: {rotations: [R1, R2, R3, R4]}\n    GPTQModifier: {scheme: W4A16, %s}\n' \
    "$layers" >spin.yaml
printf 's_stage:\n  s_modifiers:\n    QuIPModifier: {transform_type: random-hadamard}\n    GPTQModifier: {scheme: W4A16, %s}\n' \
    "$layers" >quip.yaml
job=(--model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64
     --threads 1)
one() { # arguments: recipe, output, flags
    last_wins "$PLAY_BATCHES" "${job[@]}" --progress none --recipe "$1.yaml" --output "$2" "${@:3}" >/dev/null 2>err ||
        fail "$1 $2: $(cat err)"
}
ppl() {
    "$PLAY_BATCHES" eval --model "$1" --dataset "$model/data/evaluation.txt" --max-seq-length 32 --max-windows 8 --threads 1 \
        --progress none --device "$2" | sed -n 's/^perplexity //p'
}
recipes="spin quip"
[ -z "$SANITIZED" ] || recipes=quip # builds with sanitizers are slow
for r in $recipes; do
    one $r gpu.$r
    grep -q '"back_end": "cuda"' gpu.$r/oneshot-manifest.json || fail "$r: the run used no GPU"
    one $r host.$r --device cpu
    "$ONESHOT" verify gpu.$r --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
    gpu=$(ppl gpu.$r cuda) host=$(ppl gpu.$r cpu)
    awk "BEGIN {exit !($gpu < 1.005 * $host && $gpu > 0.995 * $host && $gpu != $host)}" ||
        fail "$r: perplexity $gpu on the GPU, $host on the host"
    least=$("$PLAY_BATCHES" plan "${job[@]}" --recipe $r.yaml --json |
        sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
    want=$(sha256sum <gpu.$r/model.safetensors)
    OSH_PLAY="protect=0 memory=$least" one $r other --device-memory "$least"
    [ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "$r: $least bytes: the output has other bytes"
    rm -rf other
    OSH_PLAY="protect=0 order=5 lazy=1" one $r other --mem-opt-level 2
    [ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "$r, another order: the output has other bytes"
    rm -rf other
done
command -v python3 >/dev/null || exit 0
python3 - $recipes <<'P'
import json, sys
for name in sys.argv[1:]:
    gpu, host = (json.load(open(f"{d}.{name}/oneshot-report.json")) for d in ("gpu", "host"))
    d = gpu["device"]
    assert d["peak_bytes"] <= d["predicted_peak_bytes"] <= 1.15 * d["peak_bytes"], d
    assert len(gpu["modules"]) == 2, gpu["modules"]
    for a, b in zip(gpu["modules"], host["modules"]):
        x, y = a["relative_squared_error"], b["relative_squared_error"]
        assert a["name"] == b["name"] and abs(x - y) <= 0.02 * y, (name, a, b)
P
