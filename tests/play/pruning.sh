# pruning.sh - runs SparseGPT, Wanda and magnitude pruning on the emulated GPU. Also runs the
# observer imatrix_mse, which needs the statistic of Wanda. Almost all zeros must be those of the
# host. Some zeros differ, because attention on a GPU rounds at other steps, which changes the
# inputs of later Linears. The output bytes must not depend on the order of the GPU's threads, on
# batches, tiers, budgets or a kill. The smallest --device-memory of the plan must be enough, and
# the memory must be predicted. GPTQ after pruning must give errors near the host's.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} OSH_PLAY=protect=0
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$*"; exit 1; }
recipe() { # arguments: name, modifiers
    printf 's_stage:\n  s_modifiers:\n    %s\n    %s\n' "$2" "${3:-}" >"$1.yaml"
}
layers="'re:model.layers.0.(self_attn.[qo]|mlp.(up|down))_proj'"
recipe any "SparseGPTModifier: {sparsity: 0.5, targets: [$layers]}"
recipe each "SparseGPTModifier: {sparsity: 0.5, mask_structure: '2:4', block_size: 48, targets: [$layers]}" \
    "QuantizationModifier: {scheme: FP8_DYNAMIC, targets: ['re:.*layers.0.*(o|down)_proj']}"
recipe kept "SparseGPTModifier: {sparsity: 0.4, preserve_sparsity_mask: true, targets: ['re:model.layers.0.*up_proj']}"
recipe wanda "WandaPruningModifier: {sparsity: 0.5, targets: [$layers]}"
recipe pairs "WandaPruningModifier: {mask_structure: '2:4', targets: [$layers]}" \
    "QuantizationModifier: {scheme: FP8, targets: ['re:.*layers.0.*(o|down)_proj']}"
recipe least "MagnitudePruningModifier: {final_sparsity: 0.4, targets: [$layers]}" \
    "QuantizationModifier: {scheme: FP8, targets: ['re:.*layers.0.*(o|down)_proj']}"
recipe imatrix "QuantizationModifier: {config_groups: {g: {targets: ['re:model.layers.0.*(o|down)_proj'], weights: {
      num_bits: 4, group_size: 64, strategy: group, observer: imatrix_mse}}}}"
recipe gptq "SparseGPTModifier: {mask_structure: '2:4', targets: ['re:model.layers.0.*(o|down)_proj']}" \
    "GPTQModifier: {scheme: W4A16_ASYM, targets: ['re:model.layers.0.*(o|down)_proj']}"
job=(--model "$model" --dataset "$model/data/calibration.jsonl" --num-calibration-samples 6 --max-seq-length 64
     --threads 1 --progress none)
one() { # arguments: recipe, output, flags
    last_wins "$PLAY_BATCHES" "${job[@]}" --recipe "$1.yaml" --output "$2" "${@:3}" >/dev/null 2>err ||
        fail "$1 $2: $(cat err)"
}
recipes="any each kept wanda pairs least"
[ -z "$SANITIZED" ] || recipes=wanda # builds with sanitizers are slow
[ "$SANITIZED" ] || recipes+=" gptq"
for r in $recipes; do
    one $r gpu.$r
    grep -q '"back_end": "cuda"' gpu.$r/oneshot-manifest.json || fail "$r: the run used no GPU"
    one $r host.$r --device cpu
    "$ONESHOT" verify gpu.$r --model "$model" >verify.txt || { cat verify.txt; fail "$r: verify fails"; }
    case $r in any | each | wanda) ;; *) continue ;; esac
    OSH_PLAY="protect=0 order=5 lazy=1" one $r other --threads 2 --batch-size 3
    cmp gpu.$r/model.safetensors other/model.safetensors || fail "$r: the order of the threads changes the bytes"
    rm -rf other
done
if [ -z "$SANITIZED" ]; then
    one imatrix gpu.imatrix
    one imatrix host.imatrix --device cpu
    differ=$({ cmp -l gpu.imatrix/model.safetensors host.imatrix/model.safetensors || true; } | wc -l)
    [ "$differ" -lt 500 ] || fail "imatrix_mse: $differ bytes differ"
fi
cat >compare.py <<'P'
import json, struct, sys

def load(path):
    raw = open(path + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]]
            for k, e in json.loads(raw[8:8 + n]).items() if k.endswith("_proj.weight")}, json.loads(raw[8:8 + n])

for name in sys.argv[1:]:
    coded = name == "gptq" # its codes are not compared: verify reads the zeros
    (gpu, head), (host, _) = load("gpu." + name), load("host." + name)
    report = [json.load(open(f"{d}.{name}/oneshot-report.json")) for d in ("gpu", "host")]
    r = report[0]
    assert r["device"]["peak_bytes"] <= r["device"]["predicted_peak_bytes"], r["device"]
    for a, b in zip(*(x["modules"] for x in report)):
        x, y = a["relative_squared_error"], b["relative_squared_error"]
        assert a["name"] == b["name"] and abs(x - y) <= 0.02 * y, (name, a, b)
    other = total = zeros = 0
    for k in (m["name"] + ".weight" for m in r["modules"] if not coded):
        a = gpu[k]
        one = head[k]["dtype"] == "F8_E4M3"
        step, mask = (1, 0x7f) if one else (2, 0x7fff)
        code = "B" if one else "H"
        x, y = (struct.unpack(f"<{len(v) // step}{code}", v) for v in (a, host[k]))
        n = sum((v & mask == 0) != (w & mask == 0) for v, w in zip(x, y))
        # the inputs of this Linear are the same on the GPU and on the host
        assert "layers.0.self_attn.q_proj" not in k or n <= 10, (name, k, n)
        other += n
        zeros += sum(v & mask == 0 for v in x)
        total += len(x)
    if coded:
        continue
    print(name, "zeros", zeros, "of", total, "differ", other)
    assert 0.35 * total < zeros < 0.55 * total and other < 0.01 * total, (name, zeros, total, other)
P
if command -v python3 >/dev/null; then python3 compare.py $recipes; fi

checked="any wanda gptq"
[ -z "$SANITIZED" ] || checked=wanda
for r in $checked; do
    want=$(sha256sum <gpu.$r/model.safetensors)
    least=$("$PLAY_BATCHES" plan "${job[@]:0:8}" --recipe $r.yaml --json |
        sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p')
    one $r out --mem-opt-level 2
    [ "$(sha256sum <out/model.safetensors)" = "$want" ] || fail "$r: values on the disk: the output has other bytes"
    rm -rf out
    export OSH_PLAY="protect=0 memory=$least"
    INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so one $r out --device-memory "$least"
    [ "$(sha256sum <out/model.safetensors)" = "$want" ] || fail "$r: $least bytes: the output has other bytes"
    rm -rf out
    export OSH_PLAY=protect=0
    [ $r = any ] || [ "$SANITIZED" ] || continue # the resume does not depend on the modifier
    export OSH_PLAY="protect=0 memory=$least"
    if INJECT_AT=$(($(cat calls) / 2)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so last_wins "$PLAY_BATCHES" \
        "${job[@]}" --recipe $r.yaml --output out --device-memory "$least" >/dev/null 2>&1; then fail "$r: the run was not killed"; fi
    one $r out --device-memory "$least" --log-level info
    [ "$(sha256sum <out/model.safetensors)" = "$want" ] || fail "$r, killed: the output has other bytes"
    ! grep 'not at their planned addresses' err || fail "$r, killed: blocks were not at their planned addresses"
    rm -rf out
    export OSH_PLAY=protect=0
done
