"""_trace.py - makes a small random model of a configuration with torch and transformers. Runs one
sample through it, and records the inputs and outputs of its modules."""

import contextlib
import json
import os

import numpy
import torch
import transformers

from ._small import TOKENS, make_small

SEED = 7


class Event:
    """A call of a module, or of softmax. `inputs` and `outputs` are lists of arrays; `scope` is the
    name of the module that runs when softmax is called."""

    def __init__(self, kind, name, inputs=(), outputs=()):
        self.kind, self.name, self.inputs, self.outputs = kind, name, list(inputs), list(outputs)


def _arrays(value):
    """Yields the tensors of a value, depth first, as arrays."""
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            value = torch.view_as_real(value.detach())
            yield numpy.arctan2(*(value[..., i].double().numpy() for i in (1, 0)))
        elif value.dtype != torch.bool:
            yield (
                value.detach().double().numpy()
                if value.is_floating_point()
                else value.detach().numpy()
            )
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _arrays(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _arrays(item)


def _fused_scores(query, key, _value, attn_mask=None, dropout_p=0.0, is_causal=False, **more):
    """Returns the scores that scaled_dot_product_attention computes before its softmax."""
    key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scale = more.get("scale") or query.shape[-1] ** -0.5
    scores = query @ key.transpose(-1, -2) * scale
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is None:
        return scores
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -torch.inf)
    return scores + attn_mask


class _Softmax(torch.overrides.TorchFunctionMode):
    """Records the scores of every softmax, and of every call of fused attention."""

    def __init__(self, record):
        super().__init__()
        self.record = record

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name == "softmax" and args and isinstance(args[0], torch.Tensor):
            self.record(args[0])
        elif name == "scaled_dot_product_attention":
            self.record(_fused_scores(*args, **(kwargs or {})))
        return function(*args, **(kwargs or {}))


class Trace:
    """Records the modules of a model, and the events of one forward pass: `enter` and `leave` of
    each module, in order. prefix: the name of the model inside a larger model."""

    def __init__(self, model, call, prefix=""):
        named = {
            (prefix + "." + n if n else prefix) if prefix else n: m
            for n, m in model.named_modules()
        }
        self.modules, self.events, self._stack = named, [], []
        hooks = []
        for name, module in self.modules.items():
            hooks.append(module.register_forward_pre_hook(self._enter(name), with_kwargs=True))
            hooks.append(module.register_forward_hook(self._leave(name), with_kwargs=True))
        with torch.no_grad(), _Softmax(self._scores):
            self.output = call(model)
        for hook in hooks:
            hook.remove()

    def _enter(self, name):
        def hook(module, args, kwargs):
            self._stack.append(name)
            self.events.append(Event("enter", name, _arrays([args, kwargs])))

        return hook

    def _leave(self, name):
        def hook(module, args, kwargs, output):
            self._stack.pop()
            self.events.append(Event("leave", name, _arrays([args, kwargs]), _arrays(output)))

        return hook

    def _scores(self, tensor):
        self.events.append(
            Event("softmax", self._stack[-1] if self._stack else "", _arrays(tensor))
        )


def events_of(module, name, array):
    """Returns the events of a call of one module with an array."""
    return Trace(module, lambda m: m(torch.tensor(array, dtype=torch.float32)), name).events


def load_config(directory, trust):
    """Returns the members of config.json, and the configuration object of transformers."""
    raw = json.loads(open(os.path.join(directory, "config.json"), encoding="utf-8").read())
    return raw, transformers.AutoConfig.from_pretrained(directory, trust_remote_code=trust)


def _build(config, trust):
    more = {"trust_remote_code": True} if trust else {}
    with contextlib.suppress(Exception):
        config._experts_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager", **more
    ).eval()


def meta_shapes(config, trust):
    """Returns {name: shape} of the parameters of the whole model, without memory for them."""
    with torch.device("meta"):
        return {n: list(p.shape) for n, p in _build(config, trust).named_parameters()}


def _randomize(model):
    """Gives all weights values with which each weight has an effect on the logits."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + [
            b for b in model.named_buffers() if b[0].endswith("bias")
        ]:
            if p.dim() == 1:
                p.add_(0.2 * torch.randn(p.shape))
            elif p.dim() > 1:
                p.copy_(torch.randn(p.shape) * p.shape[-1] ** -0.5)


class Small:
    """The small model for the config.json of a directory. It is saved in `home`, and has a
    trace."""

    def __init__(self, directory, home, trust, perturbed=True):
        self.raw, full = load_config(directory, trust)
        self.full, self.kind = full.to_dict(), type(full)
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
            alias = getattr(full, "attribute_map", {}).get(key)
            if alias:
                self.full.pop(key, None)
        self.json, self.keys, self.changed = make_small(self.raw, self.full, perturbed)
        self.home = home
        os.makedirs(home, exist_ok=True)
        for name in os.listdir(directory):  # code of the model
            if trust and name.endswith(".py"):
                with open(os.path.join(directory, name), "rb") as of, open(
                    os.path.join(home, name), "wb"
                ) as to:
                    to.write(of.read())
        self._write_config()
        self.config = transformers.AutoConfig.from_pretrained(home, trust_remote_code=trust)
        self.model = _build(self.config, trust)
        _randomize(self.model)
        self.model.save_pretrained(home)
        self._write_config()  # save_pretrained adds keys that the user's file may lack
        generator = numpy.random.default_rng(SEED)
        self.ids = generator.integers(
            2, self.model.get_input_embeddings().weight.shape[0], TOKENS
        ).tolist()
        self.trace = Trace(
            self.model,
            lambda m: m(torch.tensor(self.ids)[None], use_cache=False).logits[0].double().numpy(),
        )

    def _write_config(self):
        with open(os.path.join(self.home, "config.json"), "w", encoding="utf-8") as f:
            json.dump(self.json, f, indent=1)

    def value(self, key):
        """Returns the value of a key of the small model's configuration, with its defaults."""
        return getattr(self.config, key, None)

    def default(self, key, given):
        """Returns the value that the configuration class uses for a key if config.json lacks the
        key (given: False) or has null (given: True). Returns None if the class refuses this."""
        first, *rest = key.split(".")
        members = {
            k: v
            for k, v in self.json.items()
            if k not in (first, "auto_map", "model_type", "architectures")
        }
        if given:
            members[first] = None
        try:
            value = getattr(self.kind(**members), first, None)
        except Exception:
            return None
        for part in rest:  # a member of an object, such as rope_parameters.rope_theta
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def write_logits(self, path, n=40):
        """Writes the logits of transformers for a sample that is longer than the window."""
        from safetensors.numpy import save_file

        generator = numpy.random.default_rng(SEED + 1)
        ids = generator.integers(2, self.model.get_input_embeddings().weight.shape[0], n)
        with torch.no_grad():
            logits = self.model(torch.tensor(ids)[None], use_cache=False).logits[0]
        save_file(
            {"input_ids": ids.astype(numpy.int64), "logits": logits.float().numpy().copy()}, path
        )


def call(module, array):
    """Calls a module with an array, and returns the first tensor of its output."""
    with torch.no_grad():
        return next(_arrays(module(torch.tensor(numpy.asarray(array), dtype=torch.float32))))


def parameters(module):
    """Returns {name: array} of the module's own parameters and buffers."""
    own = list(module.named_parameters(recurse=False)) + list(module.named_buffers(recurse=False))
    return {name: p.detach().double().numpy() for name, p in own if p.is_floating_point()}


def rounds_late(module, width):
    """True if a norm rounds 16-bit values once, after the product with its weight."""
    import copy

    half, x = (
        copy.deepcopy(module).to(torch.bfloat16),
        torch.randn(64, width, generator=torch.Generator().manual_seed(1)).bfloat16(),
    )
    with torch.no_grad():
        got = half(x)
        plain = copy.deepcopy(module).float()
        plain.load_state_dict({k: v.float() for k, v in half.state_dict().items()})
        late = plain(x.float()).bfloat16()
    return bool((got == late).all())
