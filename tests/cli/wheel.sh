# wheel.sh - tests packaging/wheel.py. The wheel has the files that its RECORD lists. After it is
# unpacked, it works as a package and as a command, and gives the same bytes. tests/cli/python.sh
# tests the package.
set -euo pipefail
build=$(dirname "$ONESHOT") model=$OSH_SOURCE_DIR/examples/docs-llama-3m
[ -z "$SANITIZED" ] || { echo "the sanitizers' runtime is no library of the wheel"; exit 77; }
mkdir site
python3 "$OSH_SOURCE_DIR/packaging/wheel.py" "$build" --out .
python3 -m zipfile -e oneshot-*-py3-none-manylinux_2_*_x86_64.whl site
# pip makes a file executable only if the mode in the wheel is that of a regular, executable file
python3 -c 'import sys, zipfile; assert zipfile.ZipFile(sys.argv[1]).getinfo("oneshot/bin/oneshot").external_attr >> 16 == 0o100755' ./*.whl
grep -qx 'oneshot = oneshot.__main__:main' site/*.dist-info/entry_points.txt
rm ./*.whl
"$ONESHOT" --model "$model" --dataset "$model/data/calibration.jsonl" --scheme W4A16 --method gptq \
    --num-calibration-samples 8 --max-seq-length 64 --output cli --progress none --threads 2 >/dev/null
# The command starts the program of the wheel, with the libraries of the wheel.
command() { env -u ONESHOT_LIBRARY PYTHONPATH=site LD_DEBUG=files LD_DEBUG_OUTPUT=opened python3 -m oneshot "$@"; }
command --version >refused 2>&1 && { echo "a program that is not executable starts"; exit 1; }
grep -q '^oneshot: cannot start .*/site/oneshot/bin/oneshot: Permission denied' refused || { cat refused; exit 1; }
chmod +x site/oneshot/bin/oneshot
command --model "$model" --dataset "$model/data/calibration.jsonl" --scheme W4A16 --method gptq \
    --num-calibration-samples 8 --max-seq-length 64 --output wheel --progress none --threads 2 >/dev/null
cmp cli/model.safetensors wheel/model.safetensors
for name in libcjson libopenblas libgfortran; do
    grep -q "calling init: $PWD/site/oneshot/.*/$name\.so" opened.* || { echo "$name is not the wheel's"; exit 1; }
done
code=0
command --no-such-flag 2>/dev/null || code=$?
[ $code = 2 ] || { echo "exit code $code"; exit 1; }
env -u ONESHOT_LIBRARY PYTHONPATH=site python3 - "$model" "$("$ONESHOT" --version | sed -n "s/^oneshot //p")" <<'END'
import base64, ctypes, csv, hashlib, json, os, pathlib, signal, sys, threading

def loaded():
    return {pathlib.Path(line.split()[-1]) for line in open("/proc/self/maps") if line.split()[-1].startswith("/")}

before = loaded()
import oneshot as o

model = sys.argv[1]
data = model + "/data/calibration.jsonl"
few = dict(num_calibration_samples=8, max_seq_length=64, threads=2)
recipe = {"quant_stage": {"quant_modifiers": {"GPTQModifier": {"scheme": "W4A16", "targets": ["Linear"],
                                                               "ignore": ["lm_head"]}}}}

def refused(status, part, call):
    try:
        call()
    except o.OneshotError as e:
        assert e.status == status and part in str(e), (e.status, str(e))
    else:
        raise AssertionError("was taken")

# Checks the list of files in the wheel.
site = pathlib.Path("site")
rows = list(csv.reader(open(next(site.glob("*.dist-info")) / "RECORD")))
assert {r[0] for r in rows} == {str(p.relative_to(site)) for p in site.rglob("*") if p.is_file() and p.suffix != ".pyc"}
for name, digest, size in rows:
    if digest:
        got = base64.urlsafe_b64encode(hashlib.sha256((site / name).read_bytes()).digest()).rstrip(b"=").decode()
        assert digest == "sha256=" + got and int(size) == (site / name).stat().st_size, name
assert o.version() == sys.argv[2]

# An exception in a callback must end the job. The same call must then continue the job, although
# the recipe and the rows are Python objects, and each call writes them to new files.
rows = [json.loads(line)["text"] for line in open(data)][:8]
class Enough(Exception):
    pass
def stop(p):
    if p.finished and p.step == 2:
        raise Enough
try:
    o.oneshot(model, recipe, rows, "out", progress=stop, **few)
    raise AssertionError("was not ended")
except Enough:
    pass
assert not pathlib.Path("out").exists()
seen, log = [], []
assert o.oneshot(model, recipe, rows, "out", progress=seen.append, log=lambda *said: log.append(said), log_level="info",
                 **few) == "out"
assert any("continuing from" in text for level, text in log), log
assert seen[-1].fraction == 1 and seen[-1].name == "the output"
assert pathlib.Path("out/model.safetensors").read_bytes() == pathlib.Path("cli/model.safetensors").read_bytes()

# Values that C would truncate are refused: text with a NUL, a number of threads beyond 32 bits.
def invalid(part, call):
    try:
        call()
    except ValueError as e:
        assert part in str(e), str(e)
    else:
        raise AssertionError("was taken")
invalid("model: a NUL at byte 2", lambda: o.plan("ab\0c", recipe, rows, "out2"))
invalid("output: a NUL at byte 3", lambda: o.oneshot(model, recipe, rows, "cut\0ted"))
invalid("ignore: a NUL", lambda: o.plan(model, None, rows, "out2", scheme="W4A16", ignore=["lm_head", "x\0"]))
invalid("name: a NUL", lambda: o.plan(model, recipe, rows, "out2", **{"seed\0x": 1}))
invalid("directory: a NUL", lambda: o.verify("out\0"))
assert not pathlib.Path("cut").exists()
for threads in (2**40, 2**32 + 2, 2**31, 4097, -1, 1.5, "2"):
    invalid("threads: want a whole number from 0 to 4096", lambda: o.plan(model, recipe, rows, "out2", threads=threads))

# Tests Ctrl-C during a short job. The job waits for the signal.
passed_on, pass_on = threading.Event(), o._library.Context.interrupt
o._library.Context.interrupt = lambda self: (pass_on(self), passed_on.set())
def interrupt(p):
    if p.finished and p.step == 2:
        os.kill(os.getpid(), signal.SIGINT)
        assert passed_on.wait(100)
try:
    o.oneshot(model, recipe, rows, "out3", progress=interrupt, **few)
    raise AssertionError("was not interrupted")
except KeyboardInterrupt:
    pass
assert not pathlib.Path("out3").exists() and pathlib.Path("out3.oneshot-partial").exists()

# The loaded libraries must be those of the wheel, except libraries that Python had already loaded.
ours = {p.name.split(".so")[0] for p in site.glob("oneshot/lib/*")}
for name in loaded() - before:
    if name.name.split(".so")[0] in ours or "openblas" in name.name: # libgfortran.so.5.0.0
        assert name.parent == (site / "oneshot/lib").resolve(), name

# Tests the other jobs, and calls that are refused.
assert o.plan(model, scheme="W4A16")["memory"]
pathlib.Path("more.jsonl").write_text(open(data).read())
sets = o.plan(model, recipe, {data: None, pathlib.Path("more.jsonl"): 0.25}, **few)["data_sets"]
assert [(s["share"], s["samples"]) for s in sets] == [(0.75, 6), (0.25, 2)], sets
e = o.evaluate("out", data, max_windows=2, max_seq_length=64, reference=model)
assert 1 < e["perplexity"] < 1e4
assert "no findings" in o.verify(pathlib.Path("out"), model)
with open("out/config.json", "a") as f:
    f.write(" ")
refused(o.OneshotError.FORMAT, "config.json", lambda: o.verify("out"))
refused(o.OneshotError.USAGE, "did you mean scheme?", lambda: o.plan(model, schema="W4A16"))
refused(o.OneshotError.IO, "nowhere", lambda: o.oneshot("nowhere", scheme="W4A16", output_dir="out2"))
END
