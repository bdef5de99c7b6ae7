#!/usr/bin/env python3
"""test_costs.py - runs the tests of a preset and prints the processor seconds of each, the largest
last, and their sum.

Processor seconds are user and system time of the test and of the processes that it waits for. Other
work on the machine changes them little, and they do not depend on the number of parallel tests.

Usage: test_costs.py PRESET [-R REGEX] [-j N] [--out FILE]
FILE gets a line "seconds result name" after each test."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run_test(test):
    """Returns (seconds, result) of one test of ctest's list."""
    properties = {p["name"]: p["value"] for p in test.get("properties", [])}
    env = dict(os.environ)
    env.update(row.split("=", 1) for row in properties.get("ENVIRONMENT", []))
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(test["command"], env=env, cwd=properties.get("WORKING_DIRECTORY", "."), stdout=said,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        timer = threading.Timer(float(properties.get("TIMEOUT", 3600)), process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        code = process.returncode
        result = "skip" if code == properties.get("SKIP_RETURN_CODE") else "fail" if code else "ok"
        said.seek(0)
        return usage.ru_utime + usage.ru_stime, result, said.read().decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("-R", default="", metavar="REGEX")
    parser.add_argument("-j", type=int, default=1, metavar="N")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    listed = json.loads(subprocess.run(["ctest", "--preset", args.preset, "--show-only=json-v1"], check=True, cwd=ROOT,
                                       capture_output=True, text=True).stdout)
    tests = [t for t in listed["tests"] if re.search(args.R, t["name"]) and "command" in t]
    if not tests:
        sys.exit(f"test_costs.py: preset {args.preset} has no test that matches '{args.R}'")
    rows = []
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for test, (seconds, result, said) in zip(tests, pool.map(run_test, tests)):
            row = f"{seconds:8.2f} {result:4} {test['name']}"
            rows.append(row)
            if result == "fail":
                print(f"{said[-2000:]}\n{row}", file=sys.stderr, flush=True)
            if args.out:
                with args.out.open("a") as file:
                    print(row, file=file)
    for row in sorted(rows):
        print(row)
    failed = sum(" fail " in row for row in rows)
    print(f"{sum(float(row.split()[0]) for row in rows):8.2f} seconds of {len(rows)} tests, {failed} failed")
    sys.exit(failed > 0)


main()
