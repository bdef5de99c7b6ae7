#!/usr/bin/env python3
"""run_page.py - runs the commands of a page of docs/ in the working directory, and compares their
output.

A block ```sh is a script, which must exit with 0. A script in a block ```sh fails must exit with
another code. A block ```sh elsewhere is not run. A block ```text after a script has the lines that
its output must have, in this order; "..." stands for any text.

Usage: run_page.py PAGE"""
import re
import subprocess
import sys

BLOCK = re.compile(r"^```(sh|text)( \w+)?\n(.*?)^```$", re.M | re.S)


def wanted(line):
    return re.compile(".*".join(re.escape(part) for part in line.split("...")) + "$")


def compare(lines, output):
    rest = iter(output.splitlines())
    for line in lines:
        if not any(wanted(line).match(got) for got in rest):
            return f'the output has no line "{line}":\n{output}'
    return None


def main():
    n, output = 0, ""
    for kind, word, text in BLOCK.findall(open(sys.argv[1], encoding="utf-8").read()):
        wrong = None
        if kind == "text":
            wrong = compare(text.splitlines(), output)
        elif word != " elsewhere":
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            n, output = n + 1, done.stdout
            if (done.returncode != 0) != (word == " fails"):
                wrong = f"exit code {done.returncode}:\n{output}"
        if wrong:
            sys.exit(f"{text}{wrong}")
    print(f"{n} blocks")
    if not n:
        sys.exit("no command was run")


main()
