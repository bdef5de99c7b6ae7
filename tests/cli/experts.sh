# experts.sh - tests the pruning of experts (docs/how-to/pruning.md). The run must drop the same
# experts as LLM Compressor. The other experts and their rows of the router must not change. The
# output must not depend on threads or a kill. A recipe may quantize after the pruning. Impossible
# jobs must be refused before any work. The test takes 2 s of processor time.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
fail() { echo "$*"; exit 1; }
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
"$OSH_TOOLS/make_model" m hidden=64 intermediate=32 heads=4 kv=2 layers=3 vocab=300 experts=8 topk=2 head_dim=16 samples=6 \
    tokens=40 seed=3
cat >reap.yaml <<'R'
default_stage:
  default_modifiers:
    REAPPruningModifier:
      sparsity: 0.25
      report_path: kept.json
R
job=(--model m --recipe reap.yaml --dataset m/calibration.jsonl --max-seq-length 40 --progress none)

"$ONESHOT" plan --verbose "${job[@]}" >plan
grep -q 'experts are measured first: 6 of 8 are left in each of 3 layers' plan || fail "$(cat plan)"
"$ONESHOT" "${job[@]}" --threads 1 --output out >said
grep -q 'experts: 6 of 8 left in each of 3 layers' said || fail "$(cat said)"
"$ONESHOT" verify out --model m >found || fail "$(cat found)"
cp -r out edited
sed -i 's/\("dropped": \["[^"]*\.experts\.\)[0-9]*/\17/' edited/oneshot-manifest.json
cmp -s out/oneshot-manifest.json edited/oneshot-manifest.json && fail "no other list of dropped tensors"
! "$ONESHOT" verify edited --model m >found 2>&1 || fail "another list of dropped tensors is not found"
grep -q '^dropped: has .*experts.7.* as its tensor 0, wanted ' found || fail "$(cat found)"
"$ONESHOT" "${job[@]}" --threads 1 --output out | grep -q 'nothing to do' || fail "the same command does not find the finished output"
"$ONESHOT" eval --model out --dataset m/calibration.jsonl --max-seq-length 40 --progress none >/dev/null
cat >look.py <<'P'
import json, struct, sys
def tensors(folder):
    import glob
    all = {}
    for path in glob.glob(folder + "/*.safetensors"):
        raw = open(path, "rb").read()
        n = struct.unpack("<Q", raw[:8])[0]
        for name, t in json.loads(raw[8:8 + n]).items():
            if name != "__metadata__": all[name] = (t["shape"], raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
    return all
a, b = tensors("m"), tensors("out")
kept = json.load(open("out/kept.json"))
# LLM Compressor 0.14.0.1 keeps these experts of this model and data (pipeline="basic"; its
# sequential pipeline loses the causal mask).
assert kept == {"model.layers.0.mlp": [0, 3, 4, 5, 6, 7], "model.layers.1.mlp": [0, 2, 3, 4, 6, 7],
                "model.layers.2.mlp": [0, 3, 4, 5, 6, 7]}, kept
want = {n: t for n, t in a.items() if ".mlp." not in n}
for layer, which in kept.items():
    shape, rows = a[layer + ".gate.weight"]
    each = len(rows) // shape[0]
    want[layer + ".gate.weight"] = [6, shape[1]], b"".join(rows[i * each:(i + 1) * each] for i in which)
    for at, i in enumerate(which):
        for leaf in ("gate_proj", "up_proj", "down_proj"):
            want[f"{layer}.experts.{at}.{leaf}.weight"] = a[f"{layer}.experts.{i}.{leaf}.weight"]
assert b == {n: (s, d) for n, (s, d) in want.items()}, set(b) ^ set(want) or [n for n in b if b[n] != want[n]]
was, now = json.load(open("m/config.json")), json.load(open("out/config.json"))
assert now == dict(was, num_experts=6), now
gone = json.load(open("out/oneshot-manifest.json"))["dropped"]
assert sorted(gone) == sorted(n for n in a if any(f"{l}.experts.{i}." in n for l, w in kept.items() for i in {*range(8)} - {*w})), gone
P
python3 look.py

# The output bytes are the same with another number of threads, with the recipe.yaml of the output
# as recipe, and after a kill.
want=$(sha256sum <out/model.safetensors)
"$ONESHOT" "${job[@]}" --threads 3 --batch-size 4 --output other >/dev/null
[ "$(sha256sum <other/model.safetensors)" = "$want" ] || fail "threads: the output has other bytes"
"$ONESHOT" --model m --recipe out/recipe.yaml --progress none --output again >said
[ "$(sha256sum <again/model.safetensors)" = "$want" ] && ! grep -q 'experts:' said || fail "its recipe: other bytes, $(cat said)"
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" --output all >/dev/null
for at in 2 5 8; do
    if INJECT_AT=$(($(cat calls) * at / 10)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" \
        --output killed >/dev/null 2>&1; then fail "the run was not killed"; fi
    "$ONESHOT" "${job[@]}" --output killed >/dev/null
    [ "$(sha256sum <killed/model.safetensors)" = "$want" ] || fail "killed at $at tenths: the output has other bytes"
    rm -rf killed
done
# verify finds a recipe.yaml that keeps expert 1, although the output has expert 0 instead
sed 's/\[0, 3, /[1, 3, /' out/recipe.yaml >wrong.yaml && cp wrong.yaml other/recipe.yaml
rc=0
"$ONESHOT" verify other --model m >found 2>&1 || rc=$?
[ $rc = 1 ] && grep -q 'model.layers.0.mlp.experts.0' found || fail "another expert: $rc, $(cat found)"

# A quantizer after the pruning sees the model without the pruned experts.
for quantizer in QuantizationModifier GPTQModifier; do
    cat >behind.yaml <<R
default_stage:
  default_modifiers:
    REAPPruningModifier: {sparsity: 0.5}
    $quantizer:
      config_groups:
        g: {targets: [Linear], weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}}
      ignore: [lm_head]
R
    last_wins "$ONESHOT" "${job[@]}" --recipe behind.yaml --output $quantizer >/dev/null
    "$ONESHOT" verify $quantizer --model m >found || fail "$quantizer: $(cat found)"
    python3 - $quantizer <<'P' || fail "$(cat $quantizer/config.json)"
import json, sys
c = json.load(open(sys.argv[1] + "/config.json"))
assert c["num_experts"] == 4, c["num_experts"]
sparse = c["quantization_config"]["moe_sparsity_config"]
assert sparse == {"method": "prune", "num_experts": [4] * c["num_hidden_layers"]}, sparse
P
done

refused() { # arguments: exit code, part of the message, then the arguments of oneshot
    local exit=$1 text=$2 rc=0
    shift 2
    last_wins "$ONESHOT" "$@" --output refused >said 2>&1 || rc=$?
    [ $rc = "$exit" ] && grep -q -- "$text" said || fail "$rc, and '$text' is not in: $(cat said)"
    [ -z "$(ls -d refused* 2>/dev/null)" ] || fail "refused: $(ls -d refused*) is left"
}
with() { # argument: keys; makes a recipe with these keys
    printf 'REAP_stage:\n  REAP_modifiers:\n    REAPPruningModifier: {%s}\n' "$1" >with.yaml
    echo with.yaml
}
refused 2 'leaves 1 of 8 experts, and a token goes to 2' "${job[@]}" --recipe "$(with 'sparsity: 0.9')"
refused 2 'of 8 experts drops no expert: want 0.125' "${job[@]}" --recipe "$(with 'sparsity: 0.1')"
refused 2 'want a share of the experts' "${job[@]}" --recipe "$(with '')"
refused 2 'want the name of a .json file' "${job[@]}" --recipe "$(with 'sparsity: 0.5, report_path: kept.txt')"
echo '{"user": 1}' >mine.json && ln mine.json other.json
for name in config.json Config.JSON model.safetensors.index.json tokenizer.json generation_config.json oneshot-report.json \
    ../mine.json mine/../mine.json "$PWD/mine.json" "$PWD/m/config.json" .mine.json calibration.json; do
    # the run would copy m/Calibration.json into the output, so the report cannot have this name
    [ $name != calibration.json ] || cp mine.json m/Calibration.json
    refused 2 'report_path .*: \(want a name\|want the name\|files of a model have\|the model has\)' "${job[@]}" --recipe "$(with "sparsity: 0.5, report_path: '$name'")"
done
rm m/Calibration.json
[ "$(cat mine.json)" = '{"user": 1}' ] || fail "a recipe wrote over a user's file"
"$ONESHOT" --model m --recipe "$(with 'sparsity: 0.5, report_path: mine.json')" "${job[@]:4}" --output mine >/dev/null
grep -q '"model.layers.0.mlp": \[' mine/mine.json && [ "$(cat mine.json)" = '{"user": 1}' ] || fail "mine/mine.json"
"$ONESHOT" verify mine --model m >found || fail "with a report: $(cat found)"
"$ONESHOT" --model m --scheme W8A8 --progress none --overwrite --output mine >/dev/null && [ ! -e mine/mine.json ] || fail "its report stays"
refused 1 'one number of experts for all layers' "${job[@]}" --recipe "$(with 'sparsity: 0.5, ignore: [layers.0]')"
refused 2 'retained has no entry for model.layers.1.mlp' "${job[@]}" --recipe "$(with 'sparsity: 0.75, retained: {model.layers.0.mlp: [0, 1]}')"
refused 2 'want whole numbers that rise' "${job[@]}" --recipe "$(with 'sparsity: 0.75, retained: {model.layers.0.mlp: [1, 1]}')"
refused 2 'has no layer with experts' "${job[@]}" --model "$OSH_SOURCE_DIR/examples/docs-llama-3m"
# gpt_oss has all experts in one tensor, so the job would prune only the routers
"$OSH_TOOLS/tiny_model" gpt_oss g
refused 1 'has experts that lie in one tensor' "${job[@]}" --model g --dataset g/calibration.jsonl
refused 2 'is too small' "${job[@]}" --host-memory 1MiB
refused 1 'do not support a recipe that drops experts' "${job[@]}" --recipe behind.yaml --target-bits 4
refused 2 'want --dataset' --model m --recipe reap.yaml

# transformers stacks experts in one tensor. If transformers cannot load experts with the scheme, or
# loads them wrongly, the plan prints a warning.
"$OSH_TOOLS/make_model" moe hidden=128 intermediate=128 heads=4 kv=2 head_dim=32 layers=1 vocab=96 experts=4 topk=2 samples=1 tokens=8 >/dev/null
for scheme in W4A16 W8A16 FP8_DYNAMIC MXFP4A16; do
    [ -z "$("$ONESHOT" plan moe --scheme $scheme 2>&1 >/dev/null)" ] || fail "$scheme warns"
done
for scheme in "W4A16_ASYM does not load" "W8A8 does not load" "FP8_BLOCK does not load" "MXFP8A16 does not load" "NVFP4A16 drops the global scales of"; do
    "$ONESHOT" plan moe --scheme ${scheme%% *} 2>&1 >/dev/null | grep -q "^warning: transformers 5.17 ${scheme#* } experts in group_0" ||
        fail "no warning: $scheme"
done
