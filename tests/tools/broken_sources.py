"""broken_sources.py - makes faults in quantized sources: a tensor of a module is missing, or has
another dtype or shape. The commands plan, eval, inspect and verify, and a run, must refuse a source
without the tensor. plan must also refuse the other faults. Each message must name the tensor.

usage: broken_sources.py ONESHOT DATA OUTPUT MODULE SOURCE...
       OUTPUT: an output of another model, for verify

MODULE is the beginning of names of tensors. Each tensor whose name begins with MODULE is left out,
then written in other dtypes, and then with two more dimensions."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from tensors import read, write

SIZES = {"I64": 8, "I32": 4, "F32": 4, "BF16": 2, "F16": 2, "I8": 1, "U8": 1, "F8_E4M3": 1}
FLOATS = ("BF16", "F16", "F32")  # a scale may have any of these dtypes


def commands(oneshot, data, source, output):
    quiet = ["--progress", "none"]
    return {"plan": [oneshot, "plan", "--model", source, "--scheme", "W8A16"],
            "a run": [oneshot, "--model", source, "--scheme", "W8A16", "--output", "made", *quiet],
            "eval": [oneshot, "eval", "--model", source, "--dataset", data, "--max-seq-length", "32", *quiet],
            "inspect": [oneshot, "inspect", source],
            "verify": [oneshot, "verify", output, "--model", source]}


def check(what, name, command):
    """Checks that the exit code is 1 and that the message names the tensor."""
    p = subprocess.run(command, capture_output=True, text=True, errors="replace")
    said = p.stderr if command[1] != "verify" else p.stdout + p.stderr
    # the message may name one expert of a stack
    said = re.sub(r"experts\.\d+\.", "experts.", said).replace(".weight_scale_inv", "_scale_inv")
    if p.returncode != 1 or name.replace(".weight_scale_inv", "_scale_inv") not in said:
        sys.exit(f"{what}: exit {p.returncode}, wanted 1 and {name}: {' '.join(command)}\n{said[-600:]}")


def others(leaf, dtype):
    """Returns dtypes of the same kind that no program writes for this tensor."""
    if dtype in FLOATS and "global" not in leaf:
        return ["I32"]
    return {"I64": ["F32"], "I32": ["F32"], "F32": ["F16"], "I8": ["F16"], "U8": ["I8"], "F8_E4M3": ["BF16"]}[dtype]


def main():
    oneshot, data, output, modules = sys.argv[1:5]
    n = 0
    # under sanitizers `oneshot plan` reads every source; the other commands read only the first one
    sanitized = os.environ.get("SANITIZED")
    for source in sys.argv[5:]:
        there = read(pathlib.Path(source) / "model.safetensors")
        parts = [name for name in there if name.startswith(tuple(modules.split(",")))]
        if len(parts) < 2:
            sys.exit(f"{source} has {parts} of {modules}")
        shutil.rmtree("broken", ignore_errors=True)
        shutil.copytree(source, "broken")
        path = pathlib.Path("broken/model.safetensors")
        every = commands(oneshot, data, "broken", output)
        for name in parts:
            dtype, shape, raw = there[name]
            write(path, {k: t for k, t in there.items() if k != name})
            for which, command in every.items():
                if sanitized and which != "plan" and source != sys.argv[5]:
                    continue
                check(f"{source} without {name}, {which}", name, command)
            for other in others(name, dtype):
                count = len(raw) // SIZES[dtype]
                write(path, {**there, name: (other, shape, bytes(count * SIZES[other]))})
                check(f"{source} with {name} as {other}", name, every["plan"])
            if len(raw) > SIZES[dtype]:  # a tensor with one number may have any number of dimensions
                write(path, {**there, name: (dtype, [*shape, 1, 1], raw)})
                check(f"{source} with {name} of two dimensions more", name, every["plan"])
            n += 1
    if pathlib.Path("made").exists():
        sys.exit("a refused run left an output")
    print(f"{n} tensors of {len(sys.argv) - 5} sources: each is missed")


main()
