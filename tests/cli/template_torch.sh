# template_torch.sh - python -m oneshot.template writes and proves templates of models that no table
# of the program knows: subclasses with other names, whose code is in the directory. Needs torch and
# transformers.
set -euo pipefail
[ -z "$SANITIZED" ] || { echo "the sanitizers' runtime is not loaded in python3"; exit 77; }
export PYTHONPATH=$OSH_SOURCE_DIR/packaging/python ONESHOT_LIBRARY=$(dirname "$ONESHOT")/liboneshot.so PYTHONDONTWRITEBYTECODE=1
export HF_HOME=$PWD/hf HF_HUB_OFFLINE=1
python3 -c 'import safetensors, torch, transformers' 2>/dev/null || { echo "python3 has no torch and transformers"; exit 77; }
made() { # arguments: name, family of transformers, class prefix, more members of config.json
    mkdir "$1"
    cat >"$1/config.json" <<END
{"architectures": ["OddForCausalLM"], "model_type": "odd_$1", "vocab_size": 512, "num_hidden_layers": 6, $4
 "auto_map": {"AutoConfig": "code.OddConfig", "AutoModelForCausalLM": "code.OddForCausalLM"}}
END
    cat >"$1/code.py" <<END
from transformers import $3Config, $3ForCausalLM

class OddConfig($3Config):
    model_type = "odd_$1"

class OddForCausalLM($3ForCausalLM):
    config_class = OddConfig
END
}
made g gemma2 Gemma2 '"hidden_size": 256, "query_pre_attn_scalar": 100,'
made m glm4_moe Glm4Moe '"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "n_routed_experts": 16, "n_shared_experts": 2, "routed_scaling_factor": 1.5, "first_k_dense_replace": 3,'
if python3 -m oneshot.template g --oneshot "$ONESHOT" >out 2>&1; then echo "code ran without --trust-remote-code"; exit 1; fi
grep -q 'trust-remote-code runs it' out || { cat out; exit 1; }
for name in g m; do
    python3 -m oneshot.template $name --trust-remote-code --oneshot "$ONESHOT" --output t/$name.json >out 2>&1 || { cat out; exit 1; }
    grep -q 'is proven for the settings of this config.json' out || { cat out; exit 1; }
done
grep -q '"scale": "1/sqrt(query_pre_attn_scalar)", "softcap": "attn_logit_softcapping", "sliding_window": "window"' t/g.json
grep -q '"offset": 1.0, "late": true' t/g.json
grep -q '"flags": {"kind1": {"from": "first_k_dense_replace"}}' t/m.json
grep -q '"weight": \["Fe\*n_shared_experts", "D"\]' t/m.json
grep -q '"scale": "routed_scaling_factor"' t/m.json

# An activation without an op: the module is named, and nothing is proven.
sed -i 's/^class OddForCausalLM.*/import torch\nclass Odd(torch.nn.Module):\n    def forward(self, x):\n        return torch.sin(x)\n\n&/' g/code.py
cat >>g/code.py <<'END'

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp.act_fn = Odd()
END
if python3 -m oneshot.template g --trust-remote-code --oneshot "$ONESHOT" --output u/g.json >out 2>&1; then echo "was proven"; exit 1; fi
grep -q 'no op: model.layers.N.mlp.down_proj (Linear): its value is no op of the values before it' out || { cat out; exit 1; }
