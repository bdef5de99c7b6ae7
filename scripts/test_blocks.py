#!/usr/bin/env python3
"""test_blocks.py - finds tests that sanitizer builds can leave out, because the other tests still
run nearly all basic blocks.

Builds build/blocks like the preset asan, with a mark in each basic block (tests/blocks.c), and runs
each test. Then the script takes tests one by one: each time the test with the most new blocks per
processor second. It stops when the taken tests reach SHARE percent of all blocks of src/. It prints
the taken tests in this order, and writes the names of the other tests to tests/covered.txt. In
sanitizer builds, the other tests get the label `covered`, which the preset asan leaves out. Tests
of KEPT are always taken. Tests that take less than SHORT seconds always run.

Usage: test_blocks.py [-j N] [--share SHARE] [--results DIR]
DIR gets a file with the blocks of each test. Tests that already have a file are not run again."""
import argparse
import bisect
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/blocks"
LABELS = {"slow", "cuda", "examples", "lint"}  # labels of tests that the preset asan never runs
# Tests that always run: tests of hostile input, and tests of kernels with odd sizes. Other tests
# may run the same basic blocks, but a sanitizer can find faults only with the inputs of these
# tests. KEPT also has cli_full_disk, because its blocks cannot be measured: it limits the size of
# files, and the file with the marks of the blocks that ran exceeds this limit.
KEPT = re.compile(r"^(fuzz_.*|test_(json|safetensors|tokenizer_parts|files|products|kernels_(avx2|avx512_bf16|amx))"
                  r"|cli_(bad_input|broken_sources|foreign_sources|quantized_sources|adapter|data_files|full_disk"
                  r"|hub_pull|ranks))$")
LIMITED = {"cli_full_disk"}  # these tests fail, because their files of marks are larger than their limit
SHORT = 2.0  # processor seconds; shorter tests always run


def build():
    flag = "-fsanitize-coverage=trace-pc"
    mark = ROOT / "build/blocks.o"
    mark.parent.mkdir(exist_ok=True)
    subprocess.run(["cc", "-O2", "-fPIC", "-c", ROOT / "tests/blocks.c", "-o", mark], check=True)
    links = [f"-DCMAKE_{kind}_LINKER_FLAGS={mark}" for kind in ("EXE", "SHARED", "MODULE")]
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DOSH_DEBUG_INFO=-g0",
                    "-DOSH_SANITIZE=address,undefined", f"-DCMAKE_C_FLAGS={flag}", f"-DCMAKE_CXX_FLAGS={flag}", *links],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", "all", "covered", "--", "--quiet"], check=True)


class Symbols:
    """Names blocks by function and offset, which are equal in all programs with the function."""

    def __init__(self):
        self.programs, self.own = {}, set()
        for library in BUILD.rglob("libosh_*.a"):
            self.own |= {name for _, name in self.read(library)}

    @staticmethod
    def read(path):
        lines = subprocess.run(["nm", "-n", path], capture_output=True, text=True).stdout.splitlines()
        rows = (line.split() for line in lines)
        return [(int(row[0], 16), row[2]) for row in rows if len(row) == 3 and row[1] in "Tt"]

    def blocks(self, program, data):
        """Returns the marked blocks of functions of src/ as a set of strings."""
        if program not in self.programs:
            # A test may have copied the program to a directory that no longer exists. The copy has
            # the blocks of build/blocks/oneshot.
            path = program if os.path.exists(program) else BUILD / "oneshot"
            self.programs[program] = list(zip(*self.read(path))) or [(), ()]
        starts, names = self.programs[program]
        found = set()
        for mark in re.finditer(b"\1", data):
            i = bisect.bisect_right(starts, mark.start()) - 1
            if i >= 0 and names[i] in self.own:
                found.add(f"{names[i]}+{mark.start() - starts[i]}")
        return found


def run(test, symbols, results):
    """Runs a test; writes its processor seconds and its blocks to a file of `results`."""
    out = results / f"{test['name']}.json"
    if out.exists():
        return
    env = dict(os.environ)
    env.update(row.split("=", 1) for p in test.get("properties", []) if p["name"] == "ENVIRONMENT" for row in p["value"])
    with tempfile.TemporaryDirectory() as dir:
        env["BLOCKS_DIR"] = dir
        process = subprocess.Popen(test["command"], env=env, cwd=BUILD, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 77) and test["name"] not in LIMITED:
            raise SystemExit(f"{test['name']}: exit code {process.returncode}, want 0 or 77")
        blocks = set()
        for file in pathlib.Path(dir).iterdir():
            blocks |= symbols.blocks(file.name.replace("%", "/"), file.read_bytes())
    out.write_text(json.dumps({"seconds": usage.ru_utime + usage.ru_stime, "exit": process.returncode,
                               "blocks": sorted(blocks)}))
    print(f"{usage.ru_utime + usage.ru_stime:8.2f} {test['name']}, exit code {process.returncode}", flush=True)


def choose(tests, share):
    """Returns the names of the taken tests, in order. tests: {name: (seconds, blocks)}."""
    every = set().union(*(blocks for _, blocks in tests.values()))
    reached, spent, order = set(), 0.0, []
    left = dict(tests)
    gain = {name: len(blocks) for name, (_, blocks) in tests.items()}
    first = sorted(name for name in tests if KEPT.match(name))
    while left and (first or len(reached) < share / 100 * len(every)):
        if first:
            best = first.pop(0)
            gain[best] = len(left[best][1] - reached)
        else:
            rate = lambda name: gain[name] / (left[name][0] + 0.05)
            best, last = max(left, key=rate), None
            # The gain of a test is the number of blocks that the test would add. It may be too
            # large, because it was computed before other tests were chosen. So the gain of the best
            # test is computed again, until the same test stays the best.
            while best != last:
                gain[best] = len(left[best][1] - reached)
                best, last = max(left, key=rate), best
        seconds, blocks = left.pop(best)
        reached |= blocks
        spent += seconds
        order.append(best)
        print(f"{best:40} +{gain[best]:6} {seconds:7.1f} s {100 * len(reached) / len(every):8.3f} % {spent:8.1f} s")
    return order


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--share", type=float, default=98.5)
    parser.add_argument("--results", type=pathlib.Path)
    args = parser.parse_args()
    results = args.results or pathlib.Path(tempfile.mkdtemp())
    results.mkdir(exist_ok=True)
    build()
    listed = json.loads(subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], check=True,
                                       capture_output=True, text=True).stdout)["tests"]
    labels = lambda test: {l for p in test.get("properties", []) if p["name"] == "LABELS" for l in p["value"]}
    tests = [t for t in listed if "command" in t and not labels(t) & LABELS]
    symbols = Symbols()
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        list(pool.map(lambda test: run(test, symbols, results), tests))
    found = {}
    for test in tests:
        row = json.loads((results / f"{test['name']}.json").read_text())
        found[test["name"]] = row["seconds"], set(row["blocks"])
    order = set(choose(found, args.share))
    covered = sorted(name for name in found if name not in order and found[name][0] >= SHORT)
    (ROOT / "tests/covered.txt").write_text("".join(f"{name}\n" for name in covered))
    spared = sum(found[name][0] for name in covered)
    print(f"{len(covered)} of {len(found)} tests are in tests/covered.txt, "
          f"{spared:.0f} of {sum(seconds for seconds, _ in found.values()):.0f} s")


main()
