# ranks_pipelines.sh - runs `--pipeline basic`, `--pipeline independent` and learned rounding under
# mpirun. Tests that samples and solves are divided among ranks, and that the files are the same as
# with one process.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/ranks.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
fail() { echo "$1"; [ ! -e log ] || cat log; exit 1; }
"$OSH_TOOLS/make_model" model hidden=128 intermediate=256 heads=4 kv=2 layers=2 vocab=256 samples=9 tokens=32 seed=1
I='ignore: ["re:.*lm_head"]'
printf 's_modifiers:\n  GPTQModifier: {scheme: W4A16, targets: Linear, %s}\n' "$I" >basic.yaml
printf 's_modifiers:\n  SmoothQuantModifier: {smoothing_strength: 0.5}\n  GPTQModifier: {scheme: W8A8, targets: Linear, %s}\n' "$I" >independent.yaml
printf 's_modifiers:\n  AdaRoundModifier: {scheme: W4A16, targets: Linear, num_iterations: 30, %s}\n' "$I" >ada.yaml
declare -A more=([basic]="--pipeline basic" [independent]="--pipeline independent" [ada]="")
one() { # arguments: kind of job, output
    echo "--model model --recipe $1.yaml --dataset model/calibration.jsonl --num-calibration-samples 9 --max-seq-length 32" \
        "--progress none --threads 1 --output $2 ${more[$1]}"
}
for kind in basic independent ada; do
    "$ONESHOT" $(one $kind plain) >log 2>&1 || fail "$kind in one process fails"
    sums plain >want.$kind
    rm -rf plain
    for n in 3 7; do
        [ -z "$SANITIZED" ] || [ $n = 3 ] || continue
        mpi=${mpis[n / 2 % ${#mpis[@]}]}
        start $mpi $n "$ONESHOT" $(one $kind out) >log 2>&1 || fail "the run fails: $kind, $mpi, $n ranks"
        grep -q "$n ranks: samples and solves are divided" out/oneshot.log || { cp out/oneshot.log log; fail "$kind: the ranks do not divide the job"; }
        same out want.$kind "$kind, $mpi, $n ranks"
    done
done
