# ranks_measures.sh - runs jobs under mpirun that do measurements or surveys, and divide samples and
# units among ranks. Tests that the recipe and the files are the same as with one process.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/ranks.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
fail() { echo "$1"; [ ! -e log ] || cat log; exit 1; }
"$OSH_TOOLS/make_model" model hidden=64 intermediate=128 heads=4 kv=2 layers=3 vocab=256 samples=9 tokens=32 seed=1
"$OSH_TOOLS/make_model" experts hidden=128 intermediate=128 heads=4 kv=2 layers=2 vocab=256 samples=9 tokens=32 experts=4 \
    topk=2 head_dim=32
I='ignore: ["re:.*lm_head", "re:.*gate$"]'
echo "s_modifiers: {WandaPruningModifier: {sparsity: 0.5, sparsity_profile: owl, owl_m: 3, owl_lmbda: 0.1, targets: [LlamaDecoderLayer]}}" >owl.yaml
printf 's_modifiers:\n  REAPPruningModifier: {sparsity: 0.5}\n  GPTQModifier: {scheme: W4A16, targets: Linear, %s}\n' "$I" >reap.yaml
printf 's_modifiers:\n  GPTQModifier: {config_groups: {a: {targets: [Linear], weights: {num_bits: 4, strategy: group, group_size: 32}}}, %s}\n' "$I" >gradients.yaml
# With a quantized head, gradients are not measured.
sed "s/\[Linear\]/[Linear, lm_head]/; s/, ignore.*/}/" gradients.yaml >effects.yaml
declare -A model=([owl]=model [reap]=experts [gradients]=model [effects]=model)
declare -A more=([owl]="--sum-groups 4" [reap]="" [gradients]="--target-bits 4.6" [effects]="--target-bits 5")
one() { # arguments: kind of job, output
    echo "--model ${model[$1]} --recipe $1.yaml --dataset ${model[$1]}/calibration.jsonl --num-calibration-samples 9" \
        "--max-seq-length 32 --progress none --log-level info --threads 1 --output $2 ${more[$1]}"
}
for kind in owl reap gradients effects; do
    "$ONESHOT" $(one $kind plain) >log 2>&1 || fail "$kind in one process fails"
    sums plain >want.$kind
    rm -rf plain
    for n in 3 7; do
        [ -z "$SANITIZED" ] || [ $n = 3 ] || continue
        mpi=${mpis[n % ${#mpis[@]}]}
        start $mpi $n "$ONESHOT" $(one $kind out) >log 2>&1 || fail "the run fails: $kind, $mpi, $n ranks"
        grep -q "$n ranks: samples and solves are divided" out/oneshot.log || fail "$kind: the ranks do not divide the job"
        [ $kind = owl ] || [ $kind = reap ] || grep -q "survey, $n ranks: samples and solves are divided" log || fail "$kind: the survey is not divided"
        if grep -q 'rank 0 does all work' log out/oneshot.log; then fail "$kind: the ranks do not divide the job"; fi
        same out want.$kind "$kind, $mpi, $n ranks"
    done
done
