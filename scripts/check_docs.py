#!/usr/bin/env python3
"""check_docs.py - fails when a document names a file, a flag or a function that does not exist.

Files: words that begin with a directory of the repository, and the targets of relative links, must
exist. `*` matches any text, and {a,b} stands for a and b. If a name has a <placeholder>, its
directory must exist. Links: the anchor of a link must be a heading of its page. docs/README.md must
link to each page of docs/. Flags: --words must be flags of oneshot, or of the program with which
the line or code span starts. Names: osh_* and OSH_* must be words of src/, include/ or cmake/.
Messages: bold text of docs/reference/errors.md must be in a string of src/; "..." stands for any
text.

Usage: check_docs.py [source folder]"""
import itertools
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
TOPS = ("src", "include", "tests", "scripts", "docs", "cmake", "examples", "models", "packaging")
PATH = re.compile(r"(?<![\w./<{-])(?:\./)?((?:" + "|".join(TOPS) + r")/[\w./*{},-]*)")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.M)
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")
NAME = re.compile(r"\b(osh_[a-z0-9_]+|OSH_[A-Z0-9_]+)\b")
# Flags of other programs in the documents.
FOREIGN = {
    "cmake": {"preset", "build", "install", "prefix", "target", "component"},
    "ctest": {"preset", "output-on-failure"},
    "git": {"stat"},
    "mpirun": {"allow-run-as-root", "oversubscribe"},
    "srun": {"mpi", "ntasks", "gpus-per-task"},
    "scripts": {"check", "browser"},
    "bench.sh": {"peer-python", "install-peer", "peer-version", "llama-cpp", "llama-python", "text", "first-window", "runs",
                 "out"},
    "bench-gpu.sh": {"like"},
    "site.sh": {"serve"},
    "release.py": {"set", "notes", "tag"},
    r"oneshot\.template": {"trust-remote-code", "oneshot"},
    "check-gpu.sh": {"out", "steps", "build-dir", "lib-dir", "time-limit", "pack", "results", "scale"},
    "kernel_budgets.py": {"write"},
    "linearity.sh": {"make-model", "samples", "layers", "tokens", "at", "shape", "runs", "out"},
    "compare_families.py": {"gptq", "draws", "vllm", "record"},
    "coverage.py": {"write", "registry", "version"},
    "family.py": {"record", "only-bf16"},
    "vllm_families.py": {"record"},
    "calibration.sh": {"build", "out", "shape"},
    "onloading.sh": {"out", "title", "samples", "length", "targets"},
    "make-model.py": {"layers", "hidden", "intermediate", "experts", "seed"},
    "schedule.sh": {"schedule", "threads", "out"},
    "proportion.sh": {"make-model", "layers", "experts", "runs", "out"},
}
ENTRIES = {"dot", "no-special-tokens", "json", "help", "version"}  # main.c reads these flags itself


def own_flags():
    text = (ROOT / "src/match/options.c").read_text()
    main = (ROOT / "src/cli/main.c").read_text()
    names = set(re.findall(r"\bROW\((\w+)\)", text)) | set(re.findall(r'\.(?:alias|name) = "(\w+)"', text))
    return {n.replace("_", "-") for n in names} | {e for e in ENTRIES if f'"--{e}"' in main}


def words_of_code():
    words = set()
    for top in ("src", "include", "cmake"):
        for path in (ROOT / top).rglob("*"):
            if path.is_file():
                words |= set(NAME.findall(path.read_text(encoding="utf-8")))
    return words | set(NAME.findall((ROOT / "CMakeLists.txt").read_text()))


def expanded(name):
    """Expands braces: a/{b,c}.md becomes a/b.md and a/c.md."""
    parts = [p.split(",") if i % 2 else [p] for i, p in enumerate(re.split(r"\{([^{}]*)\}", name))]
    return ["".join(p) for p in itertools.product(*parts)]


def is_there(folder, name):
    return any(folder.glob(name)) if "*" in name else (folder / name).exists()


def anchors(page):
    """Returns the anchors of a page, which GitHub makes from the headings."""
    found = []
    for title in HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8"))) if page.suffix == ".md" else ():
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.append(name + (f"-{found.count(name)}" if name in found else ""))
    return found


def check_index(wrong):
    index = ROOT / "docs/README.md"
    linked = {(index.parent / name).resolve() for name, _ in LINK.findall(index.read_text(encoding="utf-8")) if name}
    wrong += [f"docs/README.md: no link to {page.relative_to(ROOT)}"
              for page in sorted((ROOT / "docs").rglob("*.md")) if page != index and page.resolve() not in linked]


def program_flags(line, at):
    """Returns the known flags of the program whose command contains the flag at `at`."""
    start = line.rfind("`", 0, at) + 1
    command = line[start:at] if line.count("`", 0, at) % 2 else line[:at]
    flags = set()
    for program, known in FOREIGN.items():
        if re.search(r"(^|[\s/])" + program + r"\b", command):
            flags |= known
    return flags


def check(path, flags, words, wrong):
    here = path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    # names that are declared in the added lines of an example (+const ..., +typedef ...)
    made = set(re.findall(r"^\+(?:const \w+|typedef .*\}) (osh_\w+)", text, re.M))
    for i, line in enumerate(text.split("\n"), 1):
        for m in PATH.finditer(line):
            name = m.group(1).rstrip(".,-")
            # for a name with a placeholder, such as tests/unit/test_<module>.c, the directory must
            # exist
            if line[m.end():m.end() + 1] == "<":
                name = name[:name.rfind("/")]
            for name in expanded(name):
                if not is_there(ROOT, name):
                    wrong.append(f"{here}:{i}: no file {name}")
        for name, anchor in LINK.findall(line):
            target = path.parent / name if name else path
            if name and not is_there(path.parent, name):
                wrong.append(f"{here}:{i}: no file {name}, to which the page links")
            elif anchor and anchor not in anchors(target):
                wrong.append(f"{here}:{i}: no heading '{anchor}' in {name or here}")
        for m in FLAG.finditer(line):
            if m.group(1) not in flags and m.group(1) not in program_flags(line, m.start()):
                wrong.append(f"{here}:{i}: no flag --{m.group(1)}")
        for m in NAME.finditer(line):
            name = m.group(1)
            wild = line[m.end():m.end() + 1] == "*"
            if name not in words and name not in made and not (wild and any(w.startswith(name) for w in words)):
                wrong.append(f"{here}:{i}: no {name} in the sources")


def messages():
    """Returns all strings of src/; adjacent ones are joined."""
    text = "\n".join(p.read_text(encoding="utf-8") for p in sorted((ROOT / "src").rglob("*.c")))
    return re.sub(r'"\s*\n\s*"', "", text)


def check_messages(wrong):
    path, text = ROOT / "docs/reference/errors.md", messages()
    for i, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        for bold in re.findall(r"\*\*(.+?)\*\*", line):
            for part in bold.rstrip(".").split("..."):
                if part.strip() not in text:
                    wrong.append(f"docs/reference/errors.md:{i}: no message with '{part.strip()}'")


def main():
    flags, words, wrong, n = own_flags(), words_of_code(), [], 0
    docs = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    for path in sorted(docs):
        check(path, flags, words, wrong)
        n += 1
    check_messages(wrong)
    check_index(wrong)
    print("\n".join(wrong + [f"{n} documents, {len(wrong)} wrong"]))
    return 1 if wrong else 0


sys.exit(main())
