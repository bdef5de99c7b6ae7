#!/usr/bin/env python3
"""cuda_names.py - fails if libcublasLt or libcusolver of this machine lacks a function that
src/gpu/blas.cu looks for at run time. Needs no GPU. Exits with 77 if the libraries are not
installed.

Usage: cuda_names.py"""
import ctypes
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src/gpu/blas.cu"


def versions(text, name):
    """Returns the versions of the array that blas.cu tries in order."""
    return re.findall(r'"(\d+)"', re.search(name + r"\[\] = \{(.*?)\}", text).group(1))


def opened(soname, tried):
    for version in tried:
        for place in ("", "/usr/local/cuda/lib64/"):
            try:
                return ctypes.CDLL(f"{place}{soname}.so.{version}")
            except OSError:
                pass
    return None


def main():
    text = SOURCE.read_text()
    left_out = []
    bad = 0
    for soname, array, prefix in (("libcublasLt", "lt_versions", "cublasLt"), ("libcusolver", "solver_versions", "cusolver")):
        calls = re.search(r"#define " + {"cublasLt": "LT", "cusolver": "SOLVER"}[prefix] + r"_CALLS\(.*?\n((?:.*\\\n)*.*\n)", text).group(0)
        names = sorted(set(re.findall(rf"\b{prefix}\w+", calls)))
        library = opened(soname, versions(text, array))
        if not names:
            sys.exit(f"cuda_names.py: {SOURCE} names no function of {soname}")
        if not library:
            left_out.append(soname)
            continue
        missing = [n for n in names if not hasattr(library, n)]
        print(f"{soname}: {len(names) - len(missing)} of {len(names)} functions found" + "".join(f", {n} is missing" for n in missing))
        bad += len(missing)
    if left_out:
        print(f"skip: {' and '.join(left_out)} cannot be opened")
    sys.exit(1 if bad else 77 if left_out else 0)


if __name__ == "__main__":
    main()
