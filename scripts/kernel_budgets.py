#!/usr/bin/env python3
"""kernel_budgets.py - compares registers, stack and shared memory of all CUDA kernels of a build
with tests/kernels/budgets.txt, without a GPU.

The script reads the cubins in the object files. They are in the fatbins of the section .nv_fatbin,
possibly compressed by zstd. A kernel's row has the largest numbers of all instances of its
template, but the smallest number of blocks. The script fails if a kernel has no row, or needs more
registers, stack or static shared memory than its row allows. It also fails if a kernel with a
launch bound runs fewer blocks on a multiprocessor than its row says. It compares only the compute
capabilities of the build.

Usage: kernel_budgets.py BUILD            compares; exit 77: the build has no CUDA objects
       kernel_budgets.py BUILD --write    writes the columns of the build's compute capabilities"""
import collections
import ctypes
import ctypes.util
import pathlib
import re
import struct
import subprocess
import sys

TABLE = pathlib.Path(__file__).resolve().parent.parent / "tests/kernels/budgets.txt"
FATBIN, CUBIN, ZSTD = 0xBA55ED50, 2, b"\x28\xb5\x2f\xfd"
# Numbers of three attributes of a kernel in .nv.info: the largest number of threads, the size of a
# frame, and the number of registers.
MAX_THREADS, FRAME_SIZE, REGISTERS = 0x05, 0x11, 0x2F
REGISTERS_OF_MULTIPROCESSOR, GRANULE = 65536, 256  # registers of a warp are a multiple of GRANULE
Figures = collections.namedtuple("Figures", "threads registers stack shared blocks")


def sections(elf):
    """Yields (name, type, bytes, size, link) of each section of a 64-bit ELF file."""
    at, = struct.unpack_from("<Q", elf, 40)
    size, n, names = struct.unpack_from("<HHH", elf, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", elf, at + i * size) for i in range(n)]
    text = rows[names][4]
    for row in rows:
        name = elf[text + row[0]:elf.index(b"\0", text + row[0])].decode()
        yield name, row[1], b"" if row[1] == 8 else elf[row[4]:row[4] + row[5]], row[5]


def inflate(data, n):
    if not data.startswith(ZSTD):
        sys.exit("kernel_budgets.py: a cubin is compressed, but not with zstd")
    zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    zstd.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(n)
    got = zstd.ZSTD_decompress(out, n, data, len(data))
    if got != n:
        sys.exit(f"kernel_budgets.py: a cubin has {got} bytes after decompression, wanted {n}")
    return out.raw


def cubins(fat):
    """Yields (compute capability, cubin) of the fatbins in a section."""
    at = 0
    while at + 16 <= len(fat):
        magic, _, head, n = struct.unpack_from("<IHHQ", fat, at)
        if magic != FATBIN:
            at += 8  # alignment
            continue
        entry, end = at + head, at + head + n
        while entry < end:
            kind, _, size, n_bytes, packed = struct.unpack_from("<HHIQI", fat, entry)
            arch, = struct.unpack_from("<I", fat, entry + 28)
            whole, = struct.unpack_from("<Q", fat, entry + 56)
            data = fat[entry + size:entry + size + n_bytes]
            if kind == CUBIN:
                yield arch, inflate(data[:packed], whole) if packed else data
            entry += size + n_bytes
        at = end


def attributes(info):
    """Yields (attribute, value's bytes) of a section .nv.info."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, n = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == 4:  # the value follows
            yield attribute, info[at:at + n]
            at += n


def kernels(cubin):
    """Yields (mangled name, Figures) of each kernel."""
    parts = {name: (data, size) for name, _, data, size in sections(cubin)}
    names, text = parts[".symtab"][0], parts[".strtab"][0]
    name_of = lambda i: text[(at := struct.unpack_from("<I", names, 24 * i)[0]):text.index(b"\0", at)].decode()
    stack, registers = {}, {}
    for attribute, value in attributes(parts[".nv.info"][0]):
        if attribute in (FRAME_SIZE, REGISTERS):
            symbol, figure = struct.unpack("<II", value)
            (stack if attribute == FRAME_SIZE else registers)[name_of(symbol)] = figure
    for section in parts:
        if not section.startswith(".nv.info."):
            continue
        name = section[len(".nv.info."):]
        if name not in registers or f".nv.constant0.{name}" not in parts:  # a function that kernels call
            continue
        threads = [struct.unpack("<III", v) for a, v in attributes(parts[section][0]) if a == MAX_THREADS]
        n = threads[0][0] * threads[0][1] * threads[0][2] if threads else 0
        yield name, Figures(n, registers[name], stack.get(name, 0), parts.get(f".nv.shared.{name}", (b"", 0))[1],
                            blocks(n, registers[name]))


def plain(names):
    """Returns the name of the template of each mangled kernel."""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return {m: re.sub(r"^void ", "", re.sub(r"<.*|\(.*", "", d.replace("(anonymous namespace)::", "")))
            for m, d in zip(names, text.splitlines())}


def measure(build):
    found = collections.defaultdict(dict)  # template -> capability -> Figures
    everything = []
    for path in sorted(build.glob("CMakeFiles/osh_*.dir/**/*.cu.o")):
        for name, _, data, _ in sections(path.read_bytes()):
            if name == ".nv_fatbin":
                everything += [(arch, *k) for arch, cubin in cubins(data) for k in kernels(cubin)]
    name_of = plain(sorted({m for _, m, _ in everything}))
    for arch, mangled, figures in everything:
        found[name_of[mangled]].setdefault(arch, []).append(figures)
    for row in found.values():
        for arch, all_of_it in row.items():
            row[arch] = Figures(*map(max, *all_of_it)) if len(all_of_it) > 1 else all_of_it[0]
            row[arch] = row[arch]._replace(blocks=min(f.blocks for f in all_of_it))
    return found


def blocks(threads, registers):
    """Returns the number of blocks for which a multiprocessor has registers; 0: no launch bound."""
    warp = -(-registers * 32 // GRANULE) * GRANULE
    return REGISTERS_OF_MULTIPROCESSOR // (warp * -(-threads // 32)) if threads else 0


def read_table():
    lines = [line.split() for line in TABLE.read_text().splitlines() if line and line[0] != "#"] if TABLE.exists() else []
    if not lines:
        return {}
    heads = [int(h[3:]) for h in lines[0][2:]]
    return {line[0]: (int(line[1]), {a: tuple(map(int, c.split("/"))) for a, c in zip(heads, line[2:]) if c != "-"})
            for line in lines[1:]}


def write_table(found, table):
    archs = sorted({a for row in found.values() for a in row} | {a for _, row in table.values() for a in row})
    text = TABLE.read_text().split("\nkernel ")[0] + "\n" if TABLE.exists() else ""
    rows = [["kernel", "threads"] + [f"sm_{a}" for a in archs]]
    for name in sorted(found):
        old = table.get(name, (0, {}))[1]
        cells = {**old, **{a: (f.registers, f.stack, f.shared, f.blocks) for a, f in found[name].items()}}
        rows.append([name, str(max(f.threads for f in found[name].values()))] +
                    ["/".join(map(str, cells[a])) if a in cells else "-" for a in archs])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    TABLE.write_text(text + "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows) + "\n")


def main():
    found, table, bad = measure(pathlib.Path(sys.argv[1])), read_table(), []
    if not found:
        print("skip: the build has no CUDA objects")
        sys.exit(77)
    if "--write" in sys.argv:
        return write_table(found, table)
    for name, row in sorted(found.items()):
        for arch, f in sorted(row.items()):
            budget = table.get(name, (0, {}))[1].get(arch)
            if not budget:
                bad.append(f"{name}, sm_{arch}: no row in {TABLE.name}; it has {f.registers}/{f.stack}/{f.shared}/{f.blocks}")
                continue
            for what, have, most in zip(("registers", "bytes of stack", "bytes of shared memory"), f[1:4], budget):
                if have > most:
                    bad.append(f"{name}, sm_{arch}: {have} {what}, wanted at most {most}")
            if f.blocks < budget[3]:
                bad.append(f"{name}, sm_{arch}: {f.blocks} blocks of {f.threads} threads on a multiprocessor, wanted {budget[3]}")
    print("\n".join(bad) or f"{len(found)} kernels of {', '.join(sorted({f'sm_{a}' for r in found.values() for a in r}))} keep their budgets")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
