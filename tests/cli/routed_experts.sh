# routed_experts.sh - tests --moe-calibrate-all-experts false, which calibrates each expert with the
# tokens that the router sends to it. Tests that the output bytes do not depend on threads, batch
# and budgets. Tests that an expert without tokens is rounded to nearest, and that a message names
# the expert. The test makes such experts with a router of zeros, which sends all tokens to the
# first experts.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/experts.sh"
fail() { echo "$*"; exit 1; }
python3 "$OSH_SOURCE_DIR/tests/tools/clear_tensor.py" model model.layers.2.mlp.gate.weight
run() { # arguments: output, flags
    "$ONESHOT" --model model --recipe recipe.yaml --dataset model/calibration.jsonl --progress none --output "$@" >log 2>&1 || {
        cat log
        fail "exit $?: $*"
    }
}
routed=(--moe-calibrate-all-experts false)
run all
! cmp -s all/model.safetensors model/model.safetensors || fail "the run changes no weight"
run out "${routed[@]}"
[ "$(grep -c 'no token is routed to this expert: rounded to nearest' log)" = 12 ] || { cat log; fail "not 4 experts of 3 modules"; }
! cmp -s all/model.safetensors out/model.safetensors || fail "all tokens give the bytes of routed tokens"
"$ONESHOT" verify out --model model >log || { cat log; fail verify; }
python3 - <<'P'
import json
d = json.load(open("out/oneshot-report.json"))
named = sorted(m["name"] for m in d["modules"] if m.get("fallback"))
want = sorted(f"model.layers.2.mlp.experts.{e}.{p}_proj" for e in range(2, 6) for p in ("gate", "up", "down"))
assert named == want, named
P
# SparseGPT uses magnitudes to prune an expert that gets no tokens.
printf 'q_stage:\n  q_modifiers:\n    SparseGPTModifier: {sparsity: 0.5, targets: ["re:.*layers.2.*_proj"]}\n' >sparse.yaml
"$ONESHOT" --model model --recipe sparse.yaml --dataset model/calibration.jsonl --progress none --output sparse "${routed[@]}" >log 2>&1 ||
    { cat log; fail sparse; }
[ "$(grep -c 'its inputs were all 0: pruned by magnitude' log)" = 12 ] || { cat log; fail "not 4 experts of 3 modules"; }
python3 - <<'P'
import json
d = json.load(open("sparse/oneshot-report.json"))
errors = [m["relative_squared_error"] for m in d["modules"] if ".experts." in m["name"]]
assert len(errors) == 18 and max(errors) < 0.3, errors # 1: all weights are 0
P
# If GPTQ runs after a pruner, it rounds experts without tokens to nearest, too.
printf '    GPTQModifier: {scheme: W8A8, targets: ["re:.*layers.2.*_proj"]}\n' >>sparse.yaml
"$ONESHOT" --model model --recipe sparse.yaml --dataset model/calibration.jsonl --progress none --output both "${routed[@]}" >log 2>&1 ||
    { cat log; fail both; }
[ "$(grep -c 'no token is routed to this expert: rounded to nearest' log)" = 12 ] || { cat log; fail "not 4 experts of 3 modules"; }
python3 - <<'P'
import json
d = json.load(open("both/oneshot-report.json"))
errors = [m["relative_squared_error"] for m in d["modules"] if ".experts." in m["name"]]
assert len(errors) == 18 and max(errors) < 0.3, errors # 1: all weights are 0
P
for flags in "--batch-size 5 --threads 1" "--mem-opt-level 2" "--prefetch false"; do
    rm -rf again
    run again "${routed[@]}" $flags
    cmp out/model.safetensors again/model.safetensors || fail "$flags makes other bytes"
done

# With enough threads and memory, experts are solved in parallel, one thread each. The run does not
# exceed its budget, and the bytes are the same.
device() { # argument: a key of plan.json; prints the device bytes of this key
    sed -n "/\"$1\"/,/}/s/^ *\"device_bytes\": \([0-9]*\),*$/\1/p" plan.json | head -1
}
same() { # arguments: output, pattern for the number of subgraphs solved in parallel, flags
    local want=$1 n=$2
    shift 2
    "$ONESHOT" plan --model model --recipe recipe.yaml --dataset model/calibration.jsonl "$@" --json >plan.json
    [[ "$(grep -c '"solved_apart": true' plan.json)" = $n ]] || fail "not $n subgraphs solved apart: $*"
    rm -rf again
    run again "$@"
    cmp $want/model.safetensors again/model.safetensors || fail "$* makes other bytes"
}
for flags in "" "${routed[*]}"; do
    want=out
    [ -n "$flags" ] || want=all
    same $want 0 $flags --threads 1
    for threads in 2 3; do
        same $want 2 $flags --threads $threads
        same $want 2 $flags --threads $threads --device-memory $(device memory) --batch-size 1
        # The peak of a layer depends on the instruction set. If the job runs with the smallest
        # possible --device-memory, the number of parallel solves depends on this peak.
        same $want '[02]' $flags --threads $threads --device-memory $(device smallest_budgets)
    done
done

# The message names the smallest budget that would be enough. The job works with this budget.
code=0
"$ONESHOT" --model model --recipe recipe.yaml --dataset model/calibration.jsonl --output small "${routed[@]}" --host-memory 10MiB \
    >log 2>&1 || code=$?
[ $code = 2 ] || { cat log; fail "exit $code for 10 MiB"; }
run small "${routed[@]}" --$(grep -o 'host-memory [0-9]*MiB' log | tail -1)
cmp out/model.safetensors small/model.safetensors || fail "a budget makes other bytes"

code=0
"$ONESHOT" --model model --recipe recipe.yaml --dataset model/calibration.jsonl --output all "${routed[@]}" >log 2>&1 || code=$?
[ $code = 2 ] && grep -q moe_calibrate_all_experts log || { cat log; fail "exit $code with another run's output"; }
code=0
"$ONESHOT" --model model --recipe recipe.yaml --dataset model/calibration.jsonl --output strict "${routed[@]}" --strict >log 2>&1 ||
    code=$?
[ $code = 1 ] && grep -q 'strict allows no fallback' log || { cat log; fail "exit $code with --strict"; }

# With --target-bits, each unit is measured in the whole model. For a unit outside of experts, the
# result does not depend on --moe-calibrate-all-experts.
"$OSH_TOOLS/make_model" bits hidden=64 intermediate=64 heads=2 kv=2 layers=2 vocab=256 samples=6 tokens=32 experts=4 topk=2
for all in true false; do
    "$ONESHOT" --model bits --scheme W4A16 --group-size 32 --quality gptq --dataset bits/calibration.jsonl --progress none \
        --target-bits 5 --targets Linear --targets lm_head --ignore 're:.*gate$' --moe-calibrate-all-experts $all --output bits.$all >log 2>&1 || { cat log; exit 1; }
done
python3 - <<'P'
import json
loss = [{u["name"]: u["candidates"] for u in json.load(open(f"bits.{a}/oneshot-report.json"))["choice"]["units"]} for a in ("true", "false")]
units = [n for n in loss[0] if "experts" not in n]
assert len(units) > 3 and all(loss[0][n] == loss[1][n] for n in units), loss
P
