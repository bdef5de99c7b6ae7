# coverage.sh - tests the report of a mixture of experts. The report must have the number of tokens
# of each expert, and must list the experts that get almost no tokens. Each token must count once,
# for every pipeline and batch size. (A router of zeros sends all tokens to the first experts.)
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/experts.sh"
python3 - <<'P'
import glob, json, struct
name = "model.layers.2.mlp.gate.weight"
for path in glob.glob("model/*.safetensors"):
    with open(path, "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        if name in head:
            first, end = head[name]["data_offsets"]
            f.seek(8 + n + first)
            f.write(bytes(end - first))
            break
else:
    raise SystemExit("no router")
P
for flags in "" "--batch-size 5 --threads 1" "--mem-opt-level 2" "--sequential-targets Linear" "--pipeline basic"; do
    rm -rf out
    "$ONESHOT" --model model --recipe recipe.yaml --dataset model/calibration.jsonl --output out --progress none $flags >/dev/null
    python3 - "$flags" <<'P'
import json, re, sys
d, page = json.load(open("out/oneshot-report.json")), open("out/oneshot-report.html").read()
one, two = d["experts"]
assert [one["router"], two["router"]] == ["model.layers.1.mlp.gate", "model.layers.2.mlp.gate"], d["experts"]
for r in d["experts"]:
    assert r["tokens"] == d["tokens"] and sum(r["tokens_of_experts"]) == 2 * d["tokens"], (sys.argv, r)
assert min(one["tokens_of_experts"]) > 0 and two["tokens_of_experts"] == 2 * [d["tokens"]] + 4 * [0], (sys.argv, two)
rows = dict(re.findall(r"<tr><td>(model\.layers\.\d\.mlp\.gate)</td>.*<td>([^<]*)</td></tr>", page.replace("<wbr>", "")))
assert rows == {one["router"]: "none", two["router"]: "2 (0), 3 (0), 4 (0), 5 (0)"}, rows
P
done
