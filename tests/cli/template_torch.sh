# template_torch.sh - tests `python -m oneshot.template` with unknown models. Their classes are
# subclasses with new names, and their code is in the model's directory. The command writes a
# template of the model, and checks it against the model. Needs torch and transformers.
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
prove() { # arguments: name
    python3 -m oneshot.template "$1" --trust-remote-code --oneshot "$ONESHOT" --output "t/$1.json" >out 2>&1 || { cat out; exit 1; }
    grep -q 'is proven for the settings of this config.json' out || { cat out; exit 1; }
}
prove g
prove m
grep -q '"scale": "1/sqrt(query_pre_attn_scalar)", "softcap": "attn_logit_softcapping", "sliding_window": "window"' t/g.json
grep -q '"offset": 1.0, "late": true' t/g.json
grep -q '"flags": {"kind1": {"from": "first_k_dense_replace"}}' t/m.json
grep -q '"weight": \["Fe\*n_shared_experts", "D"\]' t/m.json
grep -q '"scale": "routed_scaling_factor"' t/m.json

# Makes a model with code of its own. One Linear computes q, k and v. The attention computes rope
# itself, on pairs of neighbouring channels in half of each head. Queries and keys have norms. The
# branches of a layer are parallel, and are multiplied by a factor. Experts are in a list.
mkdir n
cat >n/config.json <<'END'
{"architectures": ["NovelForCausalLM"], "model_type": "novel", "n_embd": 512, "n_layer": 6, "n_head": 8, "n_head_kv": 2,
 "ffn_dim": 1024, "vocab_size": 600, "max_position_embeddings": 512, "norm_epsilon": 1e-6, "rope_theta": 5e4,
 "branch_multiplier": 0.7, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
 "expert_layers": [0, 1, 0, 1, 0, 1], "final_softcap": 20.0,
 "auto_map": {"AutoConfig": "code.NovelConfig", "AutoModelForCausalLM": "code.NovelForCausalLM"}}
END
cat >n/code.py <<'END'
import torch
from torch import nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

class NovelConfig(PretrainedConfig):
    model_type = "novel"

class NovelNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.zeros(n)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.gain)

def turn(x, theta):
    n = x.shape[-1] // 2
    angle = torch.outer(torch.arange(x.shape[-2]).float(), theta ** -(torch.arange(0, n, 2).float() / n))
    a, b = x[..., :n:2], x[..., 1:n:2]
    both = torch.stack((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
    return torch.cat((both.flatten(-2), x[..., n:]), -1)

class NovelAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.d = c, c.n_embd // c.n_head
        self.wqkv = nn.Linear(c.n_embd, (c.n_head + 2 * c.n_head_kv) * self.d, bias=False)
        self.qn, self.kn = NovelNorm(self.d, c.norm_epsilon), NovelNorm(self.d, c.norm_epsilon)
        self.wo = nn.Linear(c.n_embd, c.n_embd)

    def forward(self, x):
        g, t = self.c.n_head // self.c.n_head_kv, self.c.rope_theta
        q, k, v = self.wqkv(x).unflatten(2, (self.c.n_head_kv, g + 2, self.d)).split((g, 1, 1), 3)
        q, k = (self.qn(q.flatten(2, 3)).transpose(1, 2), self.kn(k.squeeze(3)).transpose(1, 2))
        v = v.squeeze(3).transpose(1, 2)
        y = F.scaled_dot_product_attention(turn(q, t), turn(k, t), v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).flatten(2))

class NovelExpert(nn.Module):
    def __init__(self, n, f):
        super().__init__()
        self.w_in, self.w_gate, self.w_out = (nn.Linear(*s, bias=False) for s in ((n, f), (n, f), (f, n)))

    def forward(self, x):
        return self.w_out(F.silu(self.w_gate(x)) * self.w_in(x))

class NovelMixture(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.k, n, f = c.num_experts_per_tok, c.n_embd, c.moe_intermediate_size
        self.choice, self.common_gate = nn.Linear(n, c.num_experts, bias=False), nn.Linear(n, 1, bias=False)
        self.experts, self.common = nn.ModuleList(NovelExpert(n, f) for _ in range(c.num_experts)), NovelExpert(n, f)

    def forward(self, x):
        h = x.flatten(0, 1)
        w, at = torch.topk(torch.softmax(self.choice(h), -1), self.k)
        y = torch.sigmoid(self.common_gate(h)) * self.common(h)
        for e, expert in enumerate(self.experts):
            token, which = torch.where(at == e)
            y.index_add_(0, token, expert(h[token]) * (w / w.sum(-1, keepdim=True))[token, which, None])
        return y.view_as(x)

class NovelMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.up, self.down = nn.Linear(c.n_embd, c.ffn_dim), nn.Linear(c.ffn_dim, c.n_embd)

    def forward(self, x):
        return self.down(F.relu(self.up(x)).square())

class NovelBlock(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        self.norm, self.attention, self.by = NovelNorm(c.n_embd, c.norm_epsilon), NovelAttention(c), c.branch_multiplier
        self.feed = NovelMixture(c) if c.expert_layers[i] else NovelMLP(c)

    def forward(self, x):
        y = self.norm(x)
        return x + self.by * (self.attention(y) + self.feed(y))

class NovelForCausalLM(PreTrainedModel):
    config_class = NovelConfig

    def __init__(self, c):
        super().__init__(c)
        self.tokens, self.start = nn.Embedding(c.vocab_size, c.n_embd), nn.LayerNorm(c.n_embd, eps=c.norm_epsilon)
        self.blocks = nn.ModuleList(NovelBlock(c, i) for i in range(c.n_layer))
        self.last, self.out = NovelNorm(c.n_embd, c.norm_epsilon), nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.tokens

    def get_output_embeddings(self):
        return self.out

    def forward(self, input_ids=None, **more):
        x = self.start(self.tokens(input_ids))
        for block in self.blocks:
            x = block(x)
        cap = self.config.final_softcap
        return CausalLMOutput(logits=cap * torch.tanh(self.out(self.last(x)) / cap))
END
prove n
grep -q '"rotary_dim": "Dh/2", "interleaved": true' t/n.json
grep -q '"flags": {"kind1": {"list": "expert_layers"}}' t/n.json
grep -q '"name": "feed.experts.{e}", "class": "NovelExpert", "repeat": "E"' t/n.json
grep -q '"op": "sigmoid_gate", "in": \["common_gate", "w_out"\]' t/n.json

# For an activation without an op, the message names the module, and nothing is proven.
sed -i 's/^class OddForCausalLM.*/import torch\nclass Odd(torch.nn.Module):\n    def forward(self, x):\n        return torch.sin(x)\n\n&/' g/code.py
cat >>g/code.py <<'END'

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp.act_fn = Odd()
END
if python3 -m oneshot.template g --trust-remote-code --oneshot "$ONESHOT" --output u/g.json >out 2>&1; then echo "was proven"; exit 1; fi
grep -q 'no op: model.layers.N.mlp.down_proj (Linear): no op gives its value from the values before it' out || { cat out; exit 1; }
