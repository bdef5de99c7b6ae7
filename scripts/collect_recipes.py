#!/usr/bin/env python3
"""collect_recipes.py - collects the recipes in a checkout of LLM Compressor: YAML files, YAML in
strings and on pages, and modifiers that examples and tests make in Python. LLM Compressor converts
these modifiers to YAML.

usage: collect_recipes.py CHECKOUT FOLDER      (in an environment with llmcompressor)

FOLDER gets files NNN.yaml, which all differ, and NNN.src, which name their origins, for
scripts/run_recipes.py. Python files are not run. Instead, each assignment to a name that contains
"recipe" is evaluated together with the assignments before it. Assignments that cannot be evaluated
are left out and counted."""
import ast
import importlib
import pathlib
import pkgutil
import re
import sys
import warnings

import compressed_tensors.quantization as quantization
import llmcompressor.modifiers
import torch
from compressed_tensors.quantization import quant_scheme
from llmcompressor.recipe import Recipe


def names():
    """Returns the names that evaluated Python lines may use."""
    known = {"torch": torch}
    for package in pkgutil.walk_packages(llmcompressor.modifiers.__path__, "llmcompressor.modifiers."):
        try:
            module = importlib.import_module(package.name)
        except Exception:  # a package is missing, such as autoround
            continue
        known |= {k: v for k, v in vars(module).items() if k.endswith(("Modifier", "Mapping"))}
    for module in (quantization, quant_scheme):
        known |= {k: v for k, v in vars(module).items() if not k.startswith("_")}
    return known


def evaluated(text, path, known):
    """Yields the recipes of a Python file, or None for a recipe that cannot be evaluated."""
    here = dict(known)
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        wanted = "recipe" in name.lower()
        try:
            value = eval(compile(ast.Expression(node.value), str(path), "eval"), here)
            if wanted and not isinstance(value, str):
                yield Recipe.from_modifiers(value).yaml()
            elif wanted and "Modifier" in value and "_stage" in value:
                yield value
        except Exception:
            if wanted:
                yield None
            continue
        if name not in known:
            here[name] = value


def found(root, known):
    for path in sorted(p for p in root.rglob("*") if p.is_file() and p.suffix in (".py", ".md", ".yaml", ".yml")):
        text, where = path.read_text(errors="replace"), path.relative_to(root)
        python = [text] if path.suffix == ".py" else []
        if path.suffix == ".md":
            python = re.findall(r"```python\n(.*?)```", text, re.S)
            yield from ((where, b) for b in re.findall(r"```ya?ml\n(.*?)```", text, re.S) if "Modifier" in b)
        elif path.suffix != ".py":
            scheme = re.search(r"^scheme: *(\S+)", text, re.M)
            if "Modifier" in text and "_stage" in text:
                yield where, text
            elif scheme and not re.search(r"^recipe: ", text, re.M):  # the YAML file configures a test
                yield where, f"s_stage: {{s_modifiers: {{QuantizationModifier: {{targets: Linear, scheme: {scheme[1]}, ignore: [lm_head]}}}}}}\n"
        for block in python:
            try:
                yield from ((where, recipe) for recipe in evaluated(block, path, known))
            except SyntaxError:  # the code is an excerpt on a page
                continue


def main():
    warnings.filterwarnings("ignore")
    root, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True)
    seen, lost = set(), 0
    for where, recipe in found(root, names()):
        if recipe is None:
            lost += 1
            continue
        key = re.sub(r"\s+", " ", recipe)
        if key in seen:
            continue
        (folder / f"{len(seen):03d}.yaml").write_text(recipe)
        (folder / f"{len(seen):03d}.src").write_text(str(where))
        seen.add(key)
    print(f"{len(seen)} recipes, {lost} not evaluated")


if __name__ == "__main__":
    main()
