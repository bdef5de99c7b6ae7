#!/usr/bin/env python3
"""apply_page.py - applies the additions of a page of docs/ to a copy of the tree, and builds it
with the objects of a finished build.

A block ```diff changes the file that its line +++ names. Without a line ---, the file is new. A
line "..." divides hunks. The lines of a hunk that begin with " " or "-" must occur in the file
exactly once, one after the other.

Changed C files, and files that include a changed .def, are compiled with the flags of other files
in their directory. They are linked before the libraries into build/release/oneshot, and into each
build/release/tests/NAME that the page names.

Usage: apply_page.py PAGE BUILD
Run the script in the copy, which has src/, include/, models/ and tests/ of BUILD's tree.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

BLOCK = re.compile(r"^```diff\n(.*?)^```$", re.M | re.S)
HERE = pathlib.Path.cwd()


def change(text):
    """Applies one block of a page. Returns the changed file."""
    lines = text.splitlines()
    old = lines.pop(0)[6:] if lines[0].startswith("--- a/") else None
    name = lines.pop(0)
    if not name.startswith("+++ b/"):
        sys.exit(f"a block without '+++ b/FILE': {name}")
    path = HERE / name[6:]
    if old is None:
        if path.exists() or any(not x.startswith("+") for x in lines):
            sys.exit(f"{name[6:]} is there already, or has lines without +")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(x[1:] + "\n" for x in lines))
        return path
    all_lines = path.read_text().split("\n")
    for hunk in re.split(r"^\.\.\.$", "\n".join(lines), flags=re.M):
        hunk = [x for x in hunk.split("\n") if x]
        before, after = [x[1:] for x in hunk if x[0] in " -"], [x[1:] for x in hunk if x[0] in " +"]
        at = [i for i in range(len(all_lines)) if all_lines[i:i + len(before)] == before]
        if len(at) != 1:
            sys.exit(f"{old}: these lines stand there {len(at)} times:\n" + "\n".join(before))
        all_lines[at[0]:at[0] + len(before)] = after
    path.write_text("\n".join(all_lines))
    return path


def to_compile(changed):
    """Returns the C files whose objects change. An addition to a header changes no existing object,
    so files that include the header are not compiled again."""
    tables = [p.relative_to(HERE / "src").as_posix() for p in changed if p.suffix == ".def"]
    found = {p for p in changed if p.suffix == ".c"}
    for path in (HERE / "src").rglob("*.c") if tables else ():
        text = path.read_text()
        if any(f'#include "{t}"' in text for t in tables):
            found.add(path)
    return sorted(found)


def main():
    page, build = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), pathlib.Path(sys.argv[2])
    source = pathlib.Path(os.environ["OSH_SOURCE_DIR"])
    commands = {pathlib.Path(c["file"]): c for c in json.loads((build / "compile_commands.json").read_text())
                if "-DOSH_PLAY" not in c["command"]}  # tests/play compiles src/ops a second time
    changed = [change(b) for b in BLOCK.findall(page)]
    out = HERE / "build/release"
    (out / "tests").mkdir(parents=True)
    objects, of_test = [], {}
    for path in to_compile(changed):
        was = source / path.relative_to(HERE)
        neighbour = was if was in commands else next(c for c in sorted(commands) if c.parent == was.parent or
                                                     c.parent == was.parent.parent)
        args = shlex.split(commands[neighbour]["command"])
        for top in ("src", "include", "tests"):
            args = [a.replace(f"-I{source}/{top}", f"-I{HERE}/{top}") for a in args]
        to = out / (path.stem + ".o")
        args[args.index("-o") + 1], args[args.index("-c") + 1] = str(to), str(path)
        subprocess.run(args, check=True)
        if path.is_relative_to(HERE / "tests"):
            of_test[path.stem] = to
        else:
            objects.append(str(to))
    names = ["oneshot"] + sorted(set(re.findall(r"build/release/(tests/test_\w+)", page)))
    for name in names if objects or of_test else ():
        target = pathlib.Path(name).name
        lines = subprocess.run(["ninja", "-C", str(build), "-t", "commands", target], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.splitlines()
        link = shlex.split(lines[-1].removeprefix(": && ").removesuffix(" && :"))
        link[link.index("-o") + 1] = str(out / name)
        if target in of_test:
            link = [str(of_test[target]) if a.endswith(f"/{target}.c.o") else a for a in link]
        at = link.index("-o")
        subprocess.run(link[:at] + objects + link[at:], check=True, cwd=build)
    print(f"{len(changed)} files changed, {len(objects) + len(of_test)} compiled")


main()
