"""notebook.py - runs the code cells of a notebook in order, in the notebook's directory, and
compares the text that each cell prints with the output that the notebook contains.

Usage: notebook.py FILE [--write]      --write: puts the outputs into FILE instead"""

import contextlib
import io
import json
import os
import sys


def run_cell(source, names):
    """Returns what the cell prints on stdout."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "cell", "exec"), names)
    return printed.getvalue()


def main():
    path = os.path.abspath(sys.argv[1])
    with open(path, encoding="utf-8") as f:
        notebook = json.load(f)
    os.chdir(os.path.dirname(path))
    names, wrong, n = {"__name__": "__main__"}, 0, 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        n += 1
        printed = run_cell("".join(cell["source"]), names)
        stored = "".join(text for out in cell["outputs"] for text in out["text"])
        cell["outputs"] = (
            [{"name": "stdout", "output_type": "stream", "text": printed.splitlines(True)}]
            if printed
            else []
        )
        if printed != stored:
            wrong += 1
            print("cell %d prints %r, and the notebook has %r" % (n, printed, stored))
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as f:
            f.write(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        return 0
    print("%d cells, %d wrong" % (n, wrong))
    return 1 if wrong or not n else 0


sys.exit(main())
