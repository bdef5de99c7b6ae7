"""pad.py - copies a model and adds channels of zeros to its MLPs:

  pad.py MODEL OUT SIZE

All gate_proj and up_proj get rows of zeros, and all down_proj get columns of zeros, up to SIZE."""
import json
import shutil
import sys
from pathlib import Path

import tensors

model, out, size = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
shutil.copytree(model, out, dirs_exist_ok=True)
for path in out.glob("*.safetensors"):
    shard = tensors.read(path)
    for name, (dtype, (rows, columns), raw) in [(n, t) for n, t in shard.items() if len(t[1]) == 2]:
        if name.endswith(("gate_proj.weight", "up_proj.weight")):
            shard[name] = dtype, [size, columns], raw + bytes(2 * columns * (size - rows))
        elif name.endswith("down_proj.weight"):
            row, zeros = 2 * columns, bytes(2 * (size - columns))
            whole = b"".join(raw[i * row : (i + 1) * row] + zeros for i in range(rows))
            shard[name] = dtype, [rows, size], whole
    tensors.write(path, shard)
config = json.loads((out / "config.json").read_text())
config["moe_intermediate_size" if "moe_intermediate_size" in config else "intermediate_size"] = size
(out / "config.json").write_text(json.dumps(config))
