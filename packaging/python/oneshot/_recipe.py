"""_recipe.py - writes a caller's recipe or rows to a file for liboneshot. For messages, it knows
the caller's name for each line of the file.

A recipe is text, dicts, or objects with model_dump(), such as LLM Compressor's modifiers. Objects
are read without an import of LLM Compressor. The file has stages, like the files that LLM
Compressor writes.
"""

import enum
import json
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

WANTED = (
    "want a path, YAML text, a dict such as {'GPTQModifier': {...}}, a modifier, or a list of these"
)
BARE = re.compile(
    r"^[\"']?\w+Modifier[\"']?[ \t]*:([ \t]|$)", re.M
)  # a modifier outside of a stage
INDENT = 4


class Written:
    """A file that was written for the library. label(line, column) returns the caller's name for a
    position in the file."""

    def __init__(
        self, path: str, text: str, label: Callable[[Optional[int], Optional[int]], str]
    ) -> None:
        self.path, self.label = path, label
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


class Shown:
    """Translates messages of the library. Positions in written files become the caller's names, and
    flags of the program become arguments."""

    def __init__(self) -> None:
        self.files: List[Written] = []

    def add(self, file: Any) -> Any:
        """Returns the path of `file` if it is a Written. Returns any other value unchanged."""
        if isinstance(file, Written):
            self.files.append(file)
            return file.path
        return file

    def __call__(self, text: str) -> str:
        for file in self.files:
            text = re.sub(
                re.escape(file.path) + r"(?::(\d+)(?::(\d+))?| line (\d+))?",
                lambda m: file.label(*[int(n) if n else None for n in (m[1] or m[3], m[2])]),
                text,
            )
        # A text in backticks is a command of the program, so its flags are not replaced by the
        # names of Python arguments.
        return re.sub(
            r"`[^`]*`|(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)",
            lambda m: argument(m[1]) or m[0],
            text,
        )


def argument(flag: Optional[str]) -> str:
    """Returns the name of the argument that a flag of the program has in Python."""
    return "output_dir" if flag == "output" else (flag or "").replace("-", "_")


class Lines:
    """JSON text with one key, or one item of a list, on each line. labels[n - 1] is the caller's
    name for line n."""

    def __init__(self) -> None:
        self.texts: List[str] = []
        self.labels: List[str] = []

    def put(
        self, value: Any, label: str, dotted: bool = False, head: str = "", tail: str = ""
    ) -> None:
        """Adds a value. If `dotted` is true, the label of a key is .key, as for fields of an
        object."""
        indent = " " * (len(head) - len(head.lstrip(" ")))
        if is_object(value):
            value, dotted = fields(value, label), True
        if not value or not has_containers(value):
            return self.line(head + scalar(value, label) + tail, label)
        rows: Iterable[Tuple[Any, Any]] = (
            value.items() if isinstance(value, dict) else enumerate(value)
        )
        brackets = "{}" if isinstance(value, dict) else "[]"
        self.line(head + brackets[0], label)
        last = len(value) - 1
        for i, (key, item) in enumerate(rows):
            if brackets == "{}" and not isinstance(key, str):
                raise TypeError(
                    "%s: want texts as keys, got %r (%s)" % (label, key, type(key).__name__)
                )
            inner = indent + " " + (quoted(key) + ": " if brackets == "{}" else "")
            name = (
                "%s.%s" % (label, key) if dotted and brackets == "{}" else "%s[%r]" % (label, key)
            )
            self.put(item, name, dotted, inner, "," if i < last else "")
        self.line(indent + brackets[1] + tail, label)

    def line(self, text: str, label: str) -> None:
        self.texts.append(text)
        self.labels.append(label)


def is_object(value: Any) -> bool:
    """Returns true for pydantic models and objects that behave like them."""
    return not isinstance(value, type) and callable(getattr(value, "model_dump", None))


def has_containers(value: Any) -> bool:
    """Returns true if the value takes more than one line."""
    return isinstance(value, dict) or (
        isinstance(value, (list, tuple))
        and any(isinstance(v, (dict, list, tuple)) or is_object(v) for v in value)
    )


def is_dtype(value: Any) -> bool:
    return type(value).__name__ == "dtype" and type(value).__module__.split(".")[0] == "torch"


def is_scalar(value: Any) -> bool:
    return (
        value is None
        or is_dtype(value)
        or isinstance(value, (bool, int, float, str, enum.Enum, os.PathLike))
    )


def quoted(text: str) -> str:
    """Returns the text in double quotes, in a form that JSON and YAML both read. A code point above
    0xFFFF is not escaped, because YAML has no pairs of surrogates."""
    return re.sub(
        "[\x7f-\x9f\u2028\u2029\ufeff]",
        lambda m: "\\u%04x" % ord(m[0]),
        json.dumps(text, ensure_ascii=False),
    )


def scalar(value: Any, label: str) -> str:
    if isinstance(value, (dict, list, tuple)):  # empty, or a list of scalars
        return (
            "{}" if isinstance(value, dict) else "[%s]" % ", ".join(scalar(v, label) for v in value)
        )
    if isinstance(value, enum.Enum):
        return scalar(value.value, label)
    if isinstance(value, os.PathLike):
        return quoted(os.fsdecode(value))
    if is_dtype(value):
        return quoted(str(value))
    if isinstance(value, str):
        return quoted(value)
    if is_scalar(value):
        return json.dumps(value)
    raise TypeError(
        "%s: want a number, a text, a list or a dict, got %r (%s)"
        % (label, value, type(value).__name__)
    )


def is_writable(value: Any) -> bool:
    return is_scalar(value) or isinstance(value, (dict, list, tuple)) or is_object(value)


def fields(value: Any, label: str) -> Dict[str, Any]:
    """Returns the fields of an object that belong into a recipe. Leaves out fields whose names end
    in _, because these are state of a run. Also leaves out fields that have a sentinel as default,
    even if the dump has a string for the sentinel. (With a sentinel, LLM Compressor distinguishes
    the default actorder `static` from `static` in a recipe.)"""
    known = getattr(type(value), "model_fields", {})
    found = {}
    for key, item in value.model_dump().items():
        own = getattr(value, key, item)
        is_default = getattr(known.get(key), "default", None) is own
        if not key.endswith("_") and (is_writable(own) or not is_default):
            found[key] = item
    return found


def modifiers(recipe: Any, label: str) -> List[Tuple[str, Any, str]]:
    """Returns name, fields and label of each modifier."""
    if isinstance(recipe, (list, tuple)):
        return [
            row for i, item in enumerate(recipe) for row in modifiers(item, "%s[%d]" % (label, i))
        ]
    if isinstance(recipe, dict):
        return named_modifiers(recipe, label)
    if is_object(recipe) and isinstance(
        getattr(recipe, "modifiers", None), (list, tuple)
    ):  # LLM Compressor's Recipe
        return modifiers(recipe.modifiers, label + ".modifiers")
    if is_object(recipe):
        return [(type(recipe).__name__, recipe, label)]
    raise TypeError("%s: %s, got %r (%s)" % (label, WANTED, recipe, type(recipe).__name__))


def named_modifiers(recipe: Dict[str, Any], label: str) -> List[Tuple[str, Any, str]]:
    if isinstance(recipe.get("type"), str):
        body = {key: value for key, value in recipe.items() if key != "type"}
        return [(recipe["type"], body, label)]
    for key, value in recipe.items():
        if value is not None and not isinstance(value, dict) and not is_object(value):
            raise ValueError(
                "%s: the key %r has %r, want the name of a modifier and the dict of its fields, "
                "such as {'GPTQModifier': %s}" % (label, key, value, "{%r: %r, ...}" % (key, value))
            )
    return [(key, value, "%s[%r]" % (label, key)) for key, value in recipe.items()]


def has_stages(recipe: Any) -> bool:
    return isinstance(recipe, dict) and any(
        str(key).endswith(("_stage", "_modifiers")) for key in recipe
    )


def lines_of(recipe: Any) -> Lines:
    lines = Lines()
    if has_stages(recipe):
        lines.put(recipe, "recipe")
        return lines
    rows = modifiers(recipe, "recipe")
    if not rows:
        raise ValueError("recipe: want at least one modifier, got %r" % (recipe,))
    groups: List[Dict[str, Tuple[Any, str]]] = [{}]  # a map has each name once
    for name, body, label in rows:
        if name in groups[-1]:
            groups.append({})
        groups[-1][name] = (body, label)
    lines.line('{"default_stage": {', "recipe")
    for i, group in enumerate(groups):
        lines.line(' "%s_modifiers": {' % ("default" if not i else "default_%d" % i), "recipe")
        for k, (name, (body, label)) in enumerate(group.items()):
            lines.put(
                body, label, False, "  %s: " % quoted(name), "," if k < len(group) - 1 else ""
            )
        lines.line(" }" + ("," if i < len(groups) - 1 else ""), "recipe")
    lines.line("}}", "recipe")
    return lines


def write_text(text: str, path: str) -> Written:
    """Writes YAML text. Modifiers outside of a stage get one, and are indented."""
    first = next(
        (line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")),
        "",
    )
    above = bool(BARE.match(first)) * 2  # lines
    if above:
        text = "default_stage:\n  default_modifiers:\n" + re.sub(
            "^", " " * INDENT, text, flags=re.M
        )

    def label(line: Optional[int], column: Optional[int]) -> str:
        if line is None:
            return "recipe"
        column = column and max(1, column - (INDENT if above else 0))
        return "recipe, line %d" % max(1, line - above) + (", column %d" % column if column else "")

    return Written(path, text, label)


def is_text(recipe: str) -> bool:
    """Returns true for YAML, false for the path of a file."""
    return "\n" in recipe or (
        bool(re.search(r":(\s|$)|^\s*[{\[]", recipe)) and not os.path.exists(recipe)
    )


def write_recipe(recipe: Any, path: str) -> Union[None, str, os.PathLike, Written]:
    """Returns the path of the recipe if it is a file. Otherwise writes the recipe to `path`."""
    if (
        recipe is None
        or isinstance(recipe, os.PathLike)
        or (isinstance(recipe, str) and not is_text(recipe))
    ):
        return recipe
    if isinstance(recipe, str):
        return write_text(recipe, path)
    lines = lines_of(recipe)
    return Written(
        path,
        "\n".join(lines.texts) + "\n",
        lambda line, column: (
            lines.labels[line - 1] if line and line <= len(lines.labels) else "recipe"
        ),
    )


def write_rows(dataset: Any, path: str) -> Union[None, str, os.PathLike, Written]:
    """Returns the path of the data if they are a file. Otherwise writes the rows to `path`."""
    if dataset is None or isinstance(dataset, (str, os.PathLike)):
        return dataset
    wanted = "want a text or a dict with values of JSON"
    texts = []
    try:
        rows = enumerate(dataset)
    except TypeError:
        raise TypeError(
            "dataset: want a path, or texts or dicts as rows, got %r (%s)"
            % (dataset, type(dataset).__name__)
        ) from None
    for i, row in rows:
        try:
            texts.append(json.dumps({"text": row} if isinstance(row, str) else dict(row)) + "\n")
        except (TypeError, ValueError) as e:
            raise TypeError("dataset[%d]: %s, got %.80r: %s" % (i, wanted, row, e)) from None
    return Written(
        path, "".join(texts), lambda line, column: "dataset[%d]" % (line - 1) if line else "dataset"
    )
