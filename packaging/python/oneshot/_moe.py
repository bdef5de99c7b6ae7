"""_moe.py - explains blocks of experts: finds the experts of each token, their weights, and the ops
of an expert."""

import numpy

from ._explain import Builder, Unmatched
from ._match import ACTS, CLOSE, GATED, off, rows, sigmoid


def softmax(x):
    e = numpy.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


class Block:
    """A module with experts. `experts` is the name of the list of modules, or of the module with
    tensors of all experts."""

    def __init__(self, model, name, experts, stacked):
        self.model, self.name, self.experts, self.stacked = model, name, experts, stacked

    @property
    def ends(self):
        """The module whose output is the sum over experts."""
        return self.experts if self.stacked else self.name

    def skipped(self):
        return [self.experts] + [name for name, _ in self.gates()]

    def count(self):
        if not self.stacked:
            return len(self.model.modules[self.experts])
        own = self.model.parameters(self.model.modules[self.experts])
        return next(p.shape[0] for p in own.values() if p.ndim == 3)

    def gates(self):
        """Returns the modules of the block with a weight [E, D] outside of the experts."""
        found = []
        for name, module in self.model.modules.items():
            if not name.startswith(self.name + ".") or (name + ".").startswith(self.experts + "."):
                continue
            own = self.model.parameters(module)
            found += [
                (name, own) for p in own.values() if p.ndim == 2 and p.shape[0] == self.count()
            ]
        return found


def find_blocks(model, base):
    """Returns the blocks of experts of a layer. base: the name of the layer with a dot."""
    blocks = []
    for name, module in model.modules.items():
        if not name.startswith(base):
            continue
        own, children = model.parameters(module), list(module.children())
        parent = name.rpartition(".")[0]
        listed = type(module).__name__ == "ModuleList" and len(children) > 1
        if (
            listed
            and len({type(c) for c in children}) == 1
            and not any((name + ".").startswith(b.experts + ".") for b in blocks)
        ):
            blocks.append(Block(model, parent, name, False))
        elif sum(p.ndim == 3 for p in own.values()) > 1:
            blocks.append(Block(model, parent, name, True))
    return blocks


def explain_block(builder, block, event):
    """Writes the entries of a block of experts; raises Unmatched."""
    model, n = builder.model, builder.model.n_tokens
    x = rows(event.inputs[0], n)
    y = next(
        (r for r in (rows(a, n) for a in event.outputs) if r is not None and r.shape == x.shape),
        None,
    )
    gates = block.gates()
    if y is None or len(gates) != 1:
        raise Unmatched(
            "%s: %d modules with a weight [%d, D], want one router"
            % (block.name, len(gates), block.count())
        )
    source = builder.explain(x, block.name, block.name)
    nodes, made, parts = _expert(builder, block, source, x)
    others = [
        name
        for name, v in builder.values.items()
        if v.shape == y.shape and name not in ("h", source)
    ]
    weights, left = _weights(y, made, [builder.values[name] for name in others])
    if weights is None:
        raise Unmatched("%s: its output is not a sum of the outputs of its experts" % block.name)
    _router(builder, block, gates[0], source, x, weights)
    builder.show(block.experts + ".0")
    relative = builder.relative(block.experts)
    builder.op(block.experts, "zeros", [source], "routed")
    nodes = nodes + [
        {
            "of": "",
            "op": "moe_combine",
            "in": ["routed", nodes[-1]["out"], "route"],
            "out": "routed",
            "attr": {"expert": "e"},
        }
    ]
    kind = (
        "ExpertMLPWithGate" if block.stacked else type(model.modules[block.experts + ".0"]).__name__
    )
    size = model.names.size(block.count(), ("E",) if "E" in model.names.values else ())
    builder.entries.append(
        {"name": parts or relative + ".{e}", "class": kind, "repeat": size, "nodes": nodes}
    )
    builder.add(numpy.einsum("te,etd->td", weights, made), "routed")
    for name, factors in zip(others, left):
        _gated_part(builder, block, name, factors)


def _gated_part(builder, block, name, factors):
    """Explains the factors [T] of a value as the sigmoid of another value, and writes the entry."""
    if numpy.ptp(factors) < CLOSE:
        return  # the factor is constant; the entry of the sum has it
    for gate in list(builder.values):
        value = builder.values[gate]
        if value.shape[1] == 1 and off(sigmoid(value[:, 0]), factors) < 1e-4:
            out = builder.add(builder.values[name] * sigmoid(value), "gated")
            builder.op(block.name, "sigmoid_gate", [gate, name], out)
            return
    raise Unmatched("%s: the factors of %s are not the sigmoid of a value" % (block.name, name))


def explain_sum(builder, block, event):
    """Explains the output of a block whose experts are one module. The output is the sum of the
    experts, or that sum plus a value that is multiplied by a sigmoid."""
    y = next(r for r in (rows(a, builder.model.n_tokens) for a in event.outputs) if r is not None)
    routed = builder.values.get("routed")
    if routed is None or off(routed, y) < CLOSE:
        return
    left = y - routed
    for name in reversed(list(builder.values)):
        value = builder.values[name]
        if value.shape == left.shape:
            factors = (left * value).sum(1) / (value * value).sum(1)
            if off(factors[:, None] * value, left) < CLOSE:
                _gated_part(builder, block, name, factors)
                return


def _weights(y, made, others):
    """Explains y as a sum of the experts' outputs `made` and the values `others`. Returns the
    weights [T, E] of the experts, and the factors [T] of each other value; (None, None) if y is no
    such sum."""
    parts = numpy.concatenate([made, numpy.stack(others)]) if others else made
    found = numpy.zeros((len(y), len(parts)))
    for t in range(len(y)):
        found[t] = numpy.linalg.lstsq(parts[:, t].T, y[t], rcond=None)[0]
    if off(numpy.einsum("tp,ptd->td", found, parts), y) > CLOSE:
        return None, None
    weights = found[:, : len(made)]
    weights[numpy.abs(weights) < CLOSE * numpy.abs(weights).max()] = 0
    return weights, found[:, len(made) :].T


def _router(builder, block, gate, source, x, weights):
    """Writes the entries of the router that gives the experts these weights."""
    model, (name, own) = builder.model, gate
    leaf = next(k for k, p in own.items() if p.ndim == 2)
    kind, tail = type(model.modules[name]).__name__, builder.relative(name)
    linear_bias = own["bias"] if "bias" in own and own["bias"].ndim == 1 else 0
    logits, chosen = x @ own[leaf].T + linear_bias, weights != 0
    counts = {int(c) for c in chosen.sum(1)}
    if len(counts) != 1:
        raise Unmatched("%s: tokens have %s experts, want one number" % (name, sorted(counts)))
    biases = [(None, 0)] + [
        (b, p)
        for at in (name, block.name)
        for b, p in ((at + "." + k, v) for k, v in model.parameters(model.modules[at]).items())
        if p.ndim == 1 and p.size == len(own[leaf])
    ]
    k = counts.pop()
    for score in ("softmax", "sigmoid"):
        p = softmax(logits) if score == "softmax" else sigmoid(logits)
        for normed in (False, True):
            v = p * chosen / ((p * chosen).sum(1, keepdims=True) if normed else 1)
            scale = float((weights * v).sum() / (v * v).sum())
            if off(scale * v, weights) > 1e-4:
                continue
            for bias, b in biases:
                best = numpy.sort(numpy.argsort(-(p + b), 1)[:, :k], 1)
                if all(chosen[t, best[t]].all() for t in range(len(x))):
                    _write_router(
                        builder,
                        (name, tail, kind, leaf, bias),
                        source,
                        own,
                        (score, normed, scale, k),
                    )
                    return
    raise Unmatched(
        "%s (%s): the weights of experts are not the softmax or sigmoid of %s" % (name, kind, leaf)
    )


def _write_router(builder, gate, source, own, how):
    model, (name, tail, kind, leaf, bias), (score, normed, scale, k) = builder.model, gate, how
    builder.show(name)
    size, stored = model.names.size, model.stored(name, leaf, builder.base)
    shape = [
        size(own[leaf].shape[0], ("E",) if "E" in model.names.values else ()),
        size(own[leaf].shape[1], ("D",)),
    ]
    attr = {
        "top_k": model.counted(k, ("tok", "topk", "top_k", "moe_k")),
        "norm_topk_prob": model.switch("norm", normed),
    }
    entry = {
        "name": tail,
        "class": kind,
        "op": "linear",
        "in": [source],
        "out": "router_logits",
        "weight": shape,
    }
    if score == "softmax" and bias is None and abs(scale - 1) < 1e-4:
        if "bias" in own:
            entry["bias"] = True
        builder.entries.append(entry)
        builder.op(name, "moe_router", ["router_logits"], "route", **attr)
    else:
        if score == "sigmoid":
            attr["sigmoid"] = True
        if abs(scale - 1) > 1e-4:
            attr["scale"] = model.names.number(scale)
        entry.update(op="moe_gate", out="route", attr=attr)
        if bias is not None:
            entry["bias"] = True
            if bias.rpartition(".")[0] == name:
                entry["leaves"] = [leaf, bias.rpartition(".")[2]]
            else:
                entry["part"] = {
                    "weight": "%s.%s" % (stored or tail, leaf),
                    "bias": builder.relative(bias),
                }
        builder.entries.append(entry)
    if stored and "part" not in entry:
        entry["tensors"] = stored


def _expert(builder, block, source, x):
    """Returns the entries of an expert, the outputs [E, T, D] of all, and the pattern of their
    names in the checkpoint (None: that of the modules)."""
    if block.stacked:
        return _stacked(builder, block, source, x)
    model = builder.model
    first = block.experts + ".0"
    inner = Builder(model, first + ".", {source: x})
    inner.walk([e for e in model.run(first, x) if e.name != first])
    made = numpy.stack([model.call(m, x) for m in model.modules[block.experts]])
    inner.end(made[0], first, "y", first)
    builder.faults += inner.faults
    own = {e["out"] for e in inner.entries if "out" in e}
    for entry in inner.entries:  # names inside the expert must differ from names outside
        if "of" in entry:
            entry["of"] = "" if entry["of"] == first else entry["of"]
        if "in" in entry:
            entry["in"] = ["expert_" + n if n in own else n for n in entry["in"]]
            entry["out"] = "expert_" + entry["out"]
    return inner.grouped(), made, None


def _stacked(builder, block, source, x):
    """Explains experts whose weights are in tensors for all experts: [E, 2F, D] or [E, D, 2F]."""
    model = builder.model
    own = {k: p for k, p in model.parameters(model.modules[block.experts]).items() if p.ndim == 3}
    width = x.shape[1]
    for up in own:
        for down in own:
            for turned in (False, True):
                w = own[up].transpose(0, 2, 1) if turned else own[up]
                d = own[down].transpose(0, 2, 1) if turned else own[down]
                if (
                    up == down
                    or w.shape[2] != width
                    or d.shape[1] != width
                    or w.shape[1] != 2 * d.shape[2]
                ):
                    continue
                found = _stacked_layout(builder, block, x, w, d)
                if found:
                    act, first, step, made = found
                    return (
                        _stacked_nodes(
                            builder, block, source, (up, down, turned, act, first, step, d.shape[2])
                        ),
                        made,
                        _pattern(builder, block, (w, d, first, step)),
                    )
    raise Unmatched("%s: no layout of its tensors makes its output" % block.experts)


def _stacked_layout(builder, block, x, w, d):
    """Returns (activation, first rows of gate and up, step, outputs [E, T, D]), or None."""
    event = next(
        e for e in builder.model.trace.events if e.kind == "leave" and e.name == block.experts
    )
    y, f = rows(event.outputs[0], builder.model.n_tokens), d.shape[2]
    for first, step in (((0, f), 1), ((f, 0), 1), ((0, 1), 2), ((1, 0), 2)):
        cut = [w[:, i::step][:, :f] for i in first]
        gate, up = (numpy.einsum("td,efd->etf", x, c) for c in cut)
        for act in GATED:
            made = numpy.einsum("etf,edf->etd", ACTS[act](gate) * up, d)
            if _weights(y, made, [])[0] is not None:
                return act, first, step, made
    return None


def _slices(w, d, first, step):
    f = d.shape[2]
    return [w[0, i::step][:f] for i in first] + [d[0]]


def _pattern(builder, block, how):
    """Returns the pattern of the names of single experts in the checkpoint, or None."""
    names = [builder.model.tensor_like(s) for s in _slices(*how)]
    if any(n is None for n in names):
        return None
    return (
        builder.relative(names[0]).rpartition(".")[0].rpartition(".")[0].rpartition(".")[0] + ".{e}"
    )


def _stacked_nodes(builder, block, source, how):
    model, (up, down, turned, act, first, step, f) = builder.model, how
    size, own = model.names.size, model.parameters(model.modules[block.experts])
    w, d = (own[k].transpose(0, 2, 1) if turned else own[k] for k in (up, down))
    stored = [model.tensor_like(s) for s in _slices(w, d, first, step)]
    single = all(stored)
    inner, outer = size(f, ("Fe", "F") if "Fe" in model.names.values else ("F",)), size(
        d.shape[1], ("D",)
    )
    nodes = []
    for i, (out, shape, tensor) in enumerate(
        (
            ("expert_gate", [inner, outer], up),
            ("expert_up", [inner, outer], up),
            ("expert", [outer, inner], down),
        )
    ):
        name = (
            stored[i].rpartition(".")[0].rpartition(".")[2]
            if single
            else ("gate_proj", "up_proj", "down_proj")[i]
        )
        entry = {
            "name": name,
            "class": "Linear" if single else "ExpertSlice",
            "op": "linear",
            "in": [source if i < 2 else "expert_act"],
            "out": out,
            "weight": shape,
        }
        if not single:
            entry["part"] = {
                "weight": "%s.%s" % (builder.relative(block.experts), tensor),
                "at": "e",
            }
            if i < 2 and first[i]:
                entry["part"]["first"] = 1 if step == 2 else inner
            if i < 2 and step == 2:
                entry["part"]["step"] = 2
            if turned:
                entry["part"]["transposed"] = True
        nodes.append(entry)
        if i == 1:
            nodes.append(
                {
                    "of": "",
                    "op": "glu",
                    "in": ["expert_gate", "expert_up"],
                    "out": "expert_act",
                    "attr": {"act": model.act(act, GATED)},
                }
            )
    return nodes
