"""_explain.py - finds for each value of a layer the op and the earlier values that make it, and
writes entries of a template."""

import numpy

from ._attention import Attention, part_columns
from ._match import (
    CLOSE,
    EXACT,
    GATED,
    Norm,
    act_of,
    columns,
    glu_of,
    linear_off,
    off,
    rows,
    sigmoid,
)

NEWEST = 8  # values that are tried as parts of a product


class Unmatched(Exception):
    """The error for a value or a module that no op explains."""


class Call:
    """A call of a module that contains no modules. Has the input x and the output y [T, W], the
    parameters `own`, and the name `weight` of its weight matrix (None: it has none)."""

    def __init__(self, model, event):
        self.name, self.module = event.name, model.modules[event.name]
        self.kind, self.tail = type(self.module).__name__, event.name.rpartition(".")[2]
        made = [[rows(a, model.n_tokens) for a in part] for part in (event.inputs, event.outputs)]
        self.x, self.y = (next((r for r in part if r is not None), None) for part in made)
        self.width = event.inputs[0].shape[-1] if event.inputs else 0
        self.own = model.parameters(self.module)
        self.weight = next((k for k, p in self.own.items() if p.ndim == 2), None)


class Builder(Attention):
    """The entries of one layer, or of the part before or after the layers.

    values: the arrays [T, W] by their names, in the order in which they are made
    terms: {name: {value: factor}}, for values that are sums: the terms of the sum
    base: the name of the layer, with a dot"""

    def __init__(self, model, base, first):
        self.model, self.base = model, base  # model: a _model.Model
        self.values, self.terms = dict(first), {name: {name: 1.0} for name in first}
        self.entries, self.shown, self.scores, self.window = [], set(), [], 0
        self.faults = []

    # ---- names of values, entries of the template ----

    def relative(self, name):
        return name[len(self.base) :] if (name + ".").startswith(self.base) else name

    def add(self, value, name, terms=None):
        """Adds a value under a name that is free, and returns the name."""
        free, i = name, 2
        while free in self.values:
            free, i = "%s%d" % (name, i), i + 1
        self.values[free] = value
        self.terms[free] = terms or {free: 1.0}
        return free

    def op(self, of, op, inputs, out, **attr):
        entry = {"of": self.relative(of), "op": op, "in": list(inputs), "out": out}
        if attr:
            entry["attr"] = attr
        self.entries.append(entry)
        return out

    def show(self, name):
        """Writes entries for the modules that contain a module."""
        parts = self.relative(name).split(".")
        for i in range(1, len(parts)):
            around = ".".join(parts[:i])
            if around not in self.shown:
                self.shown.add(around)
                kind = type(self.model.modules[self.base + around]).__name__
                self.entries.append({"name": around, "class": kind})

    # ---- the entries that compute one value ----

    def explain(self, target, of, what):
        """Explains the value `target`, and returns its name. Raises Unmatched if no op makes it."""
        for way in (self.same, self.attention, self.sliced, self.summed, self.activated):
            name = way(target, of)
            if name:
                return name
        raise Unmatched("%s: no op gives its value from the values before it" % what)

    def same(self, target, of=""):
        for name in reversed(self.values):
            if off(self.values[name], target) < EXACT:
                return name
        return None

    def summed(self, target, of):
        """Explains a sum of values with factors."""
        base = [
            n
            for n, t in self.terms.items()
            if t == {n: 1.0} and self.values[n].shape == target.shape
        ]
        if not base:
            return None
        a = numpy.stack([self.values[n].ravel() for n in base], 1)
        factors = numpy.linalg.lstsq(a, target.ravel(), rcond=None)[0]
        if off((a @ factors).reshape(target.shape), target) > CLOSE:
            return None
        left = {n: float(f) for n, f in zip(base, factors) if abs(f) > 1e-5}
        parts = []
        for name in reversed(list(self.terms)):  # an earlier sum replaces its terms
            own = self.terms[name]
            if len(own) > 1 and all(n in left for n in own):
                ratio = {round(left[n] / f, 5) for n, f in own.items()}
                if len(ratio) == 1:
                    parts.insert(0, (name, ratio.pop()))
                    left = {n: f for n, f in left.items() if n not in own}
        parts += left.items()
        total = {}
        last = None
        for name, factor in parts:
            if abs(factor - 1) > 1e-5:
                by = self.model.names.number(factor)
                name, source = self.add(self.values[name] * factor, name + "_scaled"), name
                self.terms[name] = {n: f * factor for n, f in self.terms[source].items()}
                self.op(of, "scale", [source], name, by=by)
            for n, f in self.terms[name].items():
                total[n] = total.get(n, 0) + f
            if last is None:
                last = name
                continue
            value = self.values[last] + self.values[name]
            out = self.add(value, "sum", dict(total))
            last = self.op(of, "add", [last, name], out)
        return last

    def sliced(self, target, of):
        for name in reversed(list(self.values)):
            found = columns(target, self.values[name])
            if found and self.values[name].shape[1] > target.shape[1]:
                return self.slice(name, found, of, target)
        return None

    def slice(self, name, found, of, value=None, out=None):
        """Writes the entry of a slice of a value, unless it exists. Returns the name of the
        slice."""
        whole = self.values[name]
        if found["first"] == 0 and found["width"] == whole.shape[1]:
            return name
        if value is None:
            value = whole[:, part_columns(found)]
        known = self.same(value)
        if known:
            return known
        size = self.model.names.size
        attr = {"width": size(found["width"])}
        if found["first"]:
            attr = {"first": size(found["first"]), **attr}
        if found["count"] > 1:
            attr["period"] = size(found["period"])
        return self.op(of, "slice", [name], self.add(value, out or name + "_part"), **attr)

    def halves(self, width):
        """Yields slices of values that are twice as wide: first and second half, even and odd
        columns."""
        for name in reversed(list(self.values)):
            if self.values[name].shape[1] == 2 * width:
                parts = [
                    dict(first=i * width, width=width, period=2 * width, count=1) for i in (0, 1)
                ]
                yield name, parts
                yield name, [dict(first=i, width=1, period=2, count=width) for i in (0, 1)]

    def activated(self, target, of):
        """Explains an activation, a gated activation or a gate."""
        near = [n for n in reversed(list(self.values)) if self.values[n].shape == target.shape][
            :NEWEST
        ]
        for name in near:
            act = act_of(target, self.values[name])
            if act:
                return self.op(
                    of,
                    "act",
                    [name],
                    self.add(target, "act"),
                    act=self.model.act(act, GATED + ("relu", "relu2")),
                )
        for gate in near:
            for up in near:
                name = self.gated(target, gate, up, self.values[gate], self.values[up], of)
                if name:
                    return name
        for name, parts in self.halves(target.shape[1]):
            for one, two in (parts, parts[::-1]):
                value = self.values[name]
                cut = [value[:, part_columns(p)] for p in (one, two)]
                if glu_of(target, *cut):
                    gate, up = self.slice(name, one, of, out="gate"), self.slice(
                        name, two, of, out="up"
                    )
                    return self.gated(target, gate, up, *cut, of)
        return None

    def gated(self, target, gate, up, gate_value, up_value, of):
        act = glu_of(target, gate_value, up_value)
        if act:
            return self.op(
                of, "glu", [gate, up], self.add(target, "act"), act=self.model.act(act, GATED)
            )
        if off(sigmoid(gate_value) * up_value, target) < CLOSE:
            return self.op(of, "sigmoid_gate", [gate, up], self.add(target, "gated"))
        return None

    # ---- modules ----

    def leaf(self, event):
        """Writes the entry of a module without modules inside."""
        call = Call(self.model, event)
        if call.x is None or call.y is None or off(call.x, call.y) == 0:
            return
        act = None if call.weight else act_of(call.y, call.x)
        if act:  # the module is a function; the next value is explained by its op
            self.model.functions[call.kind] = (event.name, act)
            return
        self.show(event.name)
        of = event.name.rpartition(".")[0]
        source = self.explain(call.x, of, "%s (%s)" % (event.name, call.kind))
        head = {"name": self.relative(event.name), "class": call.kind}
        if call.weight:
            self.linear(call, head, source)
        else:
            self.norm(call, head, source)

    def linear(self, call, head, source):
        x, y, full, leaf = call.x, call.y, call.name, call.weight
        weight, bias = call.own[leaf], call.own.get("bias")
        transposed = linear_off(x, y, weight, bias) > CLOSE
        if transposed and linear_off(x, y, weight.T, bias) > CLOSE:
            raise Unmatched(
                "%s (%s): not x W^T + b, off by %.1e"
                % (full, call.kind, linear_off(x, y, weight, bias))
            )
        size = self.model.names.size
        o, i = weight.T.shape if transposed else weight.shape
        entry = {
            **head,
            "op": "linear",
            "in": [source],
            "out": self.add(y, call.tail),
            "weight": [size(o), size(i)],
        }
        if bias is not None or full in self.model.bias_keys:
            entry["bias"] = self.model.bias_keys.get(full, True)
        stored = self.model.stored(full, leaf, self.base)
        if transposed:
            entry["part"] = {"weight": "%s.%s" % (stored or head["name"], leaf), "transposed": True}
            if bias is not None:
                entry["part"]["bias"] = "%s.bias" % (stored or head["name"])
        elif stored and stored != self.model.embedding:
            entry["tensors"] = stored
        self.entries.append(entry)

    def norm(self, call, head, source):
        width = call.width
        norm = Norm(lambda x: self.model.call(call.module, x), call.own, width)
        if norm.off > CLOSE:
            raise Unmatched(
                "%s (%s): no op; the nearest, %s, is off by %.1e"
                % (call.name, call.kind, norm.op, norm.off)
            )
        size, attr = self.model.names.size, {}
        attr["eps"] = self.model.names.number(norm.eps) if norm.eps > 1e-12 else 0
        if norm.offset:
            attr["offset"] = norm.offset
        if norm.op == "rms_norm" and self.model.rounds_late(call.module, width):
            attr["late"] = True
        if width != self.values[source].shape[1]:
            attr["head_dim"] = size(width, ("Dh",))
        if norm.plain:
            attr["plain"] = True
        entry = {**head, "op": norm.op, "in": [source], "out": self.add(call.y, call.tail)}
        if not norm.plain:
            entry["weight"] = [size(width, ("Dh",) if "head_dim" in attr else ("D",))]
        if norm.bias:
            entry["bias"] = True
        if norm.leaf != "weight":
            entry["leaves"] = [norm.leaf] + (["bias"] if norm.bias else [])
        entry["attr"] = attr
        self.model.norms.setdefault(call.kind, (call.name, norm))
        self.entries.append(entry)

    # ---- the entries for a part of the trace ----

    def walk(self, events, skip=(), ends=None):
        """Writes the entries for the modules without modules inside, in a range of events. skip:
        names of modules whose inner modules are ignored; ends: {module: function to call with its
        last event}."""
        for event in events:
            if event.kind == "leave" and event.name in (ends or {}):
                self.tried(event, ends[event.name])
                continue
            if any((event.name + ".").startswith(s + ".") for s in skip):
                continue
            if event.kind == "softmax" and event.inputs[0].ndim == 4:
                self.scores = [event.inputs[0][0]]
            if event.kind == "leave" and not self.model.has_children(event.name):
                self.tried(event, self.leaf)

    def tried(self, event, function):
        """Calls the function for an event. If no op explains the event, stores the reason, and
        continues with the value that the module has made."""
        try:
            function(event)
        except Unmatched as e:
            self.faults.append(str(e))
            made = [
                r for r in (rows(a, self.model.n_tokens) for a in event.outputs) if r is not None
            ]
            if made:
                self.add(made[0], event.name.rpartition(".")[2])

    def end(self, target, of, name, what):
        """Explains the last value and gives it a name."""
        try:
            last = self.explain(target, of, what)
        except Unmatched as e:
            self.faults.append(str(e))
            return
        for entry in self.entries:
            if entry.get("out") == last:
                entry["out"] = name
            if last in entry.get("in", ()):
                entry["in"] = [name if x == last else x for x in entry["in"]]

    def grouped(self):
        """Returns the entries. Linears with one input and one parent are next to each other."""
        entries = list(self.entries)
        for i, entry in enumerate(entries):
            if entry.get("op") != "linear":
                continue
            parent, at = entry["name"].rpartition(".")[0], i + 1
            for j in range(i + 1, len(entries)):
                other = entries[j]
                if (
                    other.get("op") == "linear"
                    and other["in"] == entry["in"]
                    and other["name"].rpartition(".")[0] == parent
                ):
                    entries.insert(at, entries.pop(j))
                    at += 1
        return entries
