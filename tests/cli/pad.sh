# pad.sh - tests --indivisible pad. The output must have the same bytes as the output for a model
# whose MLPs were padded before. This must hold with and without calibration data. Kills and the
# number of threads must not change the bytes. Fused gates, biases and experts are padded. The
# output makes the same predictions as the source. Plan, report and README.md name the sizes, and
# verify checks them. Modules that cannot be padded are refused.
set -euo pipefail
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
one() { last_wins "$ONESHOT" --progress none --scheme W4A16 --group-size 64 --indivisible pad "$@" >log 2>&1; }
made() { one "$@" || fail "exit $?: $*"; }
refused() { # arguments: part of the message, then the arguments of oneshot
    local code=0
    one --output refused "${@:2}" || code=$?
    [ $code != 0 ] && grep -q -- "$1" log || fail "exit $code, wanted '$1': ${*:2}"
}
config() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1] + "/config.json"))[sys.argv[2]])' "$@"; }
like() { # arguments: output, model, largest KL divergence
    "$ONESHOT" eval --model "$1" --reference "$2" --dataset "$2/calibration.jsonl" --progress none >log || fail "eval of $1 fails"
    awk -v most="$3" '/^kl divergence/ { kl = $3 } END { exit !(kl != "" && kl < most) }' log || fail "$1 differs from $2"
}
"$OSH_TOOLS/make_model" model hidden=128 intermediate=176 heads=4 kv=2 layers=2 vocab=128 samples=3 tokens=48 >/dev/null
for size in 192 256; do python3 "$OSH_SOURCE_DIR/tests/tools/pad.py" model padded.$size $size; done
gptq="--method gptq --dataset model/calibration.jsonl --threads 1"

# The output must have the same bytes as an output that is made from a padded source.
while read -r size flags; do
    # shellcheck disable=SC2086
    made --model model --output a --overwrite $flags
    # shellcheck disable=SC2086
    made --model padded.$size --output b --overwrite $flags --indivisible refuse
    [ "$(config a intermediate_size)" = "$size" ] || fail "$flags: intermediate_size"
    cmp a/model.safetensors b/model.safetensors || fail "$flags: the output has other bytes"
    "$ONESHOT" verify a --model model >log || fail "$flags: verify fails"
    like a model 0.01
done <<FLAGS
192 --symmetric false
192 $gptq
192 --scheme MXFP4 --group-size 0
256 --tensor-parallel 2
256 --scheme FP8_BLOCK --group-size 0 --tensor-parallel 2 --ignore re:.*attn
FLAGS
! "$ONESHOT" verify a --model padded.256 >log 2>&1 || fail "verify accepts another source"

# Threads, batches and kills do not change a byte.
# shellcheck disable=SC2086
made --model model --output plain $gptq --max-shard-size 40KB
sums plain >want
# shellcheck disable=SC2086
made --model model --output two $gptq --max-shard-size 40KB --threads 2 --batch-size 2
same two want "two threads"
for at in 60 30 20; do
    # shellcheck disable=SC2086
    ! LD_PRELOAD=$OSH_TOOLS/inject.so INJECT_AT=$at INJECT_WHAT=kill one --model model --output killed $gptq --max-shard-size 40KB ||
        fail "no kill at call $at"
done
[ -e killed.oneshot-partial ] || fail "the kills left nothing behind"
# shellcheck disable=SC2086
! one --model model --output killed $gptq --max-shard-size 40KB --tensor-parallel 2 || fail "a run with another size continues the killed run"
# shellcheck disable=SC2086
made --model model --output killed $gptq --max-shard-size 40KB
same killed want "kills"
"$ONESHOT" generate plain --input-ids 1,2,3 --max-new-tokens 4 >log 2>&1 || fail "generate"

# The message names the smallest budget that would be enough. The job works with this budget.
refused 'want at least' --model model --host-memory 1MiB
made --model model --output least --threads 1 --prefetch false --host-memory "$(grep -o 'host-memory [0-9]*MiB' log | tail -1 | cut -d ' ' -f 2)"

# Plan, report, README.md and manifest name the sizes.
"$ONESHOT" plan --model model --scheme W4A16 --group-size 64 --indivisible pad | tr -s ' \n' ' ' >log
grep -q 'padding intermediate_size 176 to 192, zeros in 6 tensors of all MLPs of this size' log || fail "plan"
"$ONESHOT" plan --model model --scheme W4A16 --group-size 64 --indivisible pad --verbose >log
grep -q '^padding: intermediate_size 176 to 192, zeros in 6 tensors' log || fail "the plan does not name the padded sizes"
"$ONESHOT" plan --model model --scheme W4A16 --group-size 64 --indivisible pad --json >plan.json
python3 - <<'P' || fail "the sizes have other names than wanted"
import json
want = {"sizes": [{"key": "intermediate_size", "from": 176, "to": 192}], "tensors": 6}
for name in "plan.json", "plain/oneshot-report.json":
    assert json.load(open(name))["padding"] == want, name
assert "| Padding | intermediate_size 176 to 192, zeros in 6 tensors" in open("plain/README.md").read()
assert "intermediate_size 176 to 192" in open("plain/oneshot-report.html").read()
assert json.load(open("plain/oneshot-manifest.json"))["made_of"]["indivisible"] == "pad"
P
made --model model --output kept --ignore 're:.*(gate|up)_proj'
grep -q '"rule": "padded", "source": "model.layers.1.mlp.up_proj.weight"' kept/oneshot-manifest.json || fail "the manifest does not call the dense tensor padded"
like kept model 0.01
made --model model --output divides --scheme W8A16 --group-size 16
[ "$(config divides intermediate_size)" = 176 ] || fail "a size that groups divide grows"

# Tests experts, and dense layers of the same size.
"$OSH_TOOLS/make_model" moe hidden=64 intermediate=40 heads=2 kv=1 layers=2 vocab=64 samples=2 tokens=32 experts=4 topk=2 >/dev/null
made --model moe --output experts --scheme W8A16
[ "$(config experts moe_intermediate_size)" = 64 ] || fail "experts"
like experts moe 0.001
python3 "$OSH_SOURCE_DIR/tests/tools/pad.py" moe padded_moe 64
made --model padded_moe --output expected --scheme W8A16 --indivisible refuse
cmp experts/model.safetensors expected/model.safetensors || fail "experts: the output has other bytes"

# Tests models with these parts: one tensor for `gate` and `up`; biases; one tensor for all experts;
# layers of cross-attention to images.
while read -r case target group n; do
    "$OSH_TOOLS/tiny_model" "$case" "$case"
    made --model "$case" --output "$case.out" --scheme W8A16 --group-size "$group" --targets "re:.*$target"
    grep -q "zeros in $n tensors" "$case.out/README.md" || fail "$case: $(grep Padding "$case.out/README.md")"
    "$ONESHOT" verify "$case.out" --model "$case" >log || fail "$case: verify fails"
    like "$case.out" "$case" 0.001
done <<'CASES'
phi3 mlp.down_proj$ 32 4
llama_bias mlp.down_proj$ 32 10
opt fc2$ 32 6
qwen3_moe_stacked mlp.*_proj$ 32 24
mllama language_model.*mlp.down_proj$ 32 9
CASES

# The group size of quantized inputs must divide the padded size, too.
"$OSH_TOOLS/make_model" blocks hidden=256 intermediate=352 heads=4 kv=2 layers=1 vocab=64 samples=2 tokens=16
refused 'mlp.down_proj has 352 input features, which the groups of 128 of its quantized input do not divide' \
    --model blocks --scheme FP8_BLOCK --group-size 0 --indivisible refuse
for how in dense pad; do
    made --model blocks --output blocks.$how --scheme FP8_BLOCK --group-size 0 --indivisible $how
    like blocks.$how blocks 0.001
done

# Other modules and models are refused.
refused 'q_proj has 128 input features, which groups of 256 do not divide, and pad adds zeros only to MLPs' --model model --group-size 256
refused 'pad adds zeros only to MLPs of decoder layers' --model model --group-size 48 --targets 're:.*self_attn.o_proj$'
refused 'measure the model without zeros' --model model --target-bits 5 --dataset model/calibration.jsonl
cp -r model unknown
sed -i 's/LlamaForCausalLM/UnknownForCausalLM/' unknown/config.json
refused 'pad needs the architecture' --model unknown
"$OSH_TOOLS/tiny_model" gpt_oss gpt_oss
refused 'intermediate_size cannot grow, because model.layers.1.mlp.experts.3 takes columns that are not one of several equal parts of a row' \
    --model gpt_oss --scheme W8A16 --group-size 48 --target vllm
mkdir models
sed 's/{"name": "mlp.down_proj"/{"of": "mlp", "op": "rms_norm", "in": ["f"], "out": "f", "attr": {"eps": "rms_norm_eps", "plain": true}},\n    &/' \
    "$OSH_SOURCE_DIR/models/llama.json" >models/llama.json
refused 'intermediate_size cannot grow, because model.layers.1.mlp does not compute element by element' --model model --models-dir models
