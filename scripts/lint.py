#!/usr/bin/env python3
"""lint.py - prints large files and functions, and fails on text that the repository must not have.

The script fails on:
  - tabs in C, and lines over 100 characters
  - exit, getenv or printing to stdout in src/ outside src/cli
  - paths of a development machine, and notes of unfinished work
  - a .c or .h that does not begin with its own name
  - a function of src/ with more than six parameters
  - a file that reads the table of a kind of modifiers, unless KIND_FILES lists the file
  - a file outside src/ops that compares the name of an op

In the sentences of documents (docs/, examples/, README.md and others) it also fails on:
  - a word of NO_BEGINNING at the beginning of a statement, and a retired word (RETIRED)
  - a cell of a table with more than 25 words
  - a sentence of a paragraph in which no word can be a verb

In the folders of PLAIN, and in include/, it also fails on:
  - a comment that begins with a word of NO_BEGINNING, and a retired word in a comment
  - a static function whose name two files of these folders define, unless it is a column of a table
    of rows (COLUMNS)
  - a comment at the beginning of a file, or above a function, without a word that can be a verb
  - a string literal of src/ with a word of RETIRED_IN_STRINGS
In the folders of PLAIN_TESTS it fails on the same comments.

In the directories and files of PLAIN_SCRIPTS it also fails on:
  - the same comments in shell, Python, CMake and C files
  - lines of comments over 100 characters, except the last line that an example promises
  - a script that does not begin with its own name
  - a comment as above, or the docstring of a Python function, without a verb
Usage: lint.py [source folder]"""
import ast
import pathlib
import re
import shutil
import subprocess
import sys

from check_subjects import VERBS
from comments import C, c_comments, comments

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
C_FILES = {".c", ".cc", ".h", ".cu", ".cuh", ".def"}
TEXT_FILES = C_FILES | {".py", ".sh", ".md", ".cmake", ".txt", ".yaml", ".yml", ".1"}
MAX_LINE, MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS = 100, 600, 80, 6

# Each word is written in pieces, so that this file does not contain the word.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
DEV_PATH = re.compile(r"(?<![\w.}$])/(" + "|".join(["wo" + "rk", "tm" + "p", "ro" + "ot", "ho" + "me"]) + r")/")
CALL = re.compile(r"(?<![\w.>])(getenv|secure_getenv|exit|_exit|abort|printf|puts|putchar|vprintf)\s*\(|\bstdout\b")


# Folders of src/ that follow the language rule of CONTRIBUTING.md. include/ follows the rule, too.
PLAIN = set('''base text tensor tokenizer io math gpu chat ops data solver graph quant
    hub store modifiers learn match rewrite schedule budget plan output run ranks mpi verify eval report
    api lib cli'''.split())
# Folders of tests/ that follow the language rule; "." stands for the files of tests/ itself.
PLAIN_TESTS = {
    ".",
    "fuzz",
    "kernels",
    "prop",
    "unit",
}
# Directories and files outside src/ and tests/ that follow the language rule.
PLAIN_SCRIPTS = {
    ".ci",
    "CMakeLists.txt",
    "Dockerfile",
    "cmake",
    "examples",
    "packaging",
    "scripts",
    "tests/cli",
    "tests/examples",
    "tests/golden",
    "tests/play",
    "tests/slow",
    "tests/tools",
}
SCRIPT_FILES = C_FILES | {".cmake", ".py", ".sh"}
NO_BEGINNING = re.compile(r"(of|what|where|as|those|the same|whether|which|behind|beside)\b", re.I)
RETIRED = re.compile(r"\b(cards?|played|affair|behind|ahead of|so many|way through)\b", re.I)
# Retired words in the string literals of src/: messages, help, pages.
RETIRED_IN_STRINGS = ["cards?", "played", "affair", "ahead of", "so many", "way through", "goes? on", "is not made (by|on)", "beside",
                      "(?<!look )(?<!ahead or )behind", "cannot be held", "that would do", "decides? nothing", "neither", "as it is"]
STATIC = re.compile(r"^static (?:inline )?[\w \t*]+?\**\b(\w+)\(", re.M)
COLUMNS = set("ref infer attrs run scratch grad want compress end needs encode decode pack unpack main usage".split())


# check_verbs accepts the third person of VERBS and MORE_VERBS, and the words of VERBS_AS_THEY_ARE.
MORE_VERBS = """
    allocate concatenate consider consist consume contain continue control crash decompress
    dequantize differ discard disturb emulate equal evaluate exchange finish follow get guess hash
    interrupt kill lay lie manage mean occur optimize overwrite process propose prove receive redraw
    render represent reverse score shuffle slice sleep spread transpose wake""".split()
VERBS_AS_THEY_ARE = """
    agree are be been begin belong call can cannot compute contain could count did do end fit give had
    has have is make may merge might move must need print read return run see set should take was were
    will would write""".split()
# a word after one of these words is a noun: "the tests", "two names"
NOUN_AFTER = r"(?<!\bthe )(?<!\bof )(?<!\ba )(?<!\ball )(?<!\bthese )(?<!\btwo )(?<!\bfor )"
# A heading above functions has no verb. A predicate ("True if ...") has no verb either.
NO_VERB_WANTED = re.compile(r"-{3,}|\S+\.(c|cu|h|cuh): |True (if|for|between|while)\b")
FUNCTION = re.compile(r"\s*\n(?:template[^\n]*\n)?(?!#|typedef|enum|template)[A-Za-z_][^;={}]*?\b\w+\(")


def third_person(verb):
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ies"
    return verb + ("es" if re.search(r"(s|x|z|ch|sh|o)$", verb) else "s")


VERB = re.compile(NOUN_AFTER + r"\b(" + "|".join(
    [third_person(v) for v in sorted(VERBS | set(MORE_VERBS))] + VERBS_AS_THEY_ARE) + r")\b(?! of\b)| = ", re.I)


def check_verb(here, line, words, wrong):
    """Checks that a comment at the beginning of a file, or above a function, has a verb."""
    words = re.sub(r"\s*\n\s*\*?\s*", " ", words).strip(" *")
    if not NO_VERB_WANTED.match(words) and not VERB.search(re.sub(r"`[^`]*`", "x", words)):
        wrong.append(f"{here}:{line}: the comment has no verb: {words[:60]}")


def check_verbs(here, text, wrong):
    """Checks the first comment of a C file, and the comments above its functions."""
    for m in C.finditer(text):
        words = m[1] or m[2]
        if words is not None and text[:m.start()].endswith("\n" * bool(m.start())):
            if not m.start() or FUNCTION.match(text, m.end()):
                check_verb(here, text.count("\n", 0, m.start()) + 1, re.sub(r"^ \S+ - ", "", words), wrong)


def check_docstrings(here, text, wrong):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            check_verb(here, node.lineno, ast.get_docstring(node), wrong)


def check_language(here, text, wrong):
    """Checks the comments of a file in a folder of PLAIN or PLAIN_TESTS."""
    for line, words in c_comments(text):
        check_comment(here, line, words, wrong)
    check_verbs(here, text, wrong)


def check_strings(here, text, wrong):
    """Checks the string literals of a file of src/. Joins literals without code between them."""
    retired, end, said = re.compile(r"\b(" + "|".join(RETIRED_IN_STRINGS) + r")\b", re.I), -1, []
    for m in C.finditer(text):
        if m[0].startswith('"'):
            if end < 0 or text[end:m.start()].strip():
                said.append([text.count("\n", 0, m.start()) + 1, ""])
            said[-1][1] += m[0][1:-1]
            end = m.end()
    for line, words in said:
        for word in retired.finditer(words):
            wrong.append(f"{here}:{line}: the text has the retired word '{word[0]}': {words[:60]}")


def list_statics(here, text, statics):
    """Adds the static functions of a file in a folder of PLAIN to `statics`."""
    if here.suffix in {".c", ".cu"}:
        code = re.sub(r"__launch_bounds__\([^)]*\)", "", strip_comments_and_strings(text))
        for name in set(STATIC.findall(code)) - COLUMNS:
            statics.setdefault(name, []).append(str(here))


MAX_CELL = 25
NO_PAGE_BEGINNING = re.compile(r"(of|what|where|as|those|the same(?! \w+ \w)|whether|which|behind|beside)\b", re.I)
BOLD = re.compile(r"\*\*(.+?)\*\*")  # a message that a page quotes
GENERATED = {"docs/reference/command-line.md"}
MADE_PART = re.compile(r"<!-- oneshot help all.*?<!-- end -->", re.S)
RETIRED_IN_PAGES = re.compile(r"\b((?<!model )cards?|played|affair|behind|ahead of|so many|way through)\b", re.I)
SPAN = re.compile(r"(`+)(?:(?!\1).)*\1")
LINKED = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\"(])")
PAGE_VERB = re.compile(r"\b(\w{2,}(s|ed|en)|is|differ|name|can|could|will|would|may|might|must|do|did|had|have|be|been|are|"
                  r"were|read|write|run|make|take|"
                  r"give|see|set|put|keep|hold|go|get|let|use|need|want|say|said|made|took|gave|found|kept|held|got|went|lost|"
                  r"cost|show|follow|become|became|begin|began|add|choose|chose|run|ran|find|know|build|built|copy|commit|measure|disable|"
                  r"start|equal|turn|learn)\b", re.I)


def sentences(text):
    """Yields (line, kind, sentence) for a page without its code and headings. kind: cell, item or
    text."""
    blocks, fenced, joined = [], False, False
    for i, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced, joined = not fenced, False
        elif fenced or not line.strip() or line.startswith(("#", "<!--", ":   ")) or (line.startswith("    ") and not joined):
            joined = False
        elif line.lstrip().startswith("|"):
            joined = False
            if not re.fullmatch(r"[\s|:-]+", line):
                blocks += [[i, "cell", c.strip()] for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        elif ITEM.match(line):
            blocks.append([i, "item", line[ITEM.match(line).end():]])
            joined = True
        elif joined:
            blocks[-1][2] += " " + line.strip()
        else:
            blocks.append([i, "text", line.strip()])
            joined = True
    for i, kind, block in blocks:
        for sentence in SENTENCE.split(BOLD.sub("`x`", LINKED.sub(r"\1", block))):
            yield i, kind, sentence.strip("*_ ")


def check_page(path, wrong):
    """Checks the language of one page."""
    here = path.relative_to(ROOT)
    text = MADE_PART.sub(lambda m: "\n" * m[0].count("\n"), path.read_text(encoding="utf-8"))
    text = re.sub(r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    text = SPAN.sub(lambda m: "`" + re.sub(r"\S+", "x", m[0].strip("`")) + "`" + "\n" * m[0].count("\n"), text)
    for i, kind, sentence in sentences(text):
        first = NO_PAGE_BEGINNING.match(sentence)
        if first and not sentence.endswith("?"):
            wrong.append(f"{here}:{i}: begins with '{first[0]}': want subject, verb, object: {sentence[:60]}")
        for word in RETIRED_IN_PAGES.finditer(SPAN.sub("", sentence)):
            wrong.append(f"{here}:{i}: the retired word '{word[0]}' (CONTRIBUTING.md): {sentence[:60]}")
        if kind == "cell" and len(sentence.split()) > MAX_CELL:
            wrong.append(f"{here}:{i}: a cell of {len(sentence.split())} words, at most {MAX_CELL}: {sentence[:60]}")
        if kind == "text" and re.search(r"(?<!\.)\.$", sentence) and not PAGE_VERB.search(SPAN.sub("", sentence)):
            wrong.append(f"{here}:{i}: a sentence without a verb: {sentence[:60]}")


def check_comment(here, line, words, wrong):
    """Checks the beginning and the words of one comment."""
    words = words.strip(" *-\n\t/#")
    first = NO_BEGINNING.match(words)
    if first:
        wrong.append(f"{here}:{line}: the comment begins with '{first[0]}': want subject, verb, object")
    for word in RETIRED.finditer(words):
        wrong.append(f"{here}:{line}: the comment has the retired word '{word[0]}' (CONTRIBUTING.md)")


def check_script(path, wrong):
    """Checks the comments of one file of PLAIN_SCRIPTS."""
    here = path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    found = list(comments(path, text))
    for line, words in found:
        check_comment(here, line, words, wrong)
        for i, part in enumerate(words.split("\n"), line):
            code = i == line and not lines[i - 1].lstrip().startswith(("#", "/", '"', 'r"'))
            if len(lines[i - 1]) > MAX_LINE and not code and not part.startswith(" Last line: "):
                wrong.append(f"{here}:{i}: a comment of {len(lines[i - 1])} characters, at most {MAX_LINE}")
    if path.suffix in C_FILES:
        check_verbs(here, text, wrong)
    elif found:
        check_verb(here, found[0][0], re.sub(r"^.*? - ", "", found[0][1], flags=re.S), wrong)
    if path.suffix == ".py":
        check_docstrings(here, text, wrong)
    name = path.parent.name if path.name == "__init__.py" else path.name
    if path.suffix not in {".c", ".h"} and not (found and found[0][1].lstrip(" *\n").startswith(name + " ")):
        wrong.append(f"{here}:1: does not open with its own name")


def check_scripts(wrong):
    """Checks the comments of all files of PLAIN_SCRIPTS."""
    for name in sorted(PLAIN_SCRIPTS):
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            script = path.suffix in SCRIPT_FILES or path.name in {"CMakeLists.txt", "Dockerfile", "run"}
            if path.is_file() and script and "__pycache__" not in path.parts:
                check_script(path, wrong)


def check_statics(statics, wrong):
    for name, files in sorted(statics.items()):
        if len(files) > 1:
            wrong.append(f"the static function {name} is defined in {', '.join(files)}: put the noun in front of the name")


def strip_comments_and_strings(text):
    """Replaces comments and strings by spaces; line breaks stay."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def function_sizes(code):
    """Yields (first line, lines) for each function, from a '{' in column 0 to a '}' in column 0."""
    start = 0
    for i, line in enumerate(code.split("\n"), 1):
        if line.startswith("{"):
            start = i
        elif line.startswith("}") and start:
            yield start, i - start + 1
            start = 0


def parameters(code):
    """Yields (line, name, number of parameters) of each function that begins in column 0."""
    code = re.sub(r"__(attribute__|launch_bounds__) *\([^\n]*?\)+(?= )", lambda m: " " * len(m.group(0)), code)
    for m in re.finditer(r"^(?!#)[A-Za-z_][\w \t*\n]*?\b(\w+)\(", code, re.M):
        depth, n = 0, 1
        for c in code[m.end() - 1:]:
            depth += (c in "([{") - (c in ")]}")
            n += c == "," and depth == 1
            if not depth:
                break
        yield code.count("\n", 0, m.start()) + 1, m.group(1), n


def check_parameters(here, code, wrong):
    for line, name, n in parameters(code):
        if n > MAX_PARAMETERS:
            wrong.append(f"{here}:{line}: {name} has {n} parameters, at most {MAX_PARAMETERS}")


def check(path, wrong, large, statics):
    here = path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    is_c = path.suffix in C_FILES
    for i, line in enumerate(lines, 1):
        if is_c and "\t" in line:
            wrong.append(f"{here}:{i}: tab")
        if is_c and len(line) > MAX_LINE:
            wrong.append(f"{here}:{i}: {len(line)} characters, at most {MAX_LINE}")
        if UNFINISHED.search(line):
            wrong.append(f"{here}:{i}: unfinished work: {line.strip()}")
        if here.parts[0] in {"src", "include", "scripts", "docs"} and DEV_PATH.search(line):
            wrong.append(f"{here}:{i}: path of a development machine: {line.strip()}")
    if not is_c:
        return
    if path.suffix in {".c", ".h"} and here.parts[0] == "src" and not lines[0].startswith(f"/* {path.name} - "):
        wrong.append(f"{here}:1: does not open with '/* {path.name} - ...'")
    code = strip_comments_and_strings(text)
    if here.parts[0] == "src" and here.parts[1] != "cli":
        for i, line in enumerate(code.split("\n"), 1):
            m = CALL.search(line)
            if m and not line.lstrip().startswith("#"):
                wrong.append(f"{here}:{i}: {m.group(0).rstrip('( ')} outside src/cli")
    if here.parts[0] == "src":
        check_parameters(here, code, wrong)
        if here.parts[1] != "modifiers":
            check_kinds(here, code, wrong)
        if here.parts[1] not in {"ops", "solver"}:
            check_op_names(here, text, wrong)
    if here.parts[0] == "src" and here.parts[1] in PLAIN:
        check_language(here, text, wrong)
        check_strings(here, text, wrong)
        list_statics(here, text, statics)
    if here.parts[0] == "include":
        check_language(here, text, wrong)
    if here.parts[0] == "tests" and (here.parts[1] if len(here.parts) > 2 else ".") in PLAIN_TESTS:
        check_language(here, text, wrong)
    if len(lines) > MAX_FILE:
        large.append(f"{here}: {len(lines)} lines")
    for start, n in function_sizes(code):
        if n > MAX_FUNCTION:
            large.append(f"{here}:{start}: function of {n} lines")


# For each kind of modifiers (src/modifiers/kinds.h), the files outside src/modifiers that implement
# the kind. Only these files read the kind's table; all other files use the functions of modifier.h.
KIND_FILES = {
    "type->quantizer": set(),
    "type->learner": {"src/run/block.c"},
    "type->pruner": {"src/match/pruned.c", "src/eval/owl.c"},
    "type->transform": {"src/rewrite/folds.c", "src/rewrite/fold_add.c", "src/rewrite/fold_rules.c",
                        "src/run/folds.c", "src/budget/simulate_bytes.c"},
    "type->rewriter": set(),
    "osh_rotate_of": {"src/rewrite/rotations.c"},
    "osh_reap_of": {"src/rewrite/experts.c"},
}


def check_kinds(here, code, wrong):
    for kind, files in KIND_FILES.items():
        for m in re.finditer(re.escape(kind) + r"\b", code):
            if str(here) not in files:
                wrong.append(f"{here}:{code.count(chr(10), 0, m.start()) + 1}: {kind}, which only "
                             "src/modifiers and KIND_FILES of scripts/lint.py may use")


# Outside src/ops, code tests the traits of an op (osh_op_is, osh_node_is), not its name. Only names
# that a user or a template gives are looked up.
OP_NAME = re.compile(r'\bosh_op_find\(|\bstrcmp\([^;]*\bop->name')
OP_NAME_FILES = {
    "src/graph/build.c",  # names of ops in templates
    "src/graph/build_nodes.c",  # names of ops in templates
    "src/rewrite/passthrough.c",  # names of --calib-passthrough
}


def check_op_names(here, text, wrong):
    for m in OP_NAME.finditer(text):
        if str(here) not in OP_NAME_FILES:
            wrong.append(f"{here}:{text.count(chr(10), 0, m.start()) + 1}: asks for an op's name: "
                         "want a trait or a function of the op's row")


IN_ROOT = set('''.ci .clang-format .dockerignore .github .gitignore CHANGELOG.md CMakeLists.txt CMakePresets.json
    CONTRIBUTING.md Dockerfile LICENSE NOTICE README.md cmake docs examples include models packaging scripts src
    tests'''.split())


def strays():
    """Checks for tracked files in the root directory that IN_ROOT does not list."""
    if not shutil.which("git"):
        print("git is missing: the files of the root are not checked")
        return []
    git = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    tracked = {line.split("/")[0] for line in git.stdout.splitlines()} if git.returncode == 0 else set()
    return [f"{name}: scripts/lint.py does not list this file of the root"
            for name in sorted(tracked - IN_ROOT)]


def main():
    wrong, large, statics, n = strays(), [], {}, 0
    for top in ["src", "include", "tests", "scripts", "docs", "cmake", "packaging", "examples"]:
        for path in sorted((ROOT / top).rglob("*")):
            generated = any(p in {"fixtures", "corpus", "__pycache__"} for p in path.parts)
            generated |= top == "tests" and "data" in path.parts
            if path.is_file() and path.suffix in TEXT_FILES and not generated:
                if top == "tests" and path.suffix not in C_FILES | {".py", ".sh"}:
                    continue  # inputs of tests may contain any text
                check(path, wrong, large, statics)
                n += 1
    check_scripts(wrong)
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]:
        if str(path.relative_to(ROOT)) not in GENERATED:
            check_page(path, wrong)
    check_statics(statics, wrong)
    print("\n".join(["larger than usual: " + x for x in large] + wrong + [f"{n} files, {len(wrong)} wrong"]))
    return 1 if wrong else 0


sys.exit(main())
