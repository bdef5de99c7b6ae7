# verify_methods.sh - tests verify with outputs of every method. The test makes faults in several
# Linears: codes that are all 0, a row of codes in another order, codes with the opposite sign, and
# scales that are twice as large. Then it rewrites the checksums. verify must find each fault, and
# no fault in the unchanged output.
set -euo pipefail
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
"$OSH_TOOLS/make_model" model hidden=256 intermediate=256 heads=2 kv=2 layers=2 vocab=256 samples=8 tokens=64
data=(--dataset model/calibration.jsonl --num-calibration-samples 8 --max-seq-length 64)
n=0
spoil() { # arguments: name, then the arguments of oneshot
    rm -rf out
    "$ONESHOT" --model model --progress none --output out "${data[@]}" "${@:2}" >log 2>&1 || fail "$1"
    "$ONESHOT" verify out --model model >log 2>&1 || fail "verify of the undamaged output fails: $1"
    rm -rf sound && cp -r out sound
    python3 "$OSH_SOURCE_DIR/tests/tools/corrupt.py" out model.layers.0 >spoilt
    "$OSH_TOOLS/st_edit" out manifest
    ! "$ONESHOT" verify out --model model >log 2>&1 || fail "$1: nothing is found"
    while read -r module way; do
        grep -q "^$module: " log || fail "$1: $way is not found in $module"
        n=$((n + 1))
    done <spoilt
}
# The first argument is a part of the expected message. The others are the arguments of st_edit,
# which changes the output. verify must find the fault with and without the source.
fault() {
    rm -rf out && cp -r sound out
    "$OSH_TOOLS/st_edit" out "${@:2}" && "$OSH_TOOLS/st_edit" out manifest
    for source in "" "--model model"; do
        ! "$ONESHOT" verify out $source >log 2>&1 || fail "nothing is found of ${*:2}"
        grep -q -- "$1" log || fail "the findings lack '$1'"
    done
}
recipe() { # arguments: name, modifiers
    case "$SANITIZED $1" in # with sanitizers, each modifier is tested once
    "1 gptq" | "1 wanda_rtn" | "1 wanda_asym" | "1 wanda_ada" | "1 sparse_gptq" | "1 magnitude_rtn" | "1 power") return 0 ;;
    esac
    printf 's_stage:\n  s_modifiers:\n' >$1.yaml
    printf '    %s\n' "${@:2}" >>$1.yaml
    spoil $1 --recipe $1.yaml
}
I='ignore: ["re:.*lm_head"]'
rtn="QuantizationModifier: {scheme: W4A16, targets: Linear, $I}"
gptq="GPTQModifier: {scheme: W4A16, targets: Linear, $I}"
wanda="WandaPruningModifier: {sparsity: 0.5, targets: [LlamaDecoderLayer]}"
sparse="SparseGPTModifier: {sparsity: 0.5, $I}"
two="SparseGPTModifier: {sparsity: 0.5, mask_structure: '2:4', $I}"
magnitude="MagnitudePruningModifier: {init_sparsity: 0.0, final_sparsity: 0.7, targets: ['re:.*layers.*']}"
recipe rtn "$rtn"
recipe gptq "$gptq"
recipe wanda_rtn "$wanda" "$rtn"
recipe wanda_gptq "$wanda" "$gptq"
recipe sparse_rtn "$sparse" "$rtn"
recipe sparse_gptq "$two" "$gptq"
recipe magnitude_rtn "$magnitude" "$rtn"
recipe magnitude_gptq "$magnitude" "$gptq"
recipe wanda_asym "$wanda" "GPTQModifier: {scheme: W4A16_ASYM, targets: Linear, $I}"
recipe wanda_fp8 "$wanda" "QuantizationModifier: {scheme: FP8_DYNAMIC, targets: Linear, $I}"
recipe wanda_ada "$wanda" "AdaRoundModifier: {scheme: W4A16, targets: Linear, $I, num_iterations: 10}"
recipe ada "AdaRoundModifier: {scheme: W4A16, targets: Linear, $I, num_iterations: 10}"
recipe round "AutoRoundModifier: {scheme: W4A16, targets: Linear, $I, iters: 4}"
recipe smooth "SmoothQuantModifier: {smoothing_strength: 0.5}" "GPTQModifier: {scheme: W8A8, targets: Linear, $I}"
recipe awq "AWQModifier: {}" "$rtn"
recipe rotated "SpinQuantModifier: {rotations: [R1, R2]}" "$gptq"
recipe static "QuantizationModifier: {scheme: FP8, targets: Linear, $I, kv_cache_scheme: {num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true}}"
attn=model.layers.1.self_attn
for bad in 0000 80bf c07f 807f; do # writes scales of 0, -1, NaN and infinity
    for scale in k_proj.input_scale k_scale v_scale; do fault "$scale.* is \|input_scale is " fill $attn.$scale 0 2 $bad; done
done
fault 'input_scale is -1' fill $attn.o_proj.input_scale 0 2 80bf
recipe micro "QuantizationModifier: {scheme: NVFP4, targets: Linear, $I}"
for scale in weight_global_scale input_global_scale; do
    fault "v_proj: $scale is 1, wanted .*, the value of .*, because vLLM fuses both" fill $attn.v_proj.$scale 0 4 0000803f
    fault "up_proj: $scale is 1, wanted .*gate_proj, because vLLM fuses both" fill model.layers.0.mlp.up_proj.$scale 0 4 0000803f
    fault "$scale is nan" fill $attn.o_proj.$scale 0 4 0000c07f
done
rm -rf out && cp -r sound out
sed -i 's/"dropped": \[\]/"dropped": ["model.norm.weight"]/' out/oneshot-manifest.json
! "$ONESHOT" verify out --model model >log 2>&1 || fail "verify accepts a changed list of dropped tensors"
grep -q 'dropped: has 1 tensors, wanted a list of 0 tensors' log || fail "verify accepts a changed list of dropped tensors"
recipe power "QuantizationModifier: {scheme: MXFP4A16, targets: Linear, $I}"
spoil quality --scheme W4A16 --ignore lm_head --quality best
echo "$n modules: each is found"
