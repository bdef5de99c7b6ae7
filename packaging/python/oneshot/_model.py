"""_model.py - answers the questions of the other modules about the small model: names of sizes and
keys, angles of rope, and tensors of the checkpoint."""

import os

import numpy
from safetensors.numpy import load_file

from . import _trace
from ._match import angles_of, off, rows
from ._names import Names
from ._small import TOKENS

ACT_KEYS = (
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "hidden_activation_function",
    "activation",
    "ffn_act",
    "mlp_hidden_act",
)
ACT_NAMES = {
    "silu": ("silu",),
    "gelu": ("gelu",),
    "gelu_pytorch_tanh": ("gelu_pytorch_tanh", "gelu_new"),
    "relu": ("relu",),
    "relu2": ("relu2",),
}


def flat(config, prefix=""):
    """Returns the members of a configuration in one dict. The name of a member of an object has a
    dot."""
    out = {}
    for key, value in config.items():
        if isinstance(value, dict):
            out.update(flat(value, prefix + str(key) + "."))
        else:
            out[prefix + str(key)] = value
    return out


class Model:
    def __init__(self, small, trust):
        self.small, self.trace, self.modules = small, small.trace, small.trace.modules
        self.trust, self.n_tokens, self.made_keys = trust, TOKENS, {}
        self.norms, self.functions = {}, {}  # {class: (name, formula)}
        self.config = flat(small.config.to_dict())
        numbers = {
            k: v
            for k, v in self.config.items()
            if isinstance(v, (int, float)) and not isinstance(v, bool)
        }
        self.numbers = {
            k: v
            for k, v in numbers.items()
            if "token_id" not in k and k.replace(".", "").replace("_", "").isalnum()
        }
        self.numbers.update({key: small.json[key] for key in small.keys.values()})
        self.names = Names(small.keys, self.numbers, small.changed)
        self.caps = sorted({float(v) for k, v in self.numbers.items() if "cap" in k and v > 0})
        embedding = small.model.get_input_embeddings()
        self.embedding = next(k for k, m in self.modules.items() if m is embedding)
        self.tensors = {}
        for name in sorted(os.listdir(small.home)):
            if name.endswith(".safetensors"):
                self.tensors.update(load_file(os.path.join(small.home, name)))
        self.angles, self._factors = [], []
        self._find_angles()
        self.bias_keys = self._find_bias_keys()

    # ---- rope ----

    def _find_angles(self):
        for event in self.trace.events:
            if event.kind != "leave":
                continue
            made = [rows(a, self.n_tokens) for a in event.outputs]
            made = [m for m in made if m is not None]
            if len(made) == 2 and made[0].shape == made[1].shape and made[0].shape[1] <= 512:
                length = made[0] ** 2 + made[1] ** 2
                if (
                    numpy.ptp(length) < 1e-5 * length.max()
                    and off(made[0][0], numpy.sqrt(length[0])) < 1e-5
                ):
                    self._add_angles(angles_of(made[0], made[1]), float(numpy.sqrt(length.mean())))
        for module in self.modules.values():
            for name, buffer in module.named_buffers(recurse=False):
                if name.endswith("inv_freq"):
                    self._add_angles(
                        numpy.outer(numpy.arange(self.n_tokens), buffer.double().numpy()), 1.0
                    )
        # Some models compute the angles inside of attention, where values are not traced. So the
        # angles of ropes with common bases and sizes are added, too.
        bases = {v for k, v in self.numbers.items() if "theta" in k and v > 1} | {1e4}
        for base in sorted(bases):
            for rotated in {self.names.values["Dh"] // part for part in (1, 2, 4)}:
                powers = numpy.arange(0, rotated, 2) / rotated
                self._add_angles(numpy.outer(numpy.arange(self.n_tokens), base**-powers), 1.0)

    def _add_angles(self, angles, factor):
        turn = numpy.exp(1j * angles)
        if not any(
            a.shape == angles.shape and numpy.abs(numpy.exp(1j * a) - turn).max() < 1e-5
            for a in self.angles
        ):
            self.angles.append(angles)
            self._factors.append(factor)

    def rope_factor(self, angles):
        """Returns the factor by which rope multiplies scores (yarn). The op rope does the same."""
        return (
            1.0
            if angles is None
            else next(f for a, f in zip(self.angles, self._factors) if a is angles) ** 2
        )

    def rope_attr(self, angles, width, interleaved):
        attr, rotated = {}, 2 * angles.shape[1]
        if rotated < width:
            share = [v for k, v in self._given().items() if k.endswith("partial_rotary_factor")]
            if any(int(width * s) == rotated for s in share):
                attr["partial"] = True
            elif self._given().get("rotary_dim") == rotated:
                attr["rotary_dim"] = self.names.use("rotary_dim")
            else:  # the default of a class, which the file lacks
                attr["rotary_dim"] = (
                    "Dh/%d" % (width // rotated) if width % rotated == 0 else rotated
                )
        theta = self._theta(angles)
        known = {v for k, v in self._given().items() if k.endswith(("rope_theta",))} or {1e4}
        kind = [v for k, v in self._given().items() if k.endswith(("rope_type", ".type"))]
        if (
            all(t == "default" for t in kind)
            and theta
            and not any(abs(t / theta - 1) < 1e-3 for t in known)
        ):
            attr["theta"] = self.names.number(theta)
        if interleaved:
            attr["interleaved"] = True
        return attr

    def _given(self):
        return flat(self.small.json)

    @staticmethod
    def _theta(angles):
        """Returns the base of the frequencies, or None if they have none."""
        n = angles.shape[1]
        if n < 2:
            return None
        frequencies = numpy.mod(angles[1], 2 * numpy.pi)
        theta = float(frequencies[1] ** -n) if frequencies[1] > 0 else 0
        wanted = theta ** -(numpy.arange(n) / n) if theta > 0 else frequencies + 1
        return theta if off(wanted, frequencies) < 1e-4 else None

    # ---- keys of config.json ----

    def act(self, act, allowed):
        """Returns a key of config.json with the activation."""
        for key in ACT_KEYS:
            if self.config.get(key) in ACT_NAMES[act]:
                return self.names.use(key)
        key = "template_" + act
        self.made_keys[key] = act
        return key

    def counted(self, n, parts):
        """Returns a key that has the value n and contains one of `parts`. Returns n if there is
        none."""
        keys = [k for k, v in self.numbers.items() if v == n and any(p in k for p in parts)]
        return self.names.use(keys[0]) if keys else n

    def switch(self, part, value):
        """Returns the only key that has the bool `value` and contains `part`. Returns `value` if
        there is no such key."""
        keys = [k for k, v in self.config.items() if v is value and part in k]
        return self.names.use(keys[0]) if len(keys) == 1 else value

    def _find_bias_keys(self):
        """Returns {module: key} for the biases that a key of config.json switches."""
        found = {}
        before = self._biases({})
        for key, value in self.config.items():
            if isinstance(value, bool) and "bias" in key and "." not in key:
                after = self._biases({key: not value})
                for name in (before ^ after) if after is not None else ():
                    found[name.rpartition(".")[0]] = self.names.use(key)
        return found

    def _biases(self, changes):
        try:
            members = {
                k: v
                for k, v in self.small.json.items()
                if k not in ("auto_map", "model_type", "architectures")
            }
            config = self.small.kind(**{**members, **changes})
            config.auto_map, config._name_or_path = self.small.json.get("auto_map"), self.small.home
            if config.auto_map is None:
                del config.auto_map
            return {n for n in _trace.meta_shapes(config, self.trust) if n.endswith(".bias")}
        except Exception:
            return None if changes else set()

    def lists(self):
        """Returns the lists of the configuration that have an item for each layer."""
        n = self.names.values["L"]
        full = self.small.config.to_dict()
        return {
            k: v
            for k, v in full.items()
            if isinstance(v, list)
            and len(v) == n
            and all(isinstance(x, (str, int, bool)) for x in v)
        }

    # ---- tensors and modules ----

    def stored(self, module, leaf, base):
        """Returns the name that the module has in the checkpoint; None: the same name."""
        if module + "." + leaf in self.tensors:
            return None
        name = self.tensor_like(self.parameters(self.modules[module])[leaf])
        name = name and name.rpartition(".")[0]
        return name[len(base) :] if name and name.startswith(base) else name

    def tensor_like(self, array):
        """Returns the name of a tensor of the checkpoint with these values, or None."""
        for name, tensor in self.tensors.items():
            if tensor.shape == array.shape and off(tensor, array) == 0:
                return name
        return None

    def has_children(self, name):
        return any(True for _ in self.modules[name].children()) if name in self.modules else True

    def run(self, name, x):
        """Returns the events of a call of a module."""
        return _trace.events_of(self.modules[name], name, x)

    parameters, call = staticmethod(_trace.parameters), staticmethod(_trace.call)
    rounds_late = staticmethod(_trace.rounds_late)
