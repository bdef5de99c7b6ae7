"""tensors.py - reads and writes safetensors files and BF16 without a library."""
import json
import struct


def bf16(raw):
    return [struct.unpack("<f", struct.pack("<I", x << 16))[0] for x in struct.unpack(f"<{len(raw) // 2}H", raw)]


def to_bf16(values):  # converts values that are exact in BF16
    return struct.pack(f"<{len(values)}H", *(struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values))


def read(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]])
            for k, v in json.loads(data[8 : 8 + n]).items() if k != "__metadata__"}


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))
