#!/usr/bin/env python3
"""check_commands.py - checks that each command of the pages is run by a test, or is in a short list
with the reason.

A command is a line of a code block that begins with a program or a script. tests/examples/pages.sh
runs all blocks ```sh except ```sh elsewhere (run_page.py). tests/examples/commands.sh runs the
commands of oneshot in indented blocks, in a directory with small files for the names that the pages
use: DIR is a model, calib.jsonl is data, and OUT is an output. NOT_RUN lists the commands that
neither script runs. A row of NOT_RUN that is on no page is an error, too.

Usage: check_commands.py [--run]      --run: runs the commands of oneshot, in such a directory"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN_BY_PAGES = {"docs/how-to/jobs.md"} | {
    f"docs/tutorials/{what}.md" for what in ("first-run", "fine-tuned-model", "larger-than-memory", "eight-gb-gpu")} | {
    # tests/examples/adding.sh runs the commands of these pages: docs/internals/adding-*.md
    f"docs/internals/adding-{what}.md"
    for what in ("a-format", "a-model", "a-modifier", "a-scheme", "a-source", "an-observer", "an-op")}
COMMAND = re.compile(r"(oneshot|ctest|cmake|cpack|python3?|pip3?|docker|bash|man|sudo|vllm|cd|export|(\./)?\S+\.(sh|py))"
                     r"(\s|$)")
INSTALLS = "it installs packages; .ci/run calls it"
NOT_RUN = [  # page, beginning of the command, reason why no test runs it
    ("README.md", "scripts/quickstart.sh", "it installs packages and builds; run it by hand, in a clean clone"),
    ("README.md", "scripts/test.sh", INSTALLS),
    ("CONTRIBUTING.md", "scripts/test.sh", INSTALLS),
    ("CONTRIBUTING.md", "scripts/slow.sh", "it takes minutes; .ci/run runs the same tests with fewer rounds"),
    ("CONTRIBUTING.md", "cmake --preset asan", ".ci/run makes this build and runs its tests"),
    ("docs/tutorials/first-run.md", "scripts/install-deps.sh", INSTALLS),
    ("docs/tutorials/first-run.md", "cmake --preset release", "scripts/test.sh makes this build"),
    ("docs/tutorials/first-run.md", "export PATH", "it changes the shell of the reader"),
    ("docs/tutorials/first-run.md", "vllm serve", "it needs vLLM; run it by hand, see docs/internals/quality-measurements.md"),
    ("docs/tutorials/fine-tuned-model.md", "vllm serve", "it needs vLLM"),
    ("docs/tutorials/eight-gb-gpu.md", "oneshot --model Llama-3-8B", "it needs a GPU"),
    ("docs/how-to/hub.md", "oneshot pull", "it needs a network; tests/cli/hub_pull.sh pulls from an emulated Hub"),
    ("docs/how-to/cuda.md", "scripts/check-gpu.sh", "it needs a GPU; tests/cli/check_gpu.sh and tests/play/check_gpu.sh run its steps"),
    ("docs/how-to/cuda.md", "cmake --preset release -B build/gpu", "it needs nvcc; tests/cli/check_gpu.sh packs a build"),
    ("docs/how-to/cuda.md", "cmake --build build/gpu", "it needs nvcc; tests/cli/check_gpu.sh packs a build"),
    ("docs/internals/adding-a-model.md", "scripts/family.py", "it needs transformers; run it by hand"),
    ("docs/how-to/calibration.md", "scripts/calibration.sh", "it takes minutes; run it by hand"),
    ("docs/internals/cuda.md", "ctest --preset asan -R play", ".ci/run runs these tests"),
    ("docs/how-to/packages.md", "cd build/release", "it changes the shell of the reader"),
    ("docs/how-to/packages.md", "cpack", "tests/cli/packages.sh runs it"),
    ("docs/how-to/packages.md", "python3 packaging/wheel.py", "tests/cli/wheel.sh runs it"),
    ("docs/how-to/packages.md", "scripts/release.sh", "it needs root, debootstrap and 30 minutes; run it by hand, for a release"),
    ("docs/how-to/unknown-model.md", "pip install", "it needs pip and the network"),
    ("docs/how-to/unknown-model.md", "python -m oneshot.template", "tests/cli/template_torch.sh runs it"),
    ("docs/how-to/unknown-model.md", "oneshot --model MODEL_DIR", "it needs the template that the command before it writes; tests/cli/template_torch.sh makes a template"),
    ("docs/how-to/python.md", "pip install", "it needs pip and a wheel; tests/cli/wheel.sh unpacks a wheel"),
    ("docs/explanation/performance.md", "scripts/bench.sh", "it takes an hour, and needs LLM Compressor or llama.cpp; run it by hand"),
    ("docs/internals/measurements.md", "scripts/bench.sh", "it takes an hour, and needs LLM Compressor or llama.cpp; run it by hand"),
    ("docs/internals/measurements.md", "scripts/linearity.sh", "it takes minutes on an idle machine; tests/cli/linearity.sh runs it with a small model"),
    ("docs/internals/measurements.md", "scripts/schedule.sh", "it takes a minute, and needs a model; tests/cli/schedule.sh runs it with a small model"),
    ("docs/internals/measurements.md", "scripts/proportion.sh", "it takes minutes on an idle machine; run it by hand"),
    ("docs/explanation/sequential-onloading.md", "scripts/onloading.sh", "it takes minutes; tests/cli/profiles.sh runs it with a small model"),
    ("docs/explanation/sequential-onloading.md", "python3 examples/make-model.py", "it writes 200 MB; examples/moe.sh makes a small model"),
    ("docs/internals/quality-measurements.md", "oneshot eval", "it needs a data set that the repository lacks; a test runs a command of docs/how-to/jobs.md"),
]


PROFILE = ("memory_usage:\n" + "".join(f'- {{step: "{step}", relative_time_secs: {t}, cpu_memory_mb: {t + 1}}}\n'
                                       for t, step in enumerate(("Start", "Calibration Start", "Calibration End"))))


def pages():
    return sorted(p for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
                  if p.name != "command-line.md")  # it is help text


def commands(page):
    """Returns (line, command, run by pages.sh) for each command of a page."""
    fence, text, start = None, "", 0
    for i, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:].strip()
            continue
        is_shell = fence.startswith("sh") if fence is not None else line.startswith("    ")
        if text:
            text += "\n" + line.strip()
        elif is_shell and COMMAND.match(line.strip()):
            text, start = line.strip(), i
        if text and not text.endswith("\\"):
            yield start, text, fence is not None and "elsewhere" not in fence
            text = ""


def reason(name, command):
    for row in NOT_RUN:
        if row[0] == name and command.startswith(row[1]):
            return row
    return None


def check():
    wrong, used, n, n_listed = [], set(), 0, 0
    for page in pages():
        name = str(page.relative_to(ROOT))
        for line, command, by_pages in commands(page):
            n += 1
            row = reason(name, command)
            if row:
                used.add(row)
                n_listed += 1
            elif by_pages and name not in RUN_BY_PAGES:
                wrong.append(f"{name}:{line}: tests/examples/pages.sh does not run this page: {command}")
            elif not by_pages and not command.startswith("oneshot "):
                wrong.append(f"{name}:{line}: no test runs this command, and NOT_RUN of check_commands.py does not list it: {command}")
    wrong += [f"check_commands.py: NOT_RUN lists '{row[1]}', which {row[0]} does not have" for row in NOT_RUN if row not in used]
    print("\n".join(wrong + [f"{n} commands, {n_listed} of them listed as not run, {len(wrong)} wrong"]))
    return 1 if wrong else 0


def value_of(command, flag):
    m = re.search(flag + r"\s+(\S+)", command)
    return m.group(1) if m else None


def make_output(path):
    subprocess.run(["oneshot", "--model", "DIR", "--scheme", "W4A16", "--output", path, "--progress", "none"], check=True,
                   stdout=subprocess.DEVNULL)


def run():
    """Runs the commands in the directory that tests/examples/commands.sh has made for them."""
    n, last = 0, {}
    for page in pages():
        name = str(page.relative_to(ROOT))
        for line, command, by_pages in commands(page):
            if by_pages or not command.startswith("oneshot ") or reason(name, command):
                continue
            output, reads = value_of(command, "--output"), value_of(command, "verify")
            if output and last.get(output) != command.split("  #")[0]:
                shutil.rmtree(output, ignore_errors=True)
            last[output] = command.split("  #")[0]
            if command.startswith("oneshot eval"):
                reads = value_of(command, "--model")
            if reads and not pathlib.Path(reads).exists():
                make_output(reads)
            for profile in re.findall(r"\S+\.yaml", command) if command.startswith("oneshot report") else []:
                pathlib.Path(profile).write_text(PROFILE)
            if command.split()[:2] == ["oneshot", "bench"]:
                command += " --seconds 0.01"  # tests/cli/bench.sh has other options
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name}:{line}: exit code {done.returncode}: {command}\n{done.stdout}")
            n += 1
    print(f"{n} commands")
    if n < 10:
        sys.exit("found {n} commands, want at least 10")
    return 0


sys.exit(run() if sys.argv[1:] == ["--run"] else check() if len(sys.argv) == 1 else __doc__)
