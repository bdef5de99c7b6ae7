#!/usr/bin/env python3
"""check_families.py - compares `oneshot tokenize` with the tokenizers library, id by id.

    check_families.py --oneshot BUILD/oneshot --families DIR [--model DIR ...] FILE [FILE ...]

DIR has one directory per family with tokenizer.json or tokenizer.json.zst. Every line of every FILE
(split at \\n only, invalid UTF-8 replaced) is compared with and without special tokens. Then each
FILE is compared as one text. Exits with 1 on a difference. --auto also compares with
transformers.AutoTokenizer. Differences from AutoTokenizer are counted and shown, but are no
failure. For some classes (LlamaTokenizer), transformers 5 rebuilds the tokenizer and does not
follow tokenizer.json. """
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer


def unpack(src, to):
    shutil.copytree(src, to)
    os.chmod(to, 0o755)
    packed = os.path.join(to, "tokenizer.json.zst")
    if os.path.exists(packed):
        subprocess.run(["zstd", "-qdf", packed, "-o", os.path.join(to, "tokenizer.json")], check=True)
    return to


def ours(oneshot, model, path, special):
    cmd = [oneshot, "tokenize", "--model", model] + ([] if special else ["--no-special-tokens"]) + [path]
    out = subprocess.run(cmd, check=True, capture_output=True).stdout
    return [[int(x) for x in line.split()] for line in out.decode().split("\n")[:-1]]


def lines_of(path):
    """Returns the lines that oneshot reads: a \\n at the end of the file begins no new line."""
    data = open(path, "rb").read()
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [x.decode("utf-8", errors="replace") for x in lines]


def compare(name, want, got, lines, label):
    bad = [i for i, (a, b) in enumerate(zip(want, got)) if a != b]
    if len(want) != len(got):
        bad.append(min(len(want), len(got)))
    n_ids = sum(map(len, want))
    print(f"{name:14} {label:44} {len(want):6} lines {n_ids:8} ids  {len(bad)} lines differ", flush=True)
    for i in bad[:3]:
        if i < len(lines) and i < len(got):
            print(f"    line {i + 1} {lines[i][:60]!r}\n      library {want[i][:24]}\n      oneshot {got[i][:24]}")
    return len(bad)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--oneshot", required=True)
    p.add_argument("--families", help="folder of folders")
    p.add_argument("--model", action="append", default=[], help="one more folder with a tokenizer.json")
    p.add_argument("--auto", action="store_true")
    p.add_argument("files", nargs="+")
    a = p.parse_args()
    dirs = [os.path.join(a.families, d) for d in sorted(os.listdir(a.families))] if a.families else []
    n_bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        for i, src in enumerate(dirs + a.model):
            name = os.path.basename(src.rstrip("/"))
            model = unpack(src, os.path.join(tmp, f"{i}-{name}"))
            library = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
            library.no_truncation()
            library.no_padding()
            auto = None
            if a.auto:
                from transformers import AutoTokenizer
                auto = AutoTokenizer.from_pretrained(model)
            for path in a.files:
                lines = lines_of(path)
                whole = os.path.join(tmp, "whole")
                for special in (True, False):
                    label = f"{os.path.basename(path)} {'with' if special else 'without'} special tokens"
                    got = ours(a.oneshot, model, path, special)
                    want = [e.ids for e in library.encode_batch(lines, add_special_tokens=special)]
                    n_bad += compare(name, want, got, lines, label)
                    if auto:
                        want = auto(lines, add_special_tokens=special)["input_ids"]
                        compare(name, want, got, lines, label + " (Auto)")
                # Compares the file as one text. Newlines are replaced by another character, which
                # no line has.
                text = "\u2028".join(lines)
                with open(whole, "wb") as f:
                    f.write(text.encode("utf-8"))
                want = [library.encode(text, add_special_tokens=False).ids]
                n_bad += compare(name, want, ours(a.oneshot, model, whole, False), [text],
                                 os.path.basename(path) + " as one line")
    sys.exit(1 if n_bad else 0)


if __name__ == "__main__":
    main()
