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


def wrong_sizes(template, config, shapes):
    """Returns texts on weights whose size in the model is not that of the template.

    shapes: {name of a parameter: list}. Weights that are parts of tensors are left out."""
    value, wrong = values_of(template, config), []
    spans = [_entries(template["before"], ""), _entries(template["after"], "")]
    layer = template["layer"]
    for i in range(int(value("L"))):
        spans.append(_entries(layer["nodes"], layer["name"].replace("{i}", str(i)) + "."))
    for span in spans:
        for name, entry in span:
            shape = shapes.get(name + ".weight")
            if "weight" not in entry or shape is None or "part" in entry:
                continue
            wanted = [int(evaluate(size, value)) for size in entry["weight"]]
            if wanted != list(shape):
                wrong.append(
                    "%s.weight is %s in the model, and %s by the template, %s"
                    % (name, shape, wanted, entry["weight"])
                )
    return wrong
