# clear_tensor.py MODEL NAME - sets a tensor of a directory of safetensors files to zeros.
import glob
import json
import struct
import sys

for path in glob.glob(sys.argv[1] + "/*.safetensors"):
    with open(path, "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        if sys.argv[2] in head:
            first, end = head[sys.argv[2]]["data_offsets"]
            f.seek(8 + n + first)
            f.write(bytes(end - first))
            break
else:
    raise SystemExit(sys.argv[2] + " is not there")
