# defaults.sh - tests defaults and spellings of flags. The default of --output is made of the
# model's name and the scheme. --scheme without other flags leaves the head dense and reports this.
# There are flags for bits, groups and zero points. Commas separate the items of lists. Flags in
# Python's spelling must be accepted, or refused with a message that names the right flag.
set -euo pipefail
fail() { echo "$*"; exit 1; }
tied=$OSH_SOURCE_DIR/examples/docs-llama-3m
tools=$OSH_TOOLS
"$tools/make_model" untied hidden=96 intermediate=144 heads=3 kv=3 layers=2 vocab=96 samples=1 tokens=8 >/dev/null
oneshot() { "$ONESHOT" "$@" --progress none; }
want() { # arguments: exit code, words of the message, flags
    local code=$1 words=$2 got=0
    shift 2
    oneshot "$@" --output out >stdout 2>stderr || got=$?
    [ $got = "$code" ] || fail "$*: exit $got, want $code: $(cat stderr)"
    grep -qE -- "$words" stderr || fail "$*: want /$words/: $(cat stderr)"
    [ ! -e out ] || fail "$*: wrote something"
}
same() { for f in model.safetensors config.json recipe.yaml; do cmp "$1/$f" "$2/$f"; done; }

# With --scheme alone, the head stays dense, as with --ignore lm_head. This holds for tied and
# untied heads.
for model in "$tied" untied; do
    flags=(--model "$model" --scheme W8A16 --group-size 16 --overwrite)
    oneshot "${flags[@]}" --output bare >stdout
    grep -q 'dense: the output head lm_head$' stdout || fail "says nothing of the head: $(cat stdout)"
    oneshot "${flags[@]}" --ignore lm_head --output ignored >stdout
    if grep -q 'output head' stdout; then fail "the head was left out by the caller: $(cat stdout)"; fi
    same bare ignored
    "$ONESHOT" plan --verbose --model "$model" --scheme W8A16 --group-size 16 >plan
    grep -q '^lm_head, the output head, stays dense; --targets Linear,lm_head would quantize it$' plan || fail "$(cat plan)"
    "$ONESHOT" verify bare --model "$model" >/dev/null
    for targets in Linear,lm_head 'Linear, re:lm_.{2,4}$'; do
        oneshot "${flags[@]}" --targets "$targets" --output head >stdout
        if grep -q 'output head' stdout; then fail "--targets $targets: $(cat stdout)"; fi
        "$ONESHOT" inspect head >list
        grep -q 'lm_head.weight_packed' list || fail "--targets $targets: the head is dense"
    done
    oneshot "${flags[@]}" --targets 're:.*mlp.*' --output mlp >stdout
    if grep -q 'output head' stdout; then fail "no target reaches the head: $(cat stdout)"; fi
done

# The program adds no default to a recipe, so a recipe means the same as in LLM Compressor.
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier: {scheme: W8A8, targets: Linear}\n' >r.yaml
want 1 'hint: put lm_head in ignore' --model untied --recipe r.yaml
want 2 'group-size and --symmetric need --scheme' --model untied --recipe r.yaml --group-size 32

# Without --output, the output directory is named after the model and the scheme. This directory
# must be refused or resumed like a directory that --output names. The commands in the last lines
# that the run prints must work.
mkdir -p named/here
ln -s "$tied" "named/it's a"
head -c 600 "$tied/data/evaluation.txt" >named/text.txt
run() { (cd named && "$ONESHOT" "$@" >../stdout 2>../stderr); }
run "it's a/" --scheme w4a16 --num-bits 8 || fail "$(cat stderr)"
grep -qx "output     it's a-W8A16, in the current directory" stdout || fail "no name: $(cat stdout)"
grep -q '^loss' stdout && fail "rounding has a loss: $(cat stdout)"
[ "$(sed -n '$p' stdout)" = "           vllm serve 'it'\\''s a-W8A16'" ] || fail "last line: $(cat stdout)"
sed -n 's/^next *oneshot/"$ONESHOT"/p' stdout >next.sh
(cd named && . ../next.sh >/dev/null) || fail "$(cat next.sh)"
run "it's a" --scheme w4a16 --num-bits 8 || fail "$(cat stderr)"
grep -q 'W8A16: is finished and was made by this command; nothing to do$' stdout || fail "$(cat stdout)"
if run "it's a" --scheme W8A16 --symmetric false --group-size 64 --output "it's a-W8A16"; then fail "an output is overwritten"; fi
run "it's a" --scheme W8A16 --symmetric false || fail "$(cat stderr)"
(cd named/here && cp "$tied"/*.json "$tied"/model.safetensors . && "$ONESHOT" . --scheme FP8_DYNAMIC --progress none >../../stdout)
mkdir named/here/sub
for up in ../ ./.. .././; do
    (cd named/here/sub && "$ONESHOT" $up --scheme FP8_DYNAMIC >/dev/null && [ "$(ls -A)" = here-FP8_DYNAMIC ]) ||
        fail "$up: $(ls -A named/here/sub)"
done
[ "$(wc -l <stdout)" = 1 ] || fail "progress none: $(cat stdout)"
run "it's a" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --dataset "$tied/data/calibration.jsonl" \
    --num-calibration-samples 2 --max-seq-length 32 --eval text.txt || fail "$(cat stderr)"
grep -qE '^loss       outputs of 28 modules: [0-9.]+ % of the loss with rounding to nearest$' stdout || fail "$(cat stdout)"
grep -q "oneshot eval --model 'it'.*--dataset text.txt$" stdout || fail "$(cat stdout)"
[ "$(ls named named/here | grep -e -)" = "$(printf '%s\n' "it's a-W4A16" "it's a-W8A16" "it's a-W8A16_ASYM" here-FP8_DYNAMIC)" ] ||
    fail "$(ls named named/here)"
unnamed() { # arguments: words of the message, flags
    if run "it's a" "${@:2}"; then fail "$*: has a name"; fi
    grep -q -- "$1" stderr || fail "$*: $(cat stderr)"
}
unnamed 'mixed-groups.yaml has 2 schemes, so the output has no default name.*want --output DIR' --recipe "$OSH_SOURCE_DIR/examples/mixed-groups.yaml"
unnamed '--target-bits chooses a scheme for each module.*want --output DIR' --scheme W4A16 --target-bits 5
unnamed 'want --recipe or --scheme, got none of them'
"$ONESHOT" --model "$tied" --scheme W8A16 --output=-w --progress line >stdout 2>/dev/null
grep -q 'oneshot verify ./-w --model' stdout || fail "$(cat stdout)"

# Tests the flags for bits, groups and zero points.
groups() { # arguments: flags of the weights in a recipe, flags of the command line
    printf 's_stage:\n  s_modifiers:\n    QuantizationModifier:\n      ignore: [lm_head]\n      config_groups:\n        group_0: {targets: [Linear], %s}\n' \
        "$1" >r.yaml
    shift
    oneshot --model untied --recipe r.yaml --output recipe --overwrite >/dev/null
    oneshot --model untied "$@" --output flags --overwrite >/dev/null
    for f in model.safetensors config.json; do cmp "recipe/$f" "flags/$f" || fail "$*"; done
}
groups 'weights: {num_bits: 3, strategy: group, group_size: 48, symmetric: false}' \
    --scheme W4A16 --num-bits 3 --group-size 48 --symmetric False
groups 'weights: {num_bits: 4, strategy: channel}' --scheme W4A16 --group-size=-1 --symmetric
groups 'weights: {num_bits: 8, strategy: group, group_size: 16}, input_activations: {num_bits: 8, strategy: token, dynamic: true}' \
    --scheme W8A8 --group-size 16
want 2 'q_proj has 96 input features, which groups of 128 do not divide: want --group-size 16, 48, which divide those of all modules, or -1 .one scale a row., or it in ignore, or --indivisible dense$' \
    --model untied --scheme W4A16
want 2 'q_proj has 96 input features.*groups of 64.*want --group-size 16, 48' --model untied --scheme W4A16 --group-size 64
sed "s/16}/64}/" r.yaml >r64.yaml
want 2 "q_proj has 96 .*groups of 64 .*: want group_size 16, 48, .* or none with strategy channel, or it" --model untied --recipe r64.yaml
"$tools/make_model" odd hidden=12 intermediate=20 heads=1 kv=1 layers=1 vocab=16 samples=1 tokens=8 >/dev/null
want 2 'which groups of 128 do not divide: want --group-size -1 .one scale a row., or it in ignore, or --indivisible dense$' --model odd --scheme W4A16

# Tests --indivisible dense. A module stays dense, and is in the ignore list, if the group size does
# not divide its number of columns.
"$tools/make_model" wide hidden=256 intermediate=192 heads=8 kv=2 layers=2 vocab=64 samples=2 tokens=8 >/dev/null
want 2 'down_proj has 192 input features' --model wide --scheme W4A16
dense() { # arguments: modules that stay dense in each layer, then flags
    oneshot --model wide --scheme W4A16 --indivisible dense --output dense --overwrite "${@:2}" >said
    "$ONESHOT" verify dense --model wide >/dev/null || fail "verify: $*"
    MODULES=$1 python3 - <<'P'
import json, os
want = sorted(f"model.layers.{i}.{m}" for i in range(2) for m in os.environ["MODULES"].split())
config = json.load(open("dense/config.json"))["quantization_config"]
assert sorted(n for n in config["ignore"] if n != "lm_head") == want, config["ignore"]
kept = [d["modules"] for d in json.load(open("dense/oneshot-report.json"))["left_dense"] if "groups" in d["why"]]
assert sorted(kept) == sorted("model.layers.*." + m for m in os.environ["MODULES"].split()), kept
P
}
dense mlp.down_proj
grep -q 'model.layers.\*.mlp.down_proj (its groups do not divide its columns)' <("$ONESHOT" plan --model wide --scheme W4A16 --indivisible dense | tr -s ' \n' ' ') ||
    fail "$("$ONESHOT" plan --model wide --scheme W4A16 --indivisible dense)"
oneshot --model wide --scheme W4A16 --ignore lm_head --ignore 're:.*down_proj$' --output by_name --overwrite >/dev/null
cmp by_name/model.safetensors dense/model.safetensors || fail "--indivisible dense: other bytes than with ignore"

# With --tensor-parallel, each GPU gets whole groups, whole words of packed codes and whole heads.
# Otherwise the job is refused.
plan() { "$ONESHOT" plan --model wide "$@" 2>&1 | tr -s ' \n' ' '; }
plan --scheme W4A16 --group-size 32 --tensor-parallel 2 | grep -q '14 modules can be split among 2 GPUs' || fail "$(plan --scheme W4A16 --group-size 32 --tensor-parallel 2)"
want 2 '2: 2 modules cannot be split: model.layers.\*.mlp.down_proj: groups of 64 do not divide the 96 columns of a part; want' \
    --model wide --scheme W4A16 --group-size 64 --tensor-parallel 2
want 2 'self_attn.o_proj: groups of 128 do not divide the 64 columns of a part' \
    --model wide --scheme W4A16 --ignore 're:.*down_proj$' --tensor-parallel 4
want 2 'parallel 3: .*q_proj: 8 heads of queries are not 3 equal parts; .*k_proj: 2 heads of keys and values are not 3 equal parts' \
    --model wide --scheme W8A8 --tensor-parallel 3
want 2 'gate_proj: 24 zero points of 3 bits do not fill whole words of 32 bits' \
    --model wide --scheme W4A16_ASYM --num-bits 3 --group-size 16 --tensor-parallel 8
dense 'mlp.down_proj self_attn.o_proj' --tensor-parallel 4
want 2 'FP8 is not such a scheme: want one such as W4A16' --model untied --scheme FP8 --group-size 32
want 2 'num_bits: want a whole number in .0, 8.' --model untied --scheme W4A16 --num-bits 9
want 1 'int of 1 bits, want 2 to 8' --model untied --scheme W4A16 --num-bits 1

# Tests Python's spellings of flags.
oneshot --model untied --scheme W8A16 --group_size 16 --output_dir python --oneshot_device cpu --save_compressed \
    --trust_remote_code_model True --moe_calibrate_all_experts --sequential-offload-device cpu --propagate_error True \
    --preprocessing_num_workers 4 >/dev/null
same python bare
want 2 'save_compressed: want true, got .false.: the output is a compressed-tensors' --model untied --scheme W8A16 --save_compressed False
want 2 'save_compressed: want true, got .no.' --model untied --scheme W8A16 --save-compressed=no
want 2 'stage is not an option here: all stages' --model untied --scheme W8A16 --stage quant
want 2 'ignore: want names with commas between them, got .lm_head,.' --model untied --scheme W8A16 --ignore lm_head,

# Tests an unknown architecture, with and without data.
sed -i 's/LlamaForCausalLM/OddForCausalLM/' untied/config.json
want 1 'OddForCausalLM is not known; oneshot help models lists the known ones; without data, every architecture is supported: want --quality fast' \
    --model untied --scheme W8A16 --group-size 16 --method gptq --dataset untied/calibration.jsonl
