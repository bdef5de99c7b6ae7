#!/usr/bin/env python3
"""check_layers.py - fails when a file of src/ includes something above it or beside it.

src/LAYERS gives each folder a rank. A file may include headers of its own folder and of folders with a lower rank;
cli may include only base and the public header. Included files must exist.
Usage: check_layers.py [source folder]"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
SRC = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
PUBLIC_ONLY = {"cli": {"cli", "base"}}  # the command line stands on include/oneshot.h


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
            way = "beside it" if rank[target] == rank[folder] else "above it"
            wrong.append(f'{here}: "{name}": {folder} (rank {rank[folder]}) includes {target} '
                         f"(rank {rank[target]}), which is {way}")
        elif folder in PUBLIC_ONLY and target not in PUBLIC_ONLY[folder]:
            wrong.append(f'{here}: "{name}": {folder} may include only oneshot.h and base')


def main():
    rank, wrong, n = ranks(), [], 0
    for folder in sorted(p for p in SRC.iterdir() if p.is_dir()):
        if folder.name not in rank:
            wrong.append(f"src/{folder.name}: no rank in src/LAYERS")
    for path in sorted(p for p in SRC.rglob("*") if p.suffix in {".c", ".h", ".def", ".cu", ".cuh"}):
        if path.relative_to(SRC).parts[0] in rank:
            check_file(path, rank, wrong)
            n += 1
    print("\n".join(wrong + [f"{n} files, {len(wrong)} wrong includes"]))
    return 1 if wrong else 0


sys.exit(main())
