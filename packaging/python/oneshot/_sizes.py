"""_sizes.py - compares the sizes of a template with those of the user's model. Plain Python."""

from ._names import evaluate


def _entries(entries, prefix):
    """Yields (name, entry) for all entries, also for entries inside other entries."""
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
    """Returns the shape of an entry's weight in the model; None: the weight has another name there.
    If the tensor also has other rows, such as those of gate and up, the number of rows is None."""
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
    """Returns texts about weights whose sizes in the model and in the template differ.

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
