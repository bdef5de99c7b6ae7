"""proofs.py - reads and writes tests/golden/families/proofs.json: the proofs of the families of
tiny_families.py and renamed_families.py; part of family.py, compare_families.py, vllm_families.py
and coverage.py.

  transformers   the version of transformers that was compared
  bf16           {family: error of BF16 logits over that of transformers} (family.py)
  codes          {family: "DIFFERENT of ALL"}: codes of GPTQ that differ from LLM Compressor's
                 (compare_families.py --gptq)
  vllm           {family: true}: vLLM generates tokens from the output (vllm_families.py)
  families       {family: {architecture, but}}. but: the reason why transformers does not load the
                 output; null: it loads the output (family.py)"""
import fcntl
import json
import pathlib

PATH = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "families" / "proofs.json"


def read():
    return {"transformers": None, "bf16": {}, "codes": {}, "vllm": {}, "families": {}} | json.loads(PATH.read_text())


def write(kept):
    """Writes a line for each family, so that merges are easy."""
    parts = [f'"transformers": {json.dumps(kept["transformers"])}']
    for key in ("bf16", "codes", "vllm", "families"):
        rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(kept[key].items()))
        parts.append(f'"{key}": {{\n{rows}\n}}')
    PATH.write_text("{" + ", ".join(parts) + "}\n")


def change(key, family, value, **more):
    """Sets the value of a family in member `key`, or removes the family (value None). `more`: other
    members of the file to set. Several scripts may do this at the same time."""
    with open(PATH) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = read() | more
        kept[key].pop(family, None)
        kept[key] |= {} if value is None else {family: value}
        write(kept)


def architectures(kept, key):
    """Returns the architectures of the families that are in a member of the file."""
    return {kept["families"][f]["architecture"] for f in kept[key] if f in kept["families"]}
