"""gen.py - writes Parquet files with pyarrow, for test_parquet_golden.c.

Run from the repository root in an environment with pyarrow. Writes a few small files, the directory
`folder`, and rows.jsonl, which has the rows that pyarrow reads from each file. With the arguments
`judge TOOL [N]`, writes N (default 200) random files to a temporary directory, and compares the
rows that TOOL (build/release/tests/data_rows) prints with the rows that pyarrow reads."""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ["", "a", "Hello, world", "\"quoted\" \\ back", "line\nline\ttab", "é 日本 😀", "x" * 300, "common prefix one",
         "common prefix two", "\u0001\u001f", "{{ json }}"]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def any_type(r, depth):
    kinds = ["text", "int", "float", "bool"] + (["list", "struct"] * 2 if depth else [])
    kind = r.choice(kinds)
    if kind == "text":
        return r.choice([pa.string(), pa.large_string(), pa.binary()])
    if kind == "int":
        return r.choice(INTEGERS)
    if kind == "float":
        return r.choice([pa.float32(), pa.float64()])
    if kind == "bool":
        return pa.bool_()
    if kind == "list":
        return pa.list_(pa.field("element", any_type(r, depth - 1), nullable=r.random() < 0.7))
    return pa.struct([pa.field(f"f{i}", any_type(r, depth - 1), nullable=r.random() < 0.7) for i in range(r.randint(1, 3))])


def any_text(r):
    return r.choice(WORDS) if r.random() < 0.6 else "".join(r.choice("abc é\n\"") for _ in range(r.randint(0, 40)))


def any_value(r, t, nullable):
    if nullable and r.random() < 0.2:
        return None
    if pa.types.is_list(t):
        return [any_value(r, t.value_type, t.value_field.nullable) for _ in range(r.choice([0, 0, 1, 2, 5]))]
    if pa.types.is_struct(t):
        return {f.name: any_value(r, f.type, f.nullable) for f in t}
    if pa.types.is_boolean(t):
        return r.random() < 0.5
    if pa.types.is_floating(t):
        v = r.choice([0.0, -0.0, 1.5, 0.1, 1e300 if t == pa.float64() else 1e30, -2.5e-7, math.inf, -math.inf, math.nan])
        return v if r.random() < 0.5 else r.gauss(0, 10)
    if pa.types.is_integer(t):
        bits = t.bit_width
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(t) else (0, (1 << bits) - 1)
        return r.choice([low, high, max(low, min(high, r.randint(-5, 5))), r.randint(low, high)])
    return any_text(r).encode() if pa.types.is_binary(t) else any_text(r)


def encodings(r, schema):
    """Returns a random encoding, which the type allows, for each column without lists or
    structs."""
    out = {}
    for f in schema:
        t = f.type
        if pa.types.is_integer(t):
            out[f.name] = r.choice(["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"] if t.bit_width >= 32 and
                                   t in (pa.int32(), pa.int64()) else ["PLAIN", "DELTA_BINARY_PACKED"])
        elif pa.types.is_floating(t):
            out[f.name] = r.choice(["PLAIN", "BYTE_STREAM_SPLIT"])
        elif pa.types.is_boolean(t):
            out[f.name] = r.choice(["PLAIN", "RLE"])
        elif pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_binary(t):
            out[f.name] = r.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
    return out


def write(path, table, r, **given):
    dictionary = r.random() < 0.5
    options = dict(compression=r.choice(["none", "snappy", "gzip", "zstd"]), data_page_version=r.choice(["1.0", "2.0"]),
                   data_page_size=r.choice([1, 100, 3000, 1 << 20]), use_dictionary=dictionary,
                   row_group_size=r.choice([1, 7, 100, 1000]), write_page_checksum=r.random() < 0.5,
                   version=r.choice(["1.0", "2.4", "2.6"]), write_batch_size=r.choice([1, 5, 1024]),
                   dictionary_pagesize_limit=r.choice([10, 1 << 20]), write_statistics=r.random() < 0.5,
                   use_compliant_nested_type=r.random() < 0.7)
    options.update(given)
    if not options["use_dictionary"] and not any(pa.types.is_nested(f.type) for f in table.schema):
        options["column_encoding"] = encodings(r, table.schema)
    pq.write_table(table, path, **options)


def plain(v):
    """Returns the value as TOOL prints it: bytes become text, and numbers that JSON lacks become
    null."""
    if isinstance(v, float):
        return v if math.isfinite(v) else None
    if isinstance(v, bytes):
        return v.decode()
    if isinstance(v, list):
        return [plain(x) for x in v]
    return {k: plain(x) for k, x in v.items()} if isinstance(v, dict) else v


def lines(path):
    return [plain(row) for row in pq.read_table(path).to_pylist()]


def random_table(r):
    schema = pa.schema([pa.field(f"c{i}", any_type(r, r.choice([0, 0, 1, 3])), nullable=r.random() < 0.7)
                        for i in range(r.randint(1, 5))])
    n = r.choice([0, 1, 3, 50, 700])
    return pa.table({f.name: pa.array([any_value(r, f.type, f.nullable) for _ in range(n)], f.type) for f in schema},
                    schema=schema)


def judge(tool, n):
    wrong = rows = 0
    with tempfile.TemporaryDirectory() as there:
        path = os.path.join(there, "x.parquet")
        for seed in range(n):
            r = random.Random(seed)
            table = random_table(r)
            write(path, table, r)
            try:
                want = lines(path)
            except pa.ArrowInvalid as e:  # pyarrow 26 cannot read all files that it writes
                print(f"seed {seed}: pyarrow: {e}")
                want = [plain(row) for row in table.to_pylist()]
            got = subprocess.run([tool, path], capture_output=True, text=True)
            mine = [json.loads(line) for line in got.stdout.splitlines()] if not got.returncode else None
            rows += len(want)
            if json.dumps(mine) != json.dumps(want):
                wrong += 1
                print(f"seed {seed}: {got.stderr.strip()} {pq.read_schema(path)}")
                for a, b in zip(mine or [], want):
                    if json.dumps(a) != json.dumps(b):
                        print(f"  got  {json.dumps(a)[:400]}\n  want {json.dumps(b)[:400]}")
                        break
    print(f"{n} files, {rows} rows, {wrong} wrong")
    return 1 if wrong else 0


def talks(n):
    t = pa.list_(pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())]))
    rows = [None if i == 2 else [] if i == 4 else [{"role": "user", "content": f"ask {i} é"},
                                                   {"role": "assistant", "content": None if i == 1 else f"say \"{i}\""}]
            for i in range(n)]
    return pa.table({"id": pa.array(range(n), pa.int64()), "messages": pa.array(rows, t)})


def fixtures():
    os.makedirs(os.path.join(HERE, "folder"), exist_ok=True)
    r = random.Random(1)
    texts = pa.table({"text": pa.array([WORDS[i % len(WORDS)] if i % 7 else None for i in range(40)]),
                      "n": pa.array([i * i - 50 for i in range(40)], pa.int32())})
    kept = {"use_dictionary": False, "row_group_size": 15, "write_page_checksum": True, "data_page_size": 300}
    files = {
        "talks_snappy": (talks(12), dict(compression="snappy", use_dictionary=True, data_page_version="1.0")),
        "talks_zstd_v2": (talks(12), dict(compression="zstd", use_dictionary=False, data_page_version="2.0")),
        "texts_gzip": (texts, dict(compression="gzip", use_dictionary=True, data_page_version="2.0")),
        "texts_delta": (texts, dict(compression="none", **kept, column_encoding={
            "text": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED"})),
        "texts_length": (texts, dict(compression="snappy", **kept, data_page_version="2.0", column_encoding={
            "text": "DELTA_LENGTH_BYTE_ARRAY", "n": "BYTE_STREAM_SPLIT"})),
        "old_lists": (talks(6), dict(compression="none", use_compliant_nested_type=False)),
    }
    while True:  # makes tables until one has lists of lists and all kinds of numbers
        nested = random_table(r)
        if nested.num_rows == 50 and any(f.type.num_fields > 1 for f in nested.schema) and nested.num_columns > 3:
            break
    files["nested"] = (nested.slice(0, 20), dict(compression="zstd", use_dictionary=False))
    with open(os.path.join(HERE, "rows.jsonl"), "w", encoding="utf-8") as f:
        for name, (table, options) in files.items():
            path = os.path.join(HERE, name + ".parquet")
            pq.write_table(table, path, **options)
            f.write(json.dumps({"file": name, "rows": lines(path)}, ensure_ascii=False) + "\n")
    with open("examples/docs-llama-3m/data/calibration.jsonl", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f][:8]
    # writes a directory for tests/cli/data_files.sh
    for name, part in [("0", rows[:5]), ("1", rows[5:])]:
        pq.write_table(pa.Table.from_pylist(part), os.path.join(HERE, "folder", name + ".parquet"), compression="snappy")
    with open(os.path.join(HERE, "MANIFEST.json"), "w", encoding="utf-8") as f:
        json.dump({"packages": {"pyarrow": pa.__version__}}, f)
        f.write("\n")


if sys.argv[1:2] == ["judge"]:
    sys.exit(judge(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 200))
fixtures()
