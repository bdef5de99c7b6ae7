#!/usr/bin/env python3
"""gen.py - writes damaged safetensors files, each named after its only defect. The files ok_* are
valid, and are named after something that looks like a defect.

Uses only the standard library, because the safetensors library refuses to write most of the files.
Run in this directory.
"""
import json
import struct


def write(name, header, data=b"", length=None):
    """Writes a file. header: a dict, or raw bytes. length: the value of the first eight bytes; by
    default the length of the header."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        header += b" " * (-len(header) % 8)
    claim = len(header) if length is None else length
    with open(name + ".safetensors", "wb") as f:
        f.write(struct.pack("<Q", claim) + header + data)


def t(begin, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


two = {"a": t(0, 16, [4]), "b": t(16, 24, [2])}
d24 = bytes(range(24))

open("empty_file.safetensors", "wb").close()
open("no_length.safetensors", "wb").write(b"\x10\0\0")
write("truncated_header", json.dumps(two).encode()[:40], length=112)
write("header_longer_than_file", two, d24, length=1 << 20)
write("header_longer_by_one", {}, length=9)
write("header_length_negative", two, d24, length=(1 << 64) - 8)
write("header_not_json", b"{'a': 1}", d24)
write("header_not_an_object", b"[1, 2]  ", d24)
write("header_cut_json", b'{"a":{"dtype":"F32"', d24)
write("bytes_after_json", b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}x', d24[:16])
write("overlapping_offsets", {"a": t(0, 16, [4]), "b": t(12, 20, [2])}, d24[:20])
write("same_bytes_twice", {"a": t(0, 16, [4]), "b": t(0, 16, [4])}, d24[:16])
write("hole", {"a": t(0, 16, [4]), "b": t(20, 28, [2])}, bytes(28))
write("hole_at_start", {"a": t(8, 24, [4])}, d24)
write("shape_exceeds_data", {"a": t(0, 16, [4]), "b": t(16, 24, [3])}, d24)
write("shape_below_data", {"a": t(0, 16, [4]), "b": t(16, 24, [1])}, d24)
write("past_end", {"a": t(0, 16, [4]), "b": t(16, 32, [4])}, d24)
write("truncated_data", two, d24[:20])
write("trailing_bytes", two, d24 + b"xyz")
write("data_without_tensor", {}, b"\0" * 8)
write("negative_shape", {"a": t(0, 16, [-4])}, d24[:16])
write("negative_shape_pair", {"a": t(0, 16, [-2, -2])}, d24[:16])
write("fractional_shape", {"a": t(0, 16, [4.5])}, d24[:16])
write("huge_shape", {"a": t(0, 16, [1 << 32, 1 << 32])}, d24[:16])
write("shape_past_int64", {"a": t(0, 16, [1 << 70])}, d24[:16])
write("shape_of_strings", {"a": t(0, 16, ["4"])}, d24[:16])
write("nine_dimensions", {"a": t(0, 4, [1] * 9)}, d24[:4])
write("negative_offset", {"a": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}, d24[:16])
write("offsets_backwards", {"a": t(16, 0, [4])}, d24[:16])
write("three_offsets", {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8, 16]}}, d24[:16])
write("unknown_dtype", {"a": t(0, 16, [4], "F31")}, d24[:16])
write("lower_case_dtype", {"a": t(0, 16, [4], "float32")}, d24[:16])
write("missing_dtype", {"a": {"shape": [4], "data_offsets": [0, 16]}}, d24[:16])
write("missing_shape", {"a": {"dtype": "F32", "data_offsets": [0, 16]}}, d24[:16])
write("missing_offsets", {"a": {"dtype": "F32", "shape": [4]}}, d24[:16])
write("tensor_is_a_number", {"a": 7}, b"")
write("duplicate_tensor",
      b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}',
      d24[:16])
write("nul_in_name", b'{"a\\u0000b":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', d24[:16])
write("raw_nul_in_name", b'{"a\0b":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', d24[:16])
write("bad_utf8", b'{"a\xc3(":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', d24[:16])
write("metadata_not_an_object", {"__metadata__": "pt", **two}, d24)
write("metadata_of_numbers", {"__metadata__": {"format": 1}, **two}, d24)

# Writes valid files that a simple reader may refuse or read wrongly.
write("ok_brace_in_metadata", {"__metadata__": {"format": "pt", "note": '}{"a":[1,2]}\\"'}, **two}, d24)
write("ok_600_tensors", {"layer.%d" % i: t(i, i + 1, [1], "U8") for i in range(600)}, bytes(600))
write("ok_no_tensors", {"__metadata__": {"format": "pt"}})
write("ok_empty_tensors", {"e0": t(0, 0, [0]), "a": t(0, 16, [4]), "e1": t(16, 16, [3, 0, 2]), "s": t(16, 20, [])},
      d24[:20])
write("ok_listed_backwards", {"b": t(16, 24, [2]), "a": t(0, 16, [4])}, d24)
write("ok_not_aligned", b'{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}', b"xyz")
write("ok_unicode_name", {"größe.語\n": t(0, 16, [4])}, d24[:16])
