"""_sizes.py - checks the sizes of a template against those of the user's model. Plain Python."""

from ._names import evaluate


def _entries(entries, prefix):
    """Yields (name, entry) of all entries, and of those inside of others."""
    for entry in entries:
        if "name" in entry:
            yield prefix + entry["name"], entry
        inner = prefix + entry["name"] + "." if "name" in entry and "repeat" in entry else prefix
        for key in ("nodes", "else"):
            yield from _entries(entry.get(key, ()), inner)


def values_of(template, config):
    """Returns a function that gives the value of a name of a template. config: the flat members of
    config.json, with the defaults of its class."""
    dims, defaults = template.get("dims", {}), template.get("defaults", {})
    nulls = template.get("nulls", {})

    def value(name):
        if name in dims and dims[name] != name:
            return evaluate(dims[name], value)
        found = config.get(name)
        if found is None:
            found = (nulls if name in config else defaults).get(name)
        return evaluate(found, value) if isinstance(found, str) else found

    return value


def stored_shape(name, entry, shapes, base):
    """Returns the shape of the weight of an entry in the model; None: it has another name there. Of
    a tensor with the rows of gate and up, or with other rows, the returned shape has the number of
    columns, and None as the number of rows."""
    part = entry.get("part")
    if not part:
        return shapes.get(name.replace("{e}", "0") + ".weight")
    shape = shapes.get(base + part["weight"])
    if shape is None:
        return None
    shape = list(shape[1:] if "at" in part else shape)
    shape = shape[::-1] if part.get("transposed") else shape
    return [None, *shape[1:]] if "at" in part else shape


def wrong_sizes(template, config, shapes):
    """Returns texts on weights whose size in the model is not that of the template.

    shapes: {name of a parameter: list}."""
    value, wrong = values_of(template, config), []
    spans = [("", template["before"]), ("", template["after"])]
    layer = template["layer"]
    for i in range(int(value("L"))):
        spans.append((layer["name"].replace("{i}", str(i)) + ".", layer["nodes"]))
    for base, entries in spans:
        for name, entry in _entries(entries, base):
            shape = stored_shape(name, entry, shapes, base) if "weight" in entry else None
            if shape is None:
                continue
            wanted = [int(evaluate(size, value)) for size in entry["weight"]]
            if any(n is not None and n != size for n, size in zip(shape, wanted)):
                wrong.append(
                    "%s.weight is %s in the model, and %s by the template, %s"
                    % (name, shape, wanted, entry["weight"])
                )
    return wrong
