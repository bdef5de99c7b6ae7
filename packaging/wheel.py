#!/usr/bin/env python3
"""wheel.py - makes a Python wheel from a build. The wheel has liboneshot, the program, and the
libraries that they link and open. Nothing is compiled again.

Each bundled library finds the others in its own directory (RPATH, written by patchelf), so that
`auditwheel show` accepts the wheel. The C library, libgcc_s and libstdc++ are those of the system.
The tag of the wheel names the oldest C library that is enough for all files; the libraries of
Debian 12 need at least version 2.34. libcurl is also that of the system: libcurl and Python's ssl
link the same libraries, and a process can load each of these libraries only once.

Usage: wheel.py BUILD [--out DIR]      BUILD: such as build/release"""
import argparse
import base64
import hashlib
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
SYSTEM = ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libgcc_s.so.1", "libstdc++.so.6", "libpthread.so.0",
          "libdl.so.2", "librt.so.1", "libresolv.so.2", "libcurl.so.4",
          "libcrypto.so.3"]


def run(*command):
    """Returns the standard output of the command. If the command fails, prints its output and
    exits."""
    command = [str(c) for c in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(f"wheel.py: no program '{command[0]}' in PATH, wanted for: {' '.join(command)}")
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}wheel.py: exit code {done.returncode} of: {' '.join(command)}")
    return done.stdout


def newest_glibc(files):
    """Returns the highest GLIBC_2.x that one of the libraries needs."""
    wanted = re.findall(r"\(GLIBC_2\.(\d+)", run("readelf", "-W", "--dyn-syms", *files).replace("@GLIBC", "(GLIBC"))
    return max(int(n) for n in wanted)


def needed(file):
    """Returns the names of the libraries that a file links."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", file))


def look_beside(file, directory):
    """Makes the loader search this directory for the libraries that `file` links or opens, and,
    with --force-rpath, for the libraries that these link."""
    run("patchelf", "--force-rpath", "--set-rpath", directory, file)


def collect(build, to):
    """Returns the files of the wheel: name -> path."""
    run("cmake", "--install", build, "--prefix", to / "tree", "--strip")
    program, library = to / "tree/bin/oneshot", next((to / "tree").rglob("liboneshot.so.0")).resolve()
    run("bash", HERE / "bundle.sh", library, to / "lib", to / "licences", *SYSTEM)
    bundled = sorted((to / "lib").iterdir())
    for file in [library, *bundled]:
        look_beside(file, "$ORIGIN")
    look_beside(program, "$ORIGIN/../lib")
    missing = {n for p in [program, library, *bundled] for n in needed(p)} - {p.name for p in bundled} - {*SYSTEM}
    if missing:
        sys.exit(f"wheel.py: {', '.join(sorted(missing))} is linked, and neither bundled nor in SYSTEM")
    files = {f"oneshot/{p.name}": p for p in (HERE / "python/oneshot").iterdir() if p.is_file()}
    files.update({f"oneshot/lib/{p.name}": p for p in bundled})
    files["oneshot/lib/liboneshot.so.0"] = library
    files["oneshot/bin/oneshot"] = program
    return files


def metadata(version, tag):
    about = f"""Metadata-Version: 2.1
Name: oneshot
Version: {version}
Summary: compresses Hugging Face checkpoints to compressed-tensors, one decoder layer at a time
License: Apache-2.0
Requires-Python: >=3.8
Requires-Dist: tqdm; extra == "progress"
Provides-Extra: progress
"""
    wheel = f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    commands = "[console_scripts]\noneshot = oneshot.__main__:main\n"
    return {"METADATA": about, "WHEEL": wheel, "entry_points.txt": commands}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    args = parser.parse_args()
    if not (args.build / "CMakeCache.txt").is_file():
        sys.exit(f"wheel.py: {args.build} has no CMakeCache.txt; a directory of a build is wanted, such as build/release")
    if not args.out.is_dir():
        sys.exit(f"wheel.py: --out {args.out} is no directory")
    cache = (args.build / "CMakeCache.txt").read_text()
    version = re.search(r"^CMAKE_PROJECT_VERSION:\w+=(.*)$", cache, re.M).group(1)
    with tempfile.TemporaryDirectory() as there:
        files = collect(args.build, pathlib.Path(there))
        glibc = newest_glibc([p for n, p in files.items() if "/lib/" in n or "/bin/" in n])
        tag = f"py3-none-manylinux_2_{glibc}_x86_64"
        info = f"oneshot-{version}.dist-info"
        name = args.out / f"oneshot-{version}-{tag}.whl"
        data = {n: p.read_bytes() for n, p in files.items()}
        data.update({f"{info}/{n}": text.encode() for n, text in metadata(version, tag).items()})
        for p in [HERE.parent / "LICENSE", HERE.parent / "NOTICE", *(pathlib.Path(there) / "licences").iterdir()]:
            data[f"{info}/licenses/{p.name}"] = p.read_bytes()
        record = ""
        with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
            for n in sorted(data):
                digest = base64.urlsafe_b64encode(hashlib.sha256(data[n]).digest()).rstrip(b"=").decode()
                record += f"{n},sha256={digest},{len(data[n])}\n"
                entry = zipfile.ZipInfo(n, (2020, 1, 1, 0, 0, 0))  # equal files make equal bytes
                mode = 0o755 if "/lib/" in n or "/bin/" in n else 0o644
                entry.external_attr = (stat.S_IFREG | mode) << 16  # pip sets x only for a regular file
                entry.compress_type = zipfile.ZIP_DEFLATED
                z.writestr(entry, data[n])
            z.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2020, 1, 1, 0, 0, 0)), record + f"{info}/RECORD,,\n")
    print(name)


if __name__ == "__main__":
    main()
