"""comments.py - finds the comments of C, shell, CMake and Python files, for scripts/lint.py.

Kinds of comments: the text between /* and */, consecutive lines that begin with // or #, a comment
after code, a Python docstring. Strings and here-documents have no comments."""
import ast
import re
import tokenize

C = re.compile(r"""/\*(.*?)\*/|//([^\n]*(?:\n[ \t]*//[^\n]*)*)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
CMAKE = re.compile(r'\[(=*)\[.*?\]\1\]|"(?:\\.|[^"\\])*"|#[^\n]*', re.S)
HERE = re.compile(r"""<<(-?)[ \t]*(["']?)(\w+)\2""")


def c_comments(text):
    for m in C.finditer(text):
        words = m[1] or m[2]
        if words is not None:
            yield text.count("\n", 0, m.start()) + 1, words


def skip_here(text, at, words):
    """Returns the position of the newline before the first line after the here-documents."""
    for word, indented in words:
        end = re.compile(r"\n%s%s(?=\n|$)" % (r"\t*" if indented else "", re.escape(word)))
        m = end.search(text, at)
        at = m.end() if m else len(text)
    return at


def shell_spans(text):
    """Yields (start, end) of each # comment. `open_` has the open quotes and brackets."""
    at, open_, here = 0, [], []
    while at < len(text):
        c, inner = text[at], open_[-1] if open_ else ""
        if inner == "'":
            if c == "'":
                open_.pop()
        elif c == "\\":
            at += 1
        elif inner and c == {'"': '"', "(": ")", "{": "}"}[inner]:
            open_.pop()
        elif text.startswith("$((", at) and "))" in text[at:]:
            at = text.index("))", at) + 1
        elif text.startswith(("$(", "${"), at):
            open_.append(text[at + 1])
            at += 1
        elif inner == '"':
            pass
        elif c == '"' or c == "'" and inner != "{" or c == "(" and inner != "{":
            open_.append(c)
        elif text.startswith("<<<", at):
            at += 2
        elif HERE.match(text, at):
            m = HERE.match(text, at)
            here.append((m[3], m[1]))
            at = m.end() - 1
        elif c == "#" and inner != "{" and (at == 0 or text[at - 1] in " \t\n;("):
            end = text.find("\n", at) if "\n" in text[at:] else len(text)
            yield at, end
            at = end - 1
        elif c == "\n" and here:
            at, here = skip_here(text, at, here) - 1, []
        at += 1


def cmake_spans(text):
    for m in CMAKE.finditer(text):
        if m[0][0] == "#":
            yield m.span()


def python_spans(text):
    starts = [0]
    for line in text.splitlines(True):
        starts.append(starts[-1] + len(line))
    lines = iter(text.splitlines(True))
    for t in tokenize.generate_tokens(lambda: next(lines, "")):
        if t.type == tokenize.COMMENT:
            yield starts[t.start[0] - 1] + t.start[1], starts[t.end[0] - 1] + t.end[1]


def docstrings(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            words = ast.get_docstring(node, clean=False)
            if words is not None:
                yield node.body[0].lineno, words


def hash_comments(text, spans):
    """Joins full lines that follow each other."""
    joined = []
    for start, end in spans:
        if text.startswith("#!", start) and start == 0:
            continue
        full = not text[text.rfind("\n", 0, start) + 1:start].strip()
        if joined and full and joined[-1][2] and not text[joined[-1][1]:start].strip() and text.count("\n", joined[-1][1], start) == 1:
            joined[-1][1] = end
        else:
            joined.append([start, end, full])
    for start, end, _ in joined:
        yield text.count("\n", 0, start) + 1, re.sub(r"^[ \t]*#", "", text[start:end], flags=re.M)


def comments(path, text):
    """Yields (line, words) of each comment of a file."""
    if path.suffix in {".c", ".h", ".cc", ".cu", ".cuh", ".def"}:
        yield from c_comments(text)
    elif path.suffix == ".py":
        yield from docstrings(text)
        yield from hash_comments(text, python_spans(text))
    elif path.suffix == ".cmake" or path.name in {"CMakeLists.txt", "Dockerfile"}:
        yield from hash_comments(text, cmake_spans(text))
    else:
        yield from hash_comments(text, shell_spans(text))
