"""_assemble.py - joins the entries of all parts of a model to a template."""

import numpy

from ._explain import Builder, Unmatched
from ._match import CLOSE, off, rows
from ._moe import explain_block, explain_sum, find_blocks
from ._names import evaluate, join_kinds, layer_rule, window_rule

NULLS = {"K": "H", "Dh": "D/H"}


class Result:
    """A template, and texts about the parts of the model that have no op."""

    def __init__(self, template, faults):
        self.template, self.faults = template, faults


def find_layers(model):
    """Returns the name of the list of decoder layers."""
    n = model.names.values["L"]
    for name, module in sorted(model.modules.items(), key=lambda kv: kv[0].count(".")):
        if type(module).__name__ == "ModuleList" and len(module) == n:
            return name
    raise Unmatched("no ModuleList has %d layers (%s)" % (n, model.names.dims["L"]))


def _between(events, name):
    """Returns the first event of a module, the events between, and the last event."""
    own = [i for i, e in enumerate(events) if e.name == name and e.kind in ("enter", "leave")]
    return events[own[0]], events[own[0] + 1 : own[-1]], events[own[-1]]


def build_layer(model, name):
    """Returns the Builder of one layer."""
    enter, inside, leave = _between(model.trace.events, name)
    n = model.n_tokens
    builder = Builder(model, name + ".", {"h": rows(enter.inputs[0], n)})
    blocks = find_blocks(model, name + ".")
    skipped = [s for b in blocks for s in b.skipped()]
    ends = {b.ends: lambda event, b=b: explain_block(builder, b, event) for b in blocks}
    for block in (b for b in blocks if b.stacked):
        ends[block.name] = lambda event, b=block: explain_sum(builder, b, event)
    builder.walk(inside, skipped, ends)
    builder.end(rows(leave.outputs[0], n), name, "h", "the output of " + name)
    return builder


def build_before(model, layers):
    """Returns the entries before the layers."""
    first = layers + ".0"
    events, n = model.trace.events, model.n_tokens
    at = next(i for i, e in enumerate(events) if e.name == first)
    builder = Builder(model, "", {})
    embedding = model.embedding
    kind = type(model.modules[embedding]).__name__
    weight = model.parameters(model.modules[embedding])["weight"]
    size = model.names.size
    builder.show(embedding)
    value = builder.add(weight[model.small.ids], "h")
    builder.entries.append(
        {
            "name": embedding,
            "class": kind,
            "op": "embedding",
            "in": ["input_ids"],
            "out": value,
            "weight": [size(weight.shape[0], ("V",)), size(weight.shape[1], ("D",))],
            "tied": head_name(model),
        }
    )
    stored = model.stored(embedding, "weight", "")
    if stored:
        builder.entries[-1]["tensors"] = stored
    _positions(builder, events[:at], embedding)
    done = {entry.get("name") for entry in builder.entries}
    rotary = [e.name for e in events[:at] if e.kind == "leave" and "rotary" in e.name.lower()]
    builder.walk([e for e in events[:at] if e.kind == "leave" and e.name not in done], rotary)
    builder.end(
        rows(events[at].inputs[0], n), embedding.rpartition(".")[0], "h", "the input of " + first
    )
    builder.entries.append({"name": layers, "class": "ModuleList"})
    return builder


def _positions(builder, events, embedding):
    """Writes the entry of learned positions, whose rows are added to the embedding."""
    model, n = builder.model, builder.model.n_tokens
    for event in events:
        if (
            event.kind != "leave"
            or event.name == embedding
            or "Embedding" not in type(model.modules[event.name]).__name__
        ):
            continue
        weight = model.parameters(model.modules[event.name]).get("weight")
        made = rows(event.outputs[0], n) if event.outputs else None
        if weight is None or made is None or made.shape[1] != weight.shape[1]:
            continue
        first = next(
            (i for i in range(4) if i + n <= len(weight) and off(weight[i : i + n], made) == 0),
            None,
        )
        if first is None:
            raise Unmatched("%s: its rows differ from the rows of the positions" % event.name)
        value = builder.add(builder.values["h"] + made, "placed")
        entry = {
            "name": event.name,
            "class": type(model.modules[event.name]).__name__,
            "op": "positions",
            "in": ["h"],
            "out": value,
            "weight": [model.names.size(len(weight)), model.names.size(weight.shape[1], ("D",))],
        }
        if first:
            entry["attr"] = {"offset": first}
        builder.entries.append(entry)


def head_name(model):
    head = model.small.model.get_output_embeddings()
    return next(k for k, m in model.modules.items() if m is head)


def build_after(model, layers):
    """Returns the entries after the layers, and the rule of the logits."""
    events, n, head = model.trace.events, model.n_tokens, head_name(model)
    last = "%s.%d" % (layers, model.names.values["L"] - 1)
    leave = max(i for i, e in enumerate(events) if e.name == last)
    builder = Builder(model, "", {"h": rows(events[leave].outputs[0], n)})
    builder.shown = {p for name in (layers, head) for p in _parents(name)}
    builder.walk([e for e in events[leave + 1 :] if e.kind == "leave"])
    made = rows(
        next(e for e in events[leave:] if e.name == head and e.kind == "leave").outputs[0], n
    )
    for entry in builder.entries:
        if entry.get("name") == head:
            entry["out"], entry["tied"] = "logits", model.embedding
            entry["weight"] = [model.names.size(made.shape[1], ("V",)), entry["weight"][1]]
    return builder, _logits(builder, made, model.trace.output)


def _parents(name):
    parts = name.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts))}


def _logits(builder, made, logits):
    """Returns "logits" of a template: the rule that makes the logits from the output of the
    head."""
    if off(made, logits) < CLOSE:
        return None
    factor = float((made * logits).sum() / (made * made).sum())
    if off(made * factor, logits) < CLOSE:
        by = builder.model.names.number(1 / factor)
        return {"divide": by}
    for cap in builder.model.caps:
        if off(cap * numpy.tanh(made / cap), logits) < 1e-4:
            return {"cap": builder.model.names.number(cap)}
    builder.faults.append(
        "logits: not a multiple of the output of %s, and not c tanh(output / c)"
        % head_name(builder.model)
    )
    return None


def not_examined(full):
    """Returns texts about settings that the small model does not have. full: the configuration of
    the user's model."""
    groups, chosen = full.get("n_group") or 1, full.get("topk_group") or 1
    if groups > 1 and chosen < groups:
        return ["n_group is %d: the small model has one group of experts" % groups]
    return []


def assemble(model, architecture):
    """Returns the Result for a model."""
    layers = find_layers(model)
    before, n = build_before(model, layers), model.names.values["L"]
    built = [build_layer(model, "%s.%d" % (layers, i)) for i in range(n)]
    after, logits = build_after(model, layers)
    faults = [f for b in (before, *built, after) for f in b.faults]
    windows, flags, rows_ = [b.window for b in built], {}, {}
    kinds = [b.grouped() for b in built]
    template = {"architectures": [architecture]}
    if any(windows):
        rule = window_rule(windows, model.names.number(max(windows)), model.lists(), model.numbers)
        if rule is None or len({w for w in windows if w}) > 1:
            faults.append("the windows of the layers, %s, follow no rule of templates" % windows)
        else:
            rows_["window"] = rule
        for kind in kinds:
            for entry in _all(kind):
                if entry.get("op") == "attention":
                    entry["attr"]["sliding_window"] = "window"

    def rule_of(chosen):
        if any(windows) and chosen == [w > 0 for w in windows]:
            return 0, "sliding"
        if all(chosen) or not any(chosen):
            return None
        return layer_rule(chosen, model.lists(), model.numbers, model.small.raw)

    faults += not_examined(model.small.full)
    nodes = join_kinds(kinds, rule_of, flags)
    if nodes is None:
        faults.append(
            "the layers differ, and no rule of templates tells which layer is of which kind"
        )
        nodes = kinds[0]
    template.update(_keys(model))
    template["dims"] = {k: v for k, v in model.names.dims.items() if not isinstance(v, int)}
    if flags:
        template["flags"] = flags
    template.update(rows_)
    if logits:
        template["logits"] = logits
    template["head"] = head_name(model)
    template["before"] = before.entries
    kind = type(model.modules[layers + ".0"]).__name__
    template["layer"] = {"name": layers + ".{i}", "class": kind, "repeat": "L", "nodes": nodes}
    template["after"] = after.entries
    return Result(template, faults)


def _all(entries):
    for entry in entries:
        yield entry
        for key in ("nodes", "else"):
            yield from _all(entry.get(key, ()))


def _keys(model):
    """Returns "defaults" and "nulls" for the keys that the template reads."""
    defaults, nulls, names = {}, {}, model.names
    symbols = {key: s for s, key in names.dims.items() if s in NULLS and key != names.dims["H"]}
    for key in sorted(
        names.used | {names.dims.get("max_position_embeddings", "max_position_embeddings")}
    ):
        if key in model.small.keys.values() and key not in symbols:
            continue
        for table, given in ((defaults, False), (nulls, True)):
            value = model.small.default(key, given)
            rule = NULLS.get(symbols.get(key))
            if rule and (value is None or (given and _same(value, rule, names))):
                table[key] = _spelled(rule, names)
            elif rule and _same(value, rule, names):
                table[key] = _spelled(rule, names)
            elif value is None:
                if "window" in key or "cap" in key:
                    table[key] = 0
            elif isinstance(value, (bool, int, float, str)) and not (
                given and key not in model.small.raw
            ):
                table[key] = value
    defaults.update(model.made_keys)
    return {k: v for k, v in (("defaults", defaults), ("nulls", nulls)) if v}


def _same(value, rule, names):
    return value == evaluate(rule, names.values.__getitem__)


def _spelled(rule, names):
    return "/".join(names.dims[part] for part in rule.split("/"))
