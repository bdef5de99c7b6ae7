#!/usr/bin/env python3
"""man_options.py - makes the pages of docs/reference that have the program's options: oneshot.1.md
and oneshot.1, man/oneshot-COMMAND.1 for each command, and command-line.md. The options come from
`oneshot help all` and `oneshot help all COMMAND`.

oneshot.1.md is written by hand, except the lines between `<!-- oneshot help all -->` and `<!-- end
-->`. This script writes these lines, and converts the whole page to oneshot.1. It supports a small
part of Markdown: headings, paragraphs, code indented by four spaces, **bold**, *italic*, `code`,
and `term` + newline + `:   text` for a row of a list.

Usage: man_options.py [--check] BINARY
With --check the script writes nothing, and fails if the files are out of date.
"""
import pathlib
import re
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs/reference"
PAGE, ROFF, REFERENCE = DOCS / "oneshot.1.md", DOCS / "oneshot.1", DOCS / "command-line.md"
SECTION = re.compile(r"(<!-- oneshot help all( \w+)? -->\n).*?(<!-- end -->)", re.S)
MAN, OPTIONED = DOCS / "man", re.compile(r"^\S* +--[a-z-]+ [A-Z]", re.M)
SHOWN = {"graph", "tokenize"}  # commands that take some flags of the table
OPTION = re.compile(r"^  --([a-z0-9-]+) +(.*)$")


def run(binary, *words):
    return subprocess.run([binary, *words], check=True, capture_output=True, text=True).stdout


def rows(help_text):
    """Returns `--flag` and its text, as Markdown rows."""
    out = []
    for line in help_text.splitlines():
        m = OPTION.match(line)
        if m:
            text = m.group(2).replace("*", "\\*")
            out.append(f"`--{m.group(1)}`\n:   {text[0].upper() + text[1:]}\n")
    return "\n".join(out)


def filled(page, binary):
    def one(m):
        words = [m.group(2).strip()] if m.group(2) else []
        return m.group(1) + "\n" + rows(run(binary, "help", "all", *words)) + "\n" + m.group(3)
    return SECTION.sub(one, page)


def inline(text):
    text = text.replace("\\*", "\0").replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"\*\*(.+?)\*\*", r"\\fB\1\\fR", text)
    text = re.sub(r"`(.+?)`", r"\\fB\1\\fR", text)
    text = re.sub(r"\*(.+?)\*", r"\\fI\1\\fR", text)
    text = text.replace("\0", "*")
    return "\\&" + text if text[:1] in {".", "'"} else text


def roff(page, version):
    """Converts the page to roff, block by block; blocks are separated by empty lines."""
    out = ['.\\" made by scripts/man_options.py from oneshot.1.md', f'.TH ONESHOT 1 "" "oneshot {version}" "User Commands"']
    page = re.sub(r"<!--.*?-->\n?", "", page)
    for block in re.split(r"\n\s*\n", page.strip("\n")):
        lines = block.split("\n")
        if lines[0].startswith("# "):
            continue  # the title is already in .TH
        if lines[0].startswith("## "):
            out.append(".SH " + lines[0][3:].upper())
        elif all(line.startswith("    ") for line in lines):
            out += [".PP", ".nf", ".RS 4"] + [inline(line[4:]) for line in lines] + [".RE", ".fi"]
        elif len(lines) > 1 and lines[1].startswith(":   "):
            out += [".TP", inline(lines[0]), inline(" ".join(x.strip().removeprefix(":   ") for x in lines[1:]))]
        else:
            out += ([] if out[-1].startswith(".SH") else [".PP"]) + [inline(line) for line in lines]
    return "\n".join(out) + "\n"


def commands(binary):
    """Returns the names and the descriptions that `oneshot help commands` lists."""
    return [line.split(None, 1) for line in run(binary, "help", "commands").splitlines()]


def command_page(binary, name, does, version):
    """Returns the text of `oneshot COMMAND --help`, and all its flags, as roff."""
    first, _, rest = run(binary, "help", name).partition("\n")
    about = [line for line in rest.strip("\n").split("\n\n")[0].split("\n") if line and not line.startswith(" ")]
    shown = re.findall(r"^  (oneshot .*)$", rest, re.M)
    out = ['.\\" made by scripts/man_options.py',
           f'.TH ONESHOT-{name.upper()} 1 "" "oneshot {version}" "User Commands"', ".SH NAME",
           inline(f"oneshot-{name}") + " \\- " + inline(does), ".SH SYNOPSIS", inline(first.rstrip()).replace(
               "oneshot " + inline(name), "\\fBoneshot " + inline(name) + "\\fR", 1)]
    if about and " ".join(about) != does:
        out += [".SH DESCRIPTION", inline(" ".join(about))]
    own = re.findall(r"^ +(--[a-z-]+)   (\S.*)$", rest, re.M)  # flags that only this command has
    flags = rows(run(binary, "help", "all", name)).split("\n\n") if name != "plan" and OPTIONED.search(rest) else []
    if name == "plan":
        out += [".SH OPTIONS", "The options of \\fBoneshot\\fR(1)."]
    elif own or flags:
        out.append(".SH OPTIONS")
        for flag, text in own:
            out += [".TP", inline(f"`{flag}`"), inline(text)]
        for row in flags:
            term, _, text = row.strip("\n").partition("\n:   ")
            if name not in SHOWN or term.strip("`") in rest:
                out += [".TP", inline(term), inline(text)]
    out += [".SH EXAMPLES", ".nf"] + [inline(line) for line in shown] + [".fi"]
    return "\n".join(out + [".SH SEE ALSO", "\\fBoneshot\\fR(1)"]) + "\n"


def table(help_text):
    """Returns flags in tables, with a heading for each group."""
    out = []
    for line in help_text.splitlines():
        m = OPTION.match(line)
        if m:
            text = m.group(2).replace("|", "\\|").replace("*", "\\*")
            out += [] if out and out[-1].startswith("| `") else ["| | |", "|---|---|"]
            out.append(f"| `--{m.group(1)}` | {text} |")
        elif line.strip():
            out += ["", f"### {line.strip()}", ""]
    return "\n".join(out).strip("\n")


def reference(binary):
    page = ["# Reference", "", "Made by `scripts/man_options.py` from the tables of the program; `oneshot help` prints them, "
            "too. A value in brackets is", "the default.", ""]
    for title, command in (("Flags of `oneshot` and `oneshot plan`", ()), ("Flags of `oneshot eval`", ("eval",)),
                           ("Flags of `oneshot generate`", ("generate",)),
                           ("Flags of `oneshot verify`", ("verify",)), ("Flags of `oneshot bench`", ("bench",))):
        page += [f"## {title}", "", table(run(binary, "help", "all", *command)), ""]
    for title, topic in (("Schemes", "schemes"), ("Modifiers of a recipe", "modifiers"), ("Architectures", "models"),
                         ("Arguments of LLM Compressor's oneshot()", "python")):
        text = run(binary, "help", topic).rstrip("\n")
        page += [f"## {title}", "", "\n".join(("    " + line).rstrip() for line in text.splitlines()), ""]
    return "\n".join(page)


def main():
    args = [a for a in sys.argv[1:] if a != "--check"]
    if len(args) != 1:
        print(__doc__)
        return 2
    page = filled(PAGE.read_text(), args[0])
    version = run(args[0], "--version").split()[1]
    made = {PAGE: page, ROFF: roff(page, version), REFERENCE: reference(args[0])}
    made |= {MAN / f"oneshot-{name}.1": command_page(args[0], name, does, version) for name, does in commands(args[0])}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" not in sys.argv:
        MAN.mkdir(exist_ok=True)
        for path in stale:
            path.write_text(made[path])
    for path in stale:
        print(f"{path.name}: " + ("written" if "--check" not in sys.argv else
                                  "differs from `help`: run scripts/man_options.py BINARY"))
    return 1 if stale and "--check" in sys.argv else 0


sys.exit(main())
