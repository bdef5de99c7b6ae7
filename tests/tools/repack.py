"""repack.py - converts a checkpoint of 4-bit integers (pack-quantized), which this program wrote,
to the format of another library. The dequantized weights are equal.

usage: repack.py SOURCE OUTPUT gptq|gptq_v2|gptq_file|awq|awq_gemv|modelopt|bitsandbytes

modelopt: SOURCE must have NVFP4 (nvfp4-pack-quantized)
bitsandbytes: SOURCE must be symmetric; the output has a linear table of values instead of nf4
gptq_file: the description is in quantize_config.json instead of config.json"""
import array
import json
import pathlib
import shutil
import sys

from tensors import bf16, read, write


def words(tensor):
    """Returns the rows of an I32 matrix as lists of unsigned words."""
    _, (rows, columns), raw = tensor
    a = array.array("I", raw)
    return [a[r * columns : (r + 1) * columns] for r in range(rows)]


def turned(rows):
    return [list(column) for column in zip(*rows)]


def matrix(rows, code="I", dtype="I32"):
    return dtype, [len(rows), len(rows[0])], b"".join(array.array(code, row).tobytes() for row in rows)


def zeros_of(module, there, O):
    """Returns the zero points, as words of eight rows: [O / 8, G]."""
    if module + ".weight_zero_point" in there:
        return words(there[module + ".weight_zero_point"])
    return [[0x88888888] * there[module + ".weight_scale"][1][1] for _ in range(O // 8)]


def scales_of(module, there):
    dtype, (rows, columns), raw = there[module + ".weight_scale"]
    a = array.array("H", raw)
    return turned([a[r * columns : (r + 1) * columns] for r in range(rows)]), dtype


def gptq(module, there, how):
    codes, (scales, dtype) = words(there[module + ".weight_packed"]), scales_of(module, there)
    I, group = len(codes[0]) * 8, len(codes[0]) * 8 // len(scales)
    minus = 0 if how == "gptq_v2" else 0x11111111
    zeros = [[(w - minus) & 0xFFFFFFFF for w in row] for row in turned(zeros_of(module, there, len(codes)))]
    return {"qweight": matrix(turned(codes)), "qzeros": matrix(zeros), "scales": matrix(scales, "H", dtype),
            "g_idx": ("I32", [I], array.array("i", (i // group for i in range(I))).tobytes())}


def awq(module, there, how):
    codes, (scales, dtype) = words(there[module + ".weight_packed"]), scales_of(module, there)
    zeros = zeros_of(module, there, len(codes))
    I, O, G = len(codes[0]) * 8, len(codes), len(scales)
    if how == "awq_gemv":
        width = -(-(-(-G // 8)) // 4) * 4  # AutoAWQ pads the words of groups of 32 to multiples of 4
        rows = [[zeros[o // 8][g] >> o % 8 * 4 & 15 if g < G else 0 for g in range(width * 8)] for o in range(O)]
        packed = [[sum(row[8 * j + k] << 4 * k for k in range(8)) for j in range(width)] for row in rows]
        padded = [[*row, *[0] * (width * 8 - G)] for row in turned(scales)]
        return {"qweight": matrix(codes), "qzeros": matrix(packed), "scales": matrix(padded, "H", dtype)}
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    packed = [[sum((codes[8 * j + c][i // 8] >> i % 8 * 4 & 15) << 4 * k for k, c in enumerate(order)) for j in range(O // 8)]
              for i in range(I)]
    ordered = [[sum((row[g] >> c * 4 & 15) << 4 * k for k, c in enumerate(order)) for row in zeros] for g in range(G)]
    return {"qweight": matrix(packed), "qzeros": matrix(ordered), "scales": matrix(scales, "H", dtype)}


def modelopt(module, there, _):
    (scale,) = array.array("f", there[module + ".weight_global_scale"][2])
    return {"weight": there[module + ".weight_packed"], "weight_scale": there[module + ".weight_scale"],
            "weight_scale_2": ("F32", [], array.array("f", [1 / scale]).tobytes()),
            "input_scale": ("F32", [], array.array("f", [1]).tobytes())}


def bitsandbytes(module, there, _):
    codes, (scales, _) = words(there[module + ".weight_packed"]), scales_of(module, there)
    O, I = len(codes), len(codes[0]) * 8
    packed = bytes((w >> 8 * k & 15) << 4 | w >> 8 * k + 4 & 15 for row in codes for w in row for k in range(4))
    factors = [8 * v for row in turned(scales) for v in bf16(array.array("H", row).tobytes())]
    state = json.dumps({"quant_type": "nf4", "blocksize": I // len(scales), "dtype": "bfloat16", "shape": [O, I]}).encode()
    return {"weight": ("U8", [len(packed), 1], packed),
            "weight.quant_map": ("F32", [16], array.array("f", [(k - 8) / 8 for k in range(16)]).tobytes()),
            "weight.absmax": ("F32", [len(factors)], array.array("f", factors).tobytes()),
            "weight.quant_state.bitsandbytes__nf4": ("U8", [len(state)], state)}


def describe(how, group):
    if how == "bitsandbytes":
        return {"quant_method": "bitsandbytes", "load_in_4bit": True}
    if how == "modelopt":
        return {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    if how.startswith("awq"):
        return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
                "version": "gemv" if how == "awq_gemv" else "gemm"}
    return {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": how == "gptq", "sym": False,
            "checkpoint_format": "gptq_v2" if how == "gptq_v2" else "gptq"}


def main():
    source, output = map(pathlib.Path, sys.argv[1:3])
    how = sys.argv[3]
    there, made, group = read(source / "model.safetensors"), {}, 0
    for name, tensor in there.items():
        module, leaf = name.rsplit(".", 1)
        if module + ".weight_packed" not in there:
            made[name] = tensor
        elif leaf == "weight_packed":
            made |= {f"{module}.{k}": t for k, t in {"g": gptq, "a": awq, "m": modelopt, "b": bitsandbytes}[how[0]](module, there, how).items()}
            group = tensor[1][1] * 8 // there[module + ".weight_scale"][1][1]
    assert group, "no packed weights"
    shutil.copytree(source, output, ignore=shutil.ignore_patterns("oneshot*", "recipe.yaml", "README.md"))
    write(output / "model.safetensors", made)
    config = json.loads((output / "config.json").read_text())
    config["quantization_config"] = describe(how, group)
    if how == "gptq_file":
        (output / "quantize_config.json").write_text(json.dumps(config.pop("quantization_config")))
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n")


main()
