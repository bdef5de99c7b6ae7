"""_names.py - finds expressions of a template for the sizes, constants and layers of a model, and
evaluates and prints templates. Plain Python."""

import json
import math

CLOSE = 2e-5  # relative difference of a constant that was found from f32 values

# Expressions for the sizes of weights. If several of them equal a size, the first is used.
SHAPES = (
    "D",
    "F",
    "Fe",
    "Fs",
    "V",
    "H*Dh",
    "K*Dh",
    "H*Dh+K*Dh+K*Dh",
    "D+K*Dh+K*Dh",
    "F+F",
    "Fe+Fe",
    "Fs+Fs",
    "3*D",
    "4*D",
    "D+D",
    "E",
    "Dh",
    "H",
    "K",
    "H*Dh+K*Dh",
    "D+K*Dh",
    "H/K*Dh",
    "H/K*Dh+Dh",
    "H/K*Dh+Dh+Dh",
)


def evaluate(expression, value):
    """Returns the value of an expression of a template. value: a function of a name."""
    total = 0.0
    for term, sign in _split(str(expression), "+-"):
        product = 1.0
        for factor, how in _split(term, "*/"):
            name = factor[5:-1] if factor.startswith("sqrt(") else factor
            number = float(name) if name[0].isdigit() else float(value(name))
            number = math.sqrt(number) if name is not factor else number
            product = product * number if how == "*" else product / number
        total += product if sign == "+" else -product
    return total


def _split(text, signs):
    """Yields (part, sign) for each part of a text between signs. sign: the sign before the part."""
    part, sign = "", signs[0]
    for c in text:
        if c in signs:
            yield part, sign
            part, sign = "", c
        else:
            part += c
    yield part, sign


class Names:
    """The names of one model.
    dims: {symbol: key or expression}
    numbers: {key: value} of the small model
    used: collects the keys that the template needs"""

    def __init__(self, keys, numbers, changed=()):
        self.numbers, self.changed, self.used = numbers, set(changed), set()
        self.dims = dict(keys)
        if "Dh" not in self.dims:
            self.dims["Dh"] = "%s/%s" % (keys["D"], keys["H"])
        if "K" not in self.dims:
            self.dims["K"] = keys["H"]
        if "max_position_embeddings" not in numbers:
            longest = [
                k for k in ("n_positions", "seq_length", "max_seq_len", "n_ctx") if k in numbers
            ]
            if longest:
                self.dims["max_position_embeddings"] = longest[0]
        self.values = {symbol: int(evaluate(of, self._key)) for symbol, of in self.dims.items()}
        for of in self.dims.values():
            self.used.update(of.split("/"))
        self.sizes = {}
        for shape in SHAPES:
            try:
                self.sizes.setdefault(evaluate(shape, self.values.__getitem__), shape)
            except KeyError:  # a size that this model does not have
                continue

    def _key(self, name):
        return self.numbers[name]

    def use(self, key):
        self.used.add(key)
        return key

    def size(self, n, preferred=()):
        """Returns an expression for a size, or the number itself."""
        for shape in preferred:
            if evaluate(shape, self.values.__getitem__) == n:
                return shape
        for key, value in self.numbers.items():  # all shared experts together are one MLP
            if "shared" in key and value > 1 and n == value * self.values.get("Fe", 0):
                return "Fe*%s" % self.use(key)
        if n in self.sizes:
            return self.sizes[n]
        for key, value in self.numbers.items():
            if value == n and n > 8:
                return self.use(key)
        return int(n)

    def number(self, x):
        """Returns an expression for a constant, or the number itself."""
        forms = (
            ("%s", lambda v: v),
            ("1/%s", lambda v: 1 / v),
            ("sqrt(%s)", math.sqrt),
            ("1/sqrt(%s)", lambda v: 1 / math.sqrt(v)),
        )
        near = lambda v: abs(v - x) <= CLOSE * abs(x)
        sizes = set(self.dims.values())
        order = sorted(set(self.numbers) - sizes, key=lambda key: (key not in self.changed, key))
        for text, function in forms:
            for symbol in ("D", "Dh"):
                if "sqrt" in text and near(function(self.values[symbol])):
                    return text % symbol
            for key in order:
                value = self.numbers[key]
                if value > 0 and value != 1 and near(function(value)):
                    return text % self.use(key)
        for key in order:  # MiniCPM divides a factor by the square root of the number of layers
            value = self.numbers[key]
            if value > 0 and near(value / math.sqrt(self.values["L"])):
                return "%s/sqrt(L)" % self.use(key)
        return float("%.6g" % x)


def layer_rule(chosen, lists, numbers, raw):
    """Returns (rank, row of "flags") for a row that is true exactly for the chosen layers of a
    model, or None. Rows with a low rank depend more on config.json, and are preferred.

    chosen: a bool for each layer; lists: {key: list with an item per layer}; numbers: {key: whole
    number}; raw: the keys that config.json has."""
    n = len(chosen)
    for key, items in lists.items():
        words = {x for x, yes in zip(items, chosen) if yes}
        if all((x in words) == yes for x, yes in zip(items, chosen)):
            row = {"list": key}
            if isinstance(items[0], str):
                row["is"] = sorted(words)[0] if len(words) == 1 else sorted(words)
            elif any(bool(x) != yes for x, yes in zip(items, chosen)):
                continue
            if key not in raw:
                row.update(_every(chosen, numbers) or {})
            return 0, row
    first = chosen.index(True) if True in chosen else n
    later = chosen == [i >= first for i in range(n)] and 0 < first < n
    if later:
        for key, value in numbers.items():
            if value == first and "dense" in key:
                return 1, {"from": key}
    row = _every(chosen, numbers)
    if row:
        return 2 + isinstance(row["every"], int), {"list": "layers_of_template", **row}
    return (4, {"from": first}) if later else None


def _every(chosen, numbers):
    """Returns {"every": n} if the layers that are not chosen are the multiples of n (the first
    layer is 1)."""
    others = [i + 1 for i, yes in enumerate(chosen) if not yes]
    for n in range(2, len(chosen) + 1):
        if others == list(range(n, len(chosen) + 1, n)):
            keys = [
                k
                for k, v in numbers.items()
                if v == n and ("pattern" in k or "step" in k or "every" in k)
            ]
            return {"every": keys[0] if keys else n}
    return None


def window_rule(windows, size, lists, numbers):
    """Returns "window" of a template. windows: the window of each layer, 0 for none; size: the
    expression for the window."""
    slides = [w > 0 for w in windows]
    if all(slides):
        return {"size": size}
    row = {"size": size}
    words = ["sliding_attention" if yes else "full_attention" for yes in slides]
    keys = [key for key, items in lists.items() if list(items) == words]
    if keys:
        row["layers"] = keys[0]
    row.update(_every(slides, numbers) or {})
    if len(row) == 1:
        for first in range(1, len(slides)):
            if slides == [i >= first for i in range(len(slides))]:
                named = [k for k, v in numbers.items() if v == first and "window" in k]
                row["from"] = named[0] if named else first
    return row if len(row) > 1 else None


def join_kinds(kinds, rule_of, flags):
    """Joins the entries of layers of several kinds to one list. Returns None if no flags
    distinguish the kinds. Adds new rows to `flags`.

    kinds: a list of entries for each layer
    rule_of: a function of a list of bools; it returns None, or (rank, name of a flag or a new
    row)"""
    texts = [json.dumps(k, sort_keys=True) for k in kinds]
    if len(set(texts)) == 1:
        return kinds[0]
    found = []
    for text in sorted(set(texts), key=texts.index):
        chosen = [t == text for t in texts]
        for negated in (False, True):
            rule = rule_of([yes != negated for yes in chosen])
            if rule:
                found.append((rule[0], negated, len(found), rule[1], chosen))
    for _, negated, _, row, chosen in sorted(found, key=lambda f: f[:3]):
        this = [k for k, yes in zip(kinds, chosen) if yes][0]
        rest = [k for k, yes in zip(kinds, chosen) if not yes]
        # _branch separates the chosen layers from the other layers by an "if". So join_kinds gets
        # only the kinds of the other layers: the first of these kinds takes the place of the kind
        # of each chosen layer.
        joined = join_kinds(
            [rest[0] if yes else k for k, yes in zip(kinds, chosen)], rule_of, flags
        )
        if joined is None:
            continue
        name = (
            row
            if isinstance(row, str)
            else next((k for k, v in flags.items() if v == row), "kind%d" % (len(flags) + 1))
        )
        if not isinstance(row, str):
            flags[name] = row
        return _branch(name, *((joined, this) if negated else (this, joined)))
    return None


def _branch(flag, yes, no):
    """Joins two lists of entries. The entries that differ are inside an "if"."""
    begin = 0
    while begin < min(len(yes), len(no)) and yes[begin] == no[begin]:
        begin += 1
    end = 0
    while end < min(len(yes), len(no)) - begin and yes[-1 - end] == no[-1 - end]:
        end += 1
    middle = {"if": flag, "nodes": yes[begin : len(yes) - end]}
    other = no[begin : len(no) - end]
    if other:
        middle["else"] = other
    return yes[:begin] + [middle] + yes[len(yes) - end :]


def print_template(template):
    """Returns the text of a template, with one line for each entry."""
    lines = []
    for key, value in template.items():
        if key in ("before", "after"):
            lines.append('  "%s": [\n%s\n  ]' % (key, _entries(value, 4)))
        elif key == "layer":
            head = {k: v for k, v in value.items() if k != "nodes"}
            lines.append(
                '  "layer": %s, "nodes": [\n%s\n  ]}'
                % (json.dumps(head)[:-1], _entries(value["nodes"], 4))
            )
        else:
            lines.append('  "%s": %s' % (key, json.dumps(value)))
    return "{\n%s\n}\n" % ",\n".join(lines)


def _entries(entries, indent):
    lines = []
    for entry in entries:
        if "nodes" not in entry:
            lines.append(" " * indent + json.dumps(entry))
            continue
        head = {k: v for k, v in entry.items() if k not in ("nodes", "else")}
        text = '%s%s, "nodes": [\n%s\n%s]' % (
            " " * indent,
            json.dumps(head)[:-1],
            _entries(entry["nodes"], indent + 2),
            " " * indent,
        )
        if "else" in entry:
            text += ', "else": [\n%s\n%s]' % (_entries(entry["else"], indent + 2), " " * indent)
        lines.append(text + "}")
    return ",\n".join(lines)
