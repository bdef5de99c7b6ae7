# verify_sparse.sh - tests verify with outputs that are pruned by SparseGPT and then quantized, by
# rounding or by GPTQ. The weights are uniform, normal or have heavy tails. There are three
# sparsities. verify must accept all outputs, and must find swapped, zeroed and shifted weights.
set -euo pipefail
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
I='ignore: ["re:.*lm_head"]'
scheme='config_groups: {all: {targets: [Linear], weights: {num_bits: 4, type: int, strategy: group, group_size: 32}}}'
a=model.layers.0.self_attn.q_proj b=model.layers.1.self_attn.o_proj
n=0
check() { # arguments: name, keys of SparseGPTModifier, quantizer
    printf 's_stage:\n  s_modifiers:\n    SparseGPTModifier: {%s, %s}\n    %s: {%s, %s}\n' "$2" "$I" "$3" "$scheme" "$I" >recipe.yaml
    rm -rf sound && "$ONESHOT" --model model --recipe recipe.yaml --dataset model/calibration.jsonl --progress none --output sound >log 2>&1 || fail "$1"
    "$ONESHOT" verify sound --model model >log 2>&1 || fail "verify of the undamaged output fails: $1, $2, $3"
    for way in swap zero shift; do
        rm -rf out && cp -r sound out
        python3 "$OSH_SOURCE_DIR/tests/tools/redraw.py" out $way $a $b
        "$OSH_TOOLS/st_edit" out manifest
        ! "$ONESHOT" verify out --model model >log 2>&1 || fail "$1, $2, $3: $way is not found"
        grep -q "^$a: " log || fail "$1, $2, $3: $way is not found in $a"
        n=$((n + 1))
    done
}
for weights in uniform normal student; do
    # SparseGPT changes the kept weights the most if there are about as many tokens as kept weights
    # in a row. There are 56 tokens.
    rm -rf model && "$OSH_TOOLS/make_model" model hidden=96 intermediate=96 heads=2 kv=2 layers=2 vocab=64 samples=4 tokens=14
    [ $weights = uniform ] || python3 "$OSH_SOURCE_DIR/tests/tools/redraw.py" model $weights
    check $weights "sparsity: 0.5" QuantizationModifier
    check $weights "sparsity: 0.7" GPTQModifier
    check $weights "sparsity: 0.5, mask_structure: '2:4'" GPTQModifier
done
echo "$n faults: all are found"
