# observers.sh - runs observers of activations on the emulated GPU that need more than the range of
# each sample: observers that search, observers with histograms, and observers of the heads of keys
# and values. Also observes caches and outputs of Linears, whose ranges the GPU computes. The scales
# of the first Linears are those of the host, and the scales of all other Linears are near the
# host's. The output bytes do not depend on the order of the GPU's threads, on the tier, on budgets
# or on a kill. The smallest budgets of the plan are enough, and the arena's peak is predicted. eval
# rounds inputs and outputs of Linears, keys and values on a GPU as on the host.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
group() { # arguments: name, targets, observer, its arguments
    echo "        $1: {targets: ['re:.*layers.$2'], weights: {num_bits: 8, strategy: channel}, input_activations: {
          num_bits: 8, symmetric: false, dynamic: false, observer: $3, observer_kwargs: {$4}}}"
}
cat >many.yaml <<YAML
s_stage:
  s_modifiers:
    GPTQModifier:
      kv_cache_scheme: {num_bits: 8, type: float, strategy: attn_head, observer: mse}
      config_groups:
$(group a '0.*[qkv]_proj' mse 'averaging_constant: 0.5')
$(group b '0.*(gate|up)_proj' percentile '')
$(group c '1.*[qkv]_proj' entropy '')
$(group d '1.*(gate|up)_proj' min_mse 'exact: true')
$(group e '2.*[qkv]_proj' layerwise_percentile '')
$(group f '2.*(gate|up)_proj' distribution '')
YAML
cat >ranges.yaml <<YAML
s_stage:
  s_modifiers:
    QuantizationModifier:
      kv_cache_scheme: {num_bits: 8, type: float}
      config_groups:
        a: {targets: ['re:.*layers.0.*down_proj'], weights: {num_bits: 8, strategy: channel}, output_activations: {
          num_bits: 8, type: float, strategy: tensor, dynamic: false}}
$(group b '0.*[qkv]_proj' minmax '')
YAML
job=(--model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 5 --max-seq-length 48
     --threads 1)
one() { # arguments: recipe, output, flags
    last_wins "$PLAY_BATCHES" "${job[@]}" --progress none --recipe "$1.yaml" --output "$2" "${@:3}" >/dev/null 2>err
}
ppl() { # arguments: model, device, flags
    "$PLAY_BATCHES" eval --model "$1" --device "$2" "${@:3}" --dataset "$model/data/evaluation.txt" --max-seq-length 32 \
        --max-windows 8 --threads 1 --progress none | sed -n 's/^perplexity //p'
}
recipes="many ranges"
for r in $recipes; do
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one $r gpu.$r || fail "$r: $(cat err)"
    grep -q '"back_end": "cuda"' gpu.$r/oneshot-manifest.json || fail "$r: the run used no GPU"
    one $r host.$r --device cpu || fail "$r on the host: $(cat err)"
    "$ONESHOT" verify gpu.$r --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
    want=$(sha256sum <gpu.$r/model.safetensors)
    "$PLAY_BATCHES" plan "${job[@]}" --recipe $r.yaml --json >plan.json
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' plan.json)
    least_host=$(sed -n '/"smallest_budgets"/,/}/s/^ *"host_bytes": \([0-9]*\),*$/\1/p' plan.json)
    same() { # arguments: what, flags
        one $r other "${@:2}" || fail "$r, $1: $(cat err)"
        [ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "$r, $1: the output has other bytes"
        rm -rf other
    }
    host=(--host-memory "$least_host")
    [ -z "$SANITIZED" ] || host=() # the plan does not count the memory of a sanitizer
    OSH_PLAY="protect=0 memory=$least" same "least memory" --device-memory "$least" "${host[@]}"
    [ -z "$SANITIZED" ] || exit 0 # builds with sanitizers are slow
    gpu=$(ppl gpu.$r cuda) host=$(ppl gpu.$r cpu) plain=$(ppl gpu.$r cuda --no-activation-quantization)
    awk "BEGIN {exit !($gpu < 1.006 * $host && $gpu > 0.994 * $host && $gpu != $plain)}" ||
        fail "$r: perplexity $gpu on the GPU, $host on the host, $plain without rounding"
    [ $r = many ] || continue
    OSH_PLAY="protect=0 order=5 lazy=1" same "another order" --mem-opt-level 2
    if INJECT_AT=$(($(cat calls) * 6 / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one $r other; then
        fail "the run was not killed"
    fi
    same "a killed run"
done
command -v python3 >/dev/null || exit 0
python3 - $recipes <<'P'
import json, struct, sys

def scales(path):
    raw = open(path + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for k, e in json.loads(raw[8:8 + n]).items():
        if k.endswith(("put_scale", "k_scale", "v_scale")):
            at, end = (8 + n + i for i in e["data_offsets"])
            out[k] = [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(at, end, 2)]
    return out

for name, count in zip(sys.argv[1:], (4 * 2 + 3 * 5, 4 * 2 + 1 + 3)):
    gpu, host = scales("gpu." + name), scales("host." + name)
    assert gpu.keys() == host.keys() and len(gpu) == count, (len(gpu), len(host), count)
    for k, of_gpu in gpu.items():
        for a, b in zip(of_gpu, host[k], strict=True):
            # the inputs of the first Linears are equal on the GPU and on the host
            first = ".0.self_attn" in k and "input" in k
            assert a == b if first else abs(a - b) < 0.1 * b, (name, k, a, b)
    d = json.load(open(f"gpu.{name}/oneshot-report.json"))["device"]
    assert d["peak_bytes"] <= d["predicted_peak_bytes"] <= 1.15 * d["peak_bytes"], d
P
