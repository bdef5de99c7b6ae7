#!/usr/bin/env python3
"""check_layers.py - fails if a file of src/ includes or calls a directory with a higher or an equal
rank.

src/LAYERS gives each directory a rank. A file may include headers of its own directory and of
directories with a lower rank; cli may include only base and api. Included files must exist.

With --objects, the rules also apply to calls. The script finds the calls by the symbols in the
object files of the build directory (nm). At most three files of a directory may call each other in
a cycle. Only functions count; tables of rows do not.

No string of another directory may be the name of a modifier, an observer, a format or a method of
quantized sources. So an addition needs only a file and a row of the table. Only gpu, ops and solver
may name functions of CUDA (OSH_CUDA, osh_*cuda*, osh_gpu_*). Other directories use the tables of
devices (src/tensor/device.h, src/gpu/gpu.h).
Usage: check_layers.py [source folder] [--objects BUILD]"""
import argparse
import pathlib
import re
import subprocess
import sys

PARSER = argparse.ArgumentParser()
PARSER.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent)
PARSER.add_argument("--objects")
ARGS = PARSER.parse_args()
ROOT = pathlib.Path(ARGS.root)
SRC = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
MOST_IN_CIRCLE = 3
STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"((?:[^"\\]|\\.)*)"', re.S)
OTHER_WORDS = {"mse", "entropy", "dense"}  # names of rows that are also ordinary words
CUDA = re.compile(r"\b(?:OSH_CUDA\w*|osh_\w*cuda\w*|osh_gpu_(?!model)\w+)")
KNOW_CUDA = {"gpu", "ops", "solver"}
PUBLIC_ONLY = {"cli": {"cli", "base", "api"}}  # the command line uses only the jobs


def ranks():
    table = {}
    for line in (SRC / "LAYERS").read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            table[words[0]] = int(words[1])
    return table


def check_file(path, rank, wrong):
    folder = path.relative_to(SRC).parts[0]
    here = path.relative_to(ROOT)
    for name in INCLUDE.findall(path.read_text()):
        target = name.split("/")[0]
        if (ROOT / "include" / name).exists():
            continue
        if not (SRC / name).exists():
            wrong.append(f'{here}: "{name}": no such file below src/ (includes are written from src/)')
        elif target == folder:
            continue
        elif rank[target] >= rank[folder]:
            way = "the same rank" if rank[target] == rank[folder] else "a higher rank"
            wrong.append(f'{here}: "{name}": {folder} (rank {rank[folder]}) includes {target} '
                         f"(rank {rank[target]}), which has {way}")
        elif folder in PUBLIC_ONLY and target not in PUBLIC_ONLY[folder]:
            wrong.append(f'{here}: "{name}": {folder} may include only api and base')


def names_of_rows():
    """Returns (directory, kind of row, pattern) for each kind; no string of another directory may
    match the pattern."""
    observers = set(re.findall(r"^OSH_OBSERVER\((\w+)\)", (SRC / "quant/observers.def").read_text(), re.M)) - OTHER_WORDS
    formats = set()
    for path in (SRC / "quant/formats").glob("*.c"):
        formats |= set(re.findall(r'osh_format osh_format_\w+ = {"([^"]+)"', path.read_text()))
    methods = set()
    for path in (SRC / "quant/sources").glob("*.c"):
        for row in re.findall(r"\.methods = {([^}]+)}", path.read_text()):
            methods |= set(re.findall(r'"([^"]+)"', row))
    words = [("quant", "an observer", observers), ("quant", "a format", formats - OTHER_WORDS),
             # Three names of sources are left out, because other directories may use them.
             # "compressed-tensors" is also the format of outputs. "gptq" and "awq" are also methods
             # of compression.
             ("quant", "a source", methods - {"compressed-tensors", "gptq", "awq"})]
    for _, what, names in words:
        if len(names) < 4:
            sys.exit(f"check_layers.py: found {len(names)} names of {what}")
    return [("modifiers", "a modifier", re.compile(r"[A-Z]\w*Modifier\b"))] + [
        (room, what, re.compile("(?:%s)$" % "|".join(map(re.escape, sorted(names))))) for room, what, names in words]


def check_names(path, rows, wrong):
    folder = path.relative_to(SRC).parts[0]
    text = path.read_text()
    for found in STRING.finditer(text):
        for room, what, pattern in rows if found[1] else ():
            use = pattern.search if what == "a modifier" else pattern.match
            if folder != room and use(found[1]):
                line = text.count("\n", 0, found.start()) + 1
                wrong.append(f"{path.relative_to(ROOT)}:{line}: \"{found[1]}\" is the name of {what}: only {room} may use it")


def check_devices(path, wrong):
    here = path.relative_to(SRC)
    if here.parts[0] in KNOW_CUDA or str(here) == "tensor/device.h":  # lists the back ends
        return
    text = path.read_text()
    code = STRING.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in [*CUDA.finditer(code), *re.finditer(r'"\w+/cuda/\w+\.h"', text)]:
        wrong.append(f"{path.relative_to(ROOT)}: {found[0]}: only {', '.join(sorted(KNOW_CUDA))} may name CUDA")


def read_objects(build):
    """Returns {file of src/: (functions that it defines, symbols that it needs)}."""
    objects, names = {}, {}
    for path in sorted(pathlib.Path(build, "CMakeFiles").glob("osh_*.dir/src/**/*.o")):
        name = re.sub(r"^.*?\.dir/src/(.*)\.o$", r"\1", str(path))
        if (SRC / name).exists():  # otherwise the object belongs to a deleted file
            names[str(path)] = objects.setdefault(name, (set(), set()))
    if not names:
        return objects
    for line in subprocess.run(["nm", "-A", *names], capture_output=True, text=True, check=True).stdout.splitlines():
        path, _, symbol = line.partition(":")
        kind, symbol = symbol.split()[-2:]
        if kind in "TW":
            names[path][0].add(symbol)
        elif kind == "U":
            names[path][1].add(symbol)
    return objects


def circles(calls):
    """Returns sets of files that call each other in a cycle (Tarjan), the largest first."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in calls[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            found.append(stack[at:])
            del stack[at:]

    for v in sorted(calls):
        if v not in index:
            visit(v)
    return sorted((c for c in found if len(c) > 1), key=len, reverse=True)


def check_calls(rank, wrong):
    objects = read_objects(ARGS.objects)
    if not objects:
        wrong.append(f"{ARGS.objects}: no object files of src/")
    where = {symbol: name for name, (defines, _) in objects.items() for symbol in defines}
    inside = {name: set() for name in objects}
    for name, (_, wants) in sorted(objects.items()):
        folder = name.split("/")[0]
        for symbol in sorted(wants & where.keys()):
            target = where[symbol].split("/")[0]
            if target == folder:
                inside[name].add(where[symbol])
            elif rank[target] >= rank[folder]:
                wrong.append(f"src/{name} (rank {rank[folder]}) calls {symbol} of src/{where[symbol]} (rank {rank[target]})")
    for circle in circles(inside):
        words = f"{len(circle)} files call each other in a cycle: {' '.join(sorted(circle))}"
        if len(circle) > MOST_IN_CIRCLE:
            wrong.append(words)
        else:
            print(words)


def main():
    rank, wrong, n, rows = ranks(), [], 0, names_of_rows()
    for folder in sorted(p for p in SRC.iterdir() if p.is_dir()):
        if folder.name not in rank:
            wrong.append(f"src/{folder.name}: no rank in src/LAYERS")
    for path in sorted(p for p in SRC.rglob("*") if p.suffix in {".c", ".h", ".def", ".cu", ".cuh"}):
        if path.relative_to(SRC).parts[0] in rank:
            check_file(path, rank, wrong)
            check_names(path, rows, wrong)
            check_devices(path, wrong)
            n += 1
    if ARGS.objects:
        check_calls(rank, wrong)
    print("\n".join(wrong + [f"{n} files, {len(wrong)} wrong"]))
    return 1 if wrong else 0


sys.exit(main())
