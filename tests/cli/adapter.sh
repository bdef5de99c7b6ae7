# adapter.sh - tests --adapter, in jobs without data, in jobs with data, and in eval. A model with
# an adapter must give the same bytes as the merged model, whose weights contain the adapter. A run
# must not continue with another adapter. The report must name the adapter, and verify must need it.
# Budgets must be kept. Other variants of LoRA and wrong files must be refused.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=$model/data/calibration.jsonl
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
one() { last_wins "$ONESHOT" --progress none --group-size 32 --scheme W4A16 "$@" >log 2>&1 || fail "exit $?: $*"; }
gptq() { one --quality gptq --dataset "$data" --num-calibration-samples 2 --max-seq-length 48 "$@"; }
refused() { # arguments: exit code, part of the message, then the arguments of oneshot
    local code=0
    last_wins "$ONESHOT" --progress none --scheme W4A16 --group-size 32 "${@:3}" >log 2>&1 || code=$?
    [ $code = "$1" ] && grep -q -- "$2" log || fail "exit $code, wanted $1 and '$2': ${*:3}"
}
same() { cmp "$1/model.safetensors" "$2/model.safetensors"; cmp "$1/config.json" "$2/config.json"; }
layer=model.layers.1
python3 "$OSH_SOURCE_DIR/tests/tools/adapter.py" "$model" lora merged $layer.self_attn.q_proj $layer.mlp.down_proj

one --model merged --output a
one --model "$model" --adapter lora --output b
same a b
one --model "$model" --adapter lora --output b # accepts a finished output of the same command
gptq --model merged --output c
gptq --model "$model" --adapter lora --output d --threads 1 --batch-size 2
same c d
"$ONESHOT" verify d --model "$model" --adapter lora >log || fail "verify fails"
! "$ONESHOT" verify d --model "$model" >log 2>&1 || fail "verify without the adapter"
grep -q "$layer.mlp.down_proj.weight: the tensor of the source has checksum" log || fail "verify without the adapter"
for m in "merged" "$model --adapter lora"; do
    # shellcheck disable=SC2086
    "$ONESHOT" eval --model $m --dataset "$data" --max-seq-length 48 --max-windows 2 --progress none >"eval.${#m}" || fail "eval of $m fails"
done
cmp eval.*
"$ONESHOT" eval --model merged --reference "$model" --adapter lora --dataset "$data" --max-seq-length 48 --max-windows 2 \
    --progress none >log || fail "eval with a reference"
grep -q '^kl divergence 0.000000  top-1 agreement 1.0000$' log || fail "the adapter is not merged into the reference"

# The reports name the adapter. If a module is not quantized, the output has its merged weight.
grep -q '^| Adapter | LoRA lora, merged into 2 tensors |$' b/README.md || fail "README.md"
grep -q '"adapter": "lora"' b/oneshot-report.json || fail "the report does not name the adapter"
"$ONESHOT" plan --model "$model" --adapter lora --scheme W4A16 --group-size 32 >log || fail "plan"
grep -q '^adapter *LoRA lora, merged into 2 tensors$' log || fail "plan"
one --model merged --ignore 're:.*down_proj$' --output e
one --model "$model" --adapter lora --ignore 're:.*down_proj$' --output f
same e f
grep -q '"rule": "merged", "source": "'$layer.mlp.down_proj.weight f/oneshot-manifest.json || fail "the manifest does not name the merged tensor"

# Tests an adapter with a quantized source.
one --model "$model" --output packed
"$ONESHOT" --model packed --adapter lora --scheme W8A16 --group-size 32 --output g --progress none >log 2>&1 || fail "the run with a quantized source fails"
"$ONESHOT" verify g --model packed --adapter lora >log || fail "verify of the output of a quantized source fails"

# The message names the smallest budget that would be enough. The job works with this budget.
refused 2 'want at least' --model "$model" --adapter lora --output h --host-memory 5MiB
one --model "$model" --adapter lora --output h --threads 1 --prefetch false --host-memory "$(grep -o 'host-memory [0-9]*MiB' log | tail -1 | cut -d ' ' -f 2)"
same a h

# A run is refused if its output was made with a different adapter. A file of the adapter is not
# overwritten.
cp -r lora other
sed -i 's/"lora_alpha": 3/"lora_alpha": 4/' other/adapter_config.json
refused 2 'adapter adapter_' --model "$model" --adapter other --output b
refused 2 'adapter_config.json' --model "$model" --adapter lora --output i --log-file lora/adapter_config.json

edit() { # argument: a statement that changes the config c or the tensors t
    rm -rf other && cp -r lora other
    (cd "$OSH_SOURCE_DIR/tests/tools" && python3 - "$1" "$OLDPWD/other") <<'P'
import json, pathlib, sys
from tensors import read, write
dir = pathlib.Path(sys.argv[2])
c, t = json.loads((dir / "adapter_config.json").read_text()), read(dir / "adapter_model.safetensors")
down = "base_model.model.model.layers.1.mlp.down_proj."
exec(sys.argv[1])
(dir / "adapter_config.json").write_text(json.dumps(c))
write(dir / "adapter_model.safetensors", t)
P
}
bad() { # arguments: the arguments of edit, then part of the message
    edit "$1"
    refused 1 "$2" --model "$model" --adapter other --output x
}
bad 'c["use_dora"] = True' 'use_dora is set: this variant of LoRA is not merged'
bad 'c["some_new_variant"] = {"a": 1}' 'some_new_variant is set'
bad 'c["init_lora_weights"] = "pissa_niter_4"' "init_lora_weights is 'pissa_niter_4', with which PEFT changes"
bad 'c["peft_type"] = "IA3"' "peft_type is 'IA3', want LORA"
bad 'c["r"] = 4' 'has rank 2, want 4'
bad 'c["r"] = 2.5' 'has r 2.5 and lora_alpha 3, want r a whole number from 1'
bad 'a, b = down + "lora_A.weight", down + "lora_B.weight"; da, db = t[a], t[b]; t[a] = (db[0], db[1][::-1], db[2]); t[b] = (da[0], da[1][::-1], da[2])' 'do not fit model.layers.1.mlp.down_proj.weight'
bad 'c["rank_pattern"] = {"down_proj": 3}' 'down_proj.lora_A.weight has rank 2, want 3'
bad 't.pop(down + "lora_B.weight")' 'but no lora_B for it'
bad 't[down + "lora_magnitude_vector"] = ("F32", [1], bytes(4))' 'lora_magnitude_vector: this variant'
bad 't["x.y"] = ("F32", [1], bytes(4))' 'want a name that begins with base_model.model.'
bad 't["base_model.model.model.layers.9.mlp.up_proj.weight"] = ("F32", [1], bytes(4))' 'has no tensor model.layers.9.mlp.up_proj.weight'
bad 't["base_model.model.model.norm.weight"] = ("F32", [3], bytes(12))' 'has another shape than model.norm.weight'
bad 't[down + "lora_A.weight"] = ("I32", *t[down + "lora_A.weight"][1:])' 'is I32: want F32, BF16 or F16'
bad 'd, s, raw = t[down + "lora_A.weight"]; t[down + "lora_A.weight"] = (d, [2, s[1] // 2], raw[:len(raw) // 2])' 'do not fit model.layers.1.mlp.down_proj.weight'
bad 'd, s, raw = t[down + "lora_A.weight"]; t[down + "lora_A.weight"] = (d, s, b"\0\0\xc0\x7f" + raw[4:])' 'holds nan, want finite numbers'
bad 'c["alpha_pattern"] = [4]' 'alpha_pattern is not an object: want names of modules with numbers'
bad 'c["alpha_pattern"] = {"(": 4}' 'adapter_config.json: alpha_pattern'
bad 'c["modules_to_save"] = ["lm_head"]' 'modules_to_save has lm_head, but the adapter holds no tensor'
bad 't[down + "lora_embedding_A"] = t[down + "lora_A.weight"]' 'is changed by both .*down_proj'
bad 't["base_model.model.model.layers.1.mlp.down_proj.weight"] = t[down + "lora_A.weight"]' 'is changed by both .*down_proj'
# Tests the same refusal if the tensor that replaces down_proj.weight precedes A and B in the file.
bad 't = {"base_model.model.model.layers.1.mlp.down_proj.weight": t[down + "lora_A.weight"], **t}' 'is changed by both .*lora_A.* and .*down_proj.weight'
edit 'c["lora_alpha"] = 1e308'
refused 1 'row 0 of the merged weight holds a NaN or an infinity' --model "$model" --adapter other --output x --restart
head -c 100 lora/adapter_model.safetensors >other/adapter_model.safetensors
refused 1 'truncated' --model "$model" --adapter other --output x
rm other/adapter_model.safetensors
refused 1 'adapter_model.safetensors: does not exist: want weights as safetensors' --model "$model" --adapter other --output x
refused 1 'adapter_config.json' --model "$model" --adapter "$model" --output x
[ ! -e x ] || fail "a refused run left an output"
