# bad_input.sh - tests bad input. The error must be clear, the exit code must be right, and there
# must be no output with the final name.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
calib=$model/data/calibration.jsonl
rtn=$OSH_SOURCE_DIR/examples/w4a16-rtn.yaml
gptq=$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml
n=0
want() { # arguments: exit code, words of the message, flags
    code=$1 words=$2
    shift 2
    set +e
    "$ONESHOT" "$@" --output out --progress none >stdout 2>stderr
    got=$?
    set -e
    if [ $got != "$code" ] || ! grep -qiE -- "$words" stderr; then
        echo "oneshot $*: exit $got, want $code; message, want /$words/:"
        cat stderr
        exit 1
    fi
    if [ "$(grep -c '^oneshot: ' stderr)" != 1 ] || grep -vE '^(oneshot|hint|warning): ' stderr; then
        echo "oneshot $*: more than a line of the failure:"; cat stderr; exit 1
    fi
    if [ -e out ] || [ -e out.oneshot-partial ]; then echo "oneshot $*: left something behind"; exit 1; fi
    n=$((n + 1))
}
fresh() { rm -rf m; mkdir m; cp "$model"/*.json m; cp "$model/model.safetensors" m; chmod -R u+w m; }
# Runs Python code that edits the config (c) or the header (h) of the model. The length of the
# header does not change.
edit() {
    python3 - "$1" <<'P'
import json, struct, sys
c = json.load(open("m/config.json"))
f = open("m/model.safetensors", "r+b")
n = struct.unpack("<Q", f.read(8))[0]
h = json.loads(f.read(n))
first = "model.layers.0.mlp.up_proj.weight"
exec(sys.argv[1])
json.dump(c, open("m/config.json", "w"))
text = json.dumps(h, separators=(",", ":")).encode()
assert len(text) <= n, (len(text), n)
f.seek(8)
f.write(text + b" " * (n - len(text)))
P
}
gq() { want "$1" "$2" --model m --recipe "$gptq" --dataset "$calib" --num-calibration-samples 2 --max-seq-length 32; }

# The files of --models-dir are checked even in a job that needs no template.
mkdir -p odd/{json,list,extends,types}
echo '{' >odd/json/a.json
echo '{"a": 1}' >odd/list/b.json
echo '{"architectures": ["A"], "extends": "B"}' >odd/extends/c.json
echo '{"architectures": ["A"], "model_types": {"a": {"tied": 1}}}' >odd/types/d.json
for row in 'nosuch|cannot list .*nosuch' 'json|a.json: line 2' 'list|b.json: no list "architectures"' \
    'extends|c.json: no template has the architecture B' 'types|d.json: want model_types.a.tied to be true or false'; do
    want 1 "${row#*|}" --model "$model" --scheme W8A16 --models-dir "odd/${row%%|*}"
done
for command in "verify $model" "graph --dot --model $model" "generate $model" "check-model $model" "eval --model $model --dataset $calib"; do
    # shellcheck disable=SC2086
    ! "$ONESHOT" $command --models-dir odd/list >log 2>&1 </dev/null && grep -q '^oneshot: odd/list/b.json: no list' log || {
        cat log; echo "$command: a wrong template is no error"; exit 1; }
done

fresh; truncate -s -1000 m/model.safetensors;                           gq 1 'model.safetensors.*(bytes|end)'
fresh; edit 'h[first]["data_offsets"][0] -= 64; h[first]["data_offsets"][1] -= 64'; gq 1 'up_proj|overlap|hole|offset'
fresh; edit 'max((v for k, v in h.items() if k[0] != "_"), key=lambda v: v["data_offsets"][1])["data_offsets"][1] += 4096'; gq 1 'bytes|past|end'
fresh; edit 'h[first]["shape"] = h[first]["shape"][::-1]';              gq 1 'up_proj.*\['
fresh; edit 'h[first]["dtype"] = "I16"';                                gq 1 'up_proj.*I16'
fresh; edit 'h[first.replace("up", "op")] = h.pop(first)';              gq 1 'up_proj.*(missing|no tensor|not|absent)'
fresh; edit 'c["architectures"] = ["MysteryForCausalLM"]';              gq 1 'MysteryForCausalLM is not known; oneshot help models'
fresh; edit 'c["hidden_act"] = "swish2"';                               gq 1 'swish2'
fresh; edit 'c["rope_parameters"]["rope_type"] = "helix"';              gq 1 'helix'
fresh; printf '{"architectures": ["Llama\\u0000ForCausalLM"]}' >m/config.json; gq 1 'NUL|config.json'
fresh; edit 'c["rms_norm_eps"] = float("inf")';                         gq 1 'rms_norm_eps.* finite'
fresh; edit 'c["hidden_size"] = float("nan")';                          gq 1 'hidden_size.* (finite|integer)'
fresh; edit 'c["is_causal"] = False';                                   gq 1 'config.json: is_causal is false: want true'
fresh; edit 'c["partial_rotary_factor"] = 0.5';                         gq 1 'partial_rotary_factor'
fresh; rm m/config.json;                                                gq 1 'config.json'
fresh; rm m/model.safetensors;                                          gq 1 'model.safetensors'
fresh
want 2 'W5A7.*(W4A16|known|want)|unknown scheme' --model m --scheme W5A7
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier:\n      scheme: W4A16\n      colour: red\n' >r.yaml
want 2 'r.yaml:5:7: unknown key .colour.' --model m --recipe r.yaml
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier:\n      config_groups:\n        g: {targets: [Linear], weights: {num_bits: 4, strategy: group, group_size: 96}}\n' >r.yaml
want 2 '(q_proj|k_proj|up_proj).*(96|divi)' --model m --recipe r.yaml
printf 's_stage:\n  s_modifiers: {}\n' >r.yaml
want 2 'no modifier' --model m --recipe r.yaml
printf 'notes: {}\n' >r.yaml
want 2 'r.yaml:1:1: unknown key .notes.' --model m --recipe r.yaml
printf 's_stage:\n  s_modifiers:\n    GPTQModifier: {scheme: W4A16, actorder: group}\n' >r.yaml
want 2 'actorder .group.*no longer load' --model m --recipe r.yaml
printf 's_stage:\n  s_modifiers:\n    GPTQModifier:\n      actorder: null\n      config_groups:\n        g: {targets: [Linear], weights: {num_bits: 4, group_size: 128, actorder: static}}\n' >r.yaml
want 2 'actorder is null but that of g is static' --model m --recipe r.yaml
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier: {scheme: W4A16, weight_observer: mesa}\n' >r.yaml
want 2 'r.yaml:3:.*weight_observer: unknown observer .mesa.: want memoryless_minmax' --model m --recipe r.yaml
printf 's_stage:\n  s_modifiers:\n    AWQModifier: {}\n' >r.yaml
want 1 'AWQModifier.*GPTQModifier' --model m --recipe r.yaml
: >empty.jsonl
want 1 'empty.jsonl' --model m --recipe "$gptq" --dataset empty.jsonl
printf '{"text": "one"}\n{"txt": "two"}\n' >col.jsonl
want 1 'col.jsonl.*(line )?2' --model m --recipe "$gptq" --dataset col.jsonl
printf '{"input_ids": [5, 4096]}\n' >ids.jsonl
want 1 '4096.*ids.jsonl' --model m --recipe "$gptq" --dataset ids.jsonl
python3 -c "print('{\"input_ids\": [%s]}' % ', '.join(['7'] * 1500))" >long.jsonl
want 2 '1500 tokens.*1024 positions' --model m --recipe "$gptq" --dataset long.jsonl --max-seq-length 2000
edit 'c["rope_parameters"] = {"rope_type": "dynamic", "factor": 1.25, "rope_theta": 1e4}'
want 2 '1500 tokens.*1280 positions' --model m --recipe "$gptq" --dataset long.jsonl --max-seq-length 2000
edit 'c["rope_parameters"]["factor"] = 1.5'
"$ONESHOT" --model m --recipe "$gptq" --dataset long.jsonl --max-seq-length 2000 --output longer --progress none >/dev/null
[ -e longer/config.json ]
fresh
python3 - <<'P'
import json, struct
n = struct.unpack("<Q", open("m/model.safetensors", "rb").read(8))[0]
names = [k for k in json.loads(open("m/model.safetensors", "rb").read(8 + n)[8:]) if k != "__metadata__"]
json.dump({"weight_map": {k: "one.safetensors" for k in names}}, open("m/model.safetensors.index.json", "w"))
P
mv m/model.safetensors m/one.safetensors
mv m/one.safetensors m/two.safetensors;                                 gq 1 'one.safetensors'
mv m/two.safetensors m/one.safetensors
sed 's/"one.safetensors"/"one.safetensors\\u0000"/' m/model.safetensors.index.json >i; mv i m/model.safetensors.index.json
gq 1 'index.json.*NUL'
fresh
want 2 'dataset' --model m --recipe "$gptq"
want 2 'want --recipe or --scheme, got none of them' --model m
want 2 'unknown option .--fast' --model m --scheme W4A16 --fast
want 2 'num.calibration.samples' --model m --scheme W4A16 --num-calibration-samples -2
want 2 'the recipe needs calibration data: want --dataset' --model m --scheme W4A16 --method gptq --ignore lm_head
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier: {scheme: W8A16, targets: Linear}\n' >r.yaml
want 1 'lm_head has group_0, but vLLM looks it up as lm_head .*hint: put lm_head in ignore' --model m --recipe r.yaml
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier: {scheme: W4A16, targets: Linear, ignore: [lm_head, "re:.*q_proj"]}\n' >r.yaml
want 1 'ignore takes 1 of its 3 parts, and vLLM fuses them' --model m --recipe r.yaml
edit 'c["quantization_config"] = {"quant_method": "aqlm"}'
want 1 "quant_method is 'aqlm', want compressed-tensors, gptq" --model m --scheme W4A16
[ $n -ge 39 ] || { echo "only $n cases ran"; exit 1; }

fresh; edit 'c["architectures"] = ["MysteryForCausalLM"]'
# Python writes the value of initializer_range as NaN, which is not JSON. The program accepts NaN in
# config.json. (No command uses this key.)
edit 'c["initializer_range"] = float("nan")'
"$ONESHOT" --model m --recipe "$rtn" --output free --progress none >/dev/null 2>stderr
if grep -i warning stderr; then echo "lm_head is the model's, tied as it is"; exit 1; fi
python3 - <<'P'
import json
c = json.load(open("free/config.json"))
assert c["quantization_config"]["ignore"] == ["lm_head"], c["quantization_config"]["ignore"]
assert c["initializer_range"] != c["initializer_range"]
P
cmp free/tokenizer.json m/tokenizer.json
[ "$("$ONESHOT" inspect free | grep -c weight_packed)" = 28 ]
"$ONESHOT" --model m --scheme W4A16 --targets 're:.*mlp.*' --ignore lm_head --ignore lm_heat --output some --progress none \
    >/dev/null 2>stderr
grep -q "ignore lm_heat of QuantizationModifier matches no module; did you mean lm_head?" stderr
"$ONESHOT" plan --model m --scheme W4A16 --targets Linear --targets Linear --targets 're:.*mlp.*' --ignore lm_head >/dev/null \
    2>twice
if grep 'matches no' twice; then echo "a target given twice is one target"; exit 1; fi
if grep 'ignore lm_head of' stderr; then echo "lm_head is no target, but a module"; exit 1; fi
