# report_html.sh - tests that oneshot-report.html shows names from the header of a file as text,
# never as markup, and that it loads no other file. With the argument "browser", a real browser
# shows the page.
set -euo pipefail
mkdir -p src
python3 - <<'P'
import json, struct
names = ['h.0.<script>document.title="pwned"</script>.up_proj.weight', 'h.0.<img src=x onerror=document.title="pwned">_proj.weight',
         'h.0.a&b"c\'d</td></table>_proj.weight', 'h.0.\u00e4\u20ac_proj.weight', 'x.</td></table><b>left dense</b>.weight']
head, data = {}, b""
for k, n in enumerate(names):
    body = b"".join(struct.pack("<H", 0x3C00 + (i * 37 + k) % 512) for i in range(128 * 128))
    head[n] = {"dtype": "BF16", "shape": [128, 128], "data_offsets": [len(data), len(data) + len(body)]}
    data += body
text = json.dumps(head, ensure_ascii=False).encode()
text += b" " * (-len(text) % 8)
open("src/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
json.dump({"architectures": ["Unheard"], "model_type": "unheard", "torch_dtype": "bfloat16"}, open("src/config.json", "w"))
P
"$ONESHOT" --model src --scheme W4A16 --output 'out<b>' --overwrite --progress none >/dev/null
page="$PWD/out<b>/oneshot-report.html"
python3 - "$page" <<'P'
import html.parser, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
class Check(html.parser.HTMLParser):
    open_, seen, cells = [], set(), []
    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        for k, v in attrs:
            assert not k.startswith("on") and k not in {"src", "href"}, (tag, k, v)
        if tag not in {"meta", "br", "wbr"}:
            self.open_.append(tag)
        if tag == "td":
            self.cells.append("")
    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)
    def handle_endtag(self, tag):
        assert self.open_.pop() == tag, (tag, self.open_)
    def handle_data(self, data):
        if self.open_ and self.open_[-1] == "td":
            self.cells[-1] += data
c = Check(convert_charrefs=True)
c.feed(text)
assert not c.open_, c.open_
assert not c.seen & {"script", "img", "b>", "iframe", "link", "object"}, c.seen
for want in ['h.0.<script>document.title="pwned"</script>.up_proj', 'h.0.<img src=x onerror=document.title="pwned">_proj',
             'h.0.a&b"c\'d</td></table>_proj', "h.0.\u00e4\u20ac_proj", "x.</td></table><b>left dense</b>", "out<b>"]:
    assert want in c.cells, (want, c.cells)
assert "http" not in text.replace('http-equiv="Content-Security-Policy"', ""), "the page names an address"
P

model=$OSH_SOURCE_DIR/examples/docs-llama-3m
head -c 4000 "$model/data/evaluation.txt" >text.txt
"$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --output run --overwrite \
    --dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64 --progress none \
    --eval text.txt >said
grep -q 'aria-label="time per subgraph"' run/oneshot-report.html
grep -q '<svg id="memory"' run/oneshot-report.html
"$ONESHOT" eval --model run --reference "$model" --dataset text.txt --max-seq-length 64 --json >eval.json
python3 - <<'P' # in light and dark mode, text and graphics have the contrast that WCAG AA requires
import re
page = open("run/oneshot-report.html").read()
themes = re.findall(r":root\{(--ink:[^}]*)\}", page)
assert len(themes) == 2 and "prefers-color-scheme:dark" in page, themes
light = dict(re.findall(r"(--[a-z]+):#([0-9a-f]+)", themes[0]))
dark = light | dict(re.findall(r"(--[a-z]+):#([0-9a-f]+)", themes[1]))
def luminance(colour):
    colour = colour if len(colour) == 6 else "".join(2 * c for c in colour)
    parts = [int(colour[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
def contrast(a, b):
    a, b = sorted((luminance(a), luminance(b)))
    return (b + 0.05) / (a + 0.05)
for name, t in (("light", light), ("dark", dark)):
    for back in ("--back", "--tile"):
        for word in ("--ink", "--soft", "--warn"):
            assert contrast(t[word], t[back]) >= 4.5, (name, word, back, contrast(t[word], t[back]))
    assert contrast(t["--bar"], t["--back"]) >= 3, (name, "--bar")
P
python3 - <<'P' # the perplexity before and after equals that of `oneshot eval`
import json
page, d, want = open("run/oneshot-report.html").read(), json.load(open("run/oneshot-report.json")), json.load(open("eval.json"))
assert d["evaluation"] == want | {"data": "text.txt"}, (d["evaluation"], want)
assert f'<b id="perplexity">{want["reference_perplexity"]:.2f} → {want["perplexity"]:.2f}</b>' in page
assert f'perplexity {want["perplexity"]:.4f}, of the source {want["reference_perplexity"]:.4f}' in open("said").read()
P
cp run/oneshot-report.json before.json
"$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --output run --progress none --eval text.txt \
    --dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64 >again
cmp before.json run/oneshot-report.json
[ "$(tail -n 1 again)" = "$(tail -n 1 said)" ] || { cat again; exit 1; }
"$ONESHOT" verify run --model "$model" >/dev/null
code=0
"$ONESHOT" --model "$model" --scheme W4A16 --output none --progress none --eval nowhere.txt >/dev/null 2>err || code=$?
[ $code = 2 ] && grep -q -- '--eval nowhere.txt: no such file' err && [ ! -e none ] || { echo "$code $(cat err)"; exit 1; }
# If the program cannot evaluate the model or the data, it refuses them before the run.
too_early() { # arguments: part of the message, model, data
    code=0
    "$ONESHOT" --model "$2" --scheme W4A16 --output none --progress none --eval "$3" >/dev/null 2>err || code=$?
    [ $code != 0 ] && grep -q -- "$1.*while checking the model and the data of --eval" err && [ -z "$(ls -d none* 2>/dev/null)" ] ||
        { echo "$1: $code $(ls -d none*) $(cat err)"; exit 1; }
}
printf 'a\0b\n' >nul.txt
echo '{"input_ids": [5]}' >single.jsonl
too_early 'a NUL in line 1' "$model" nul.txt
too_early 'no token can be scored' "$model" single.jsonl
too_early 'architecture Unheard is not known' src text.txt
# the page has the data of the run. It lists the loss of each layer relative to rounding to nearest,
# the largest first.
python3 - <<'P'
import html, json, re
page, d = open("run/oneshot-report.html").read(), json.load(open("run/oneshot-report.json"))
assert d["model"] == "docs-llama-3m" and d["architecture"] == "LlamaForCausalLM" and " threads, " in d["machine"], d
assert d["command"].startswith("oneshot --") and "--dataset calibration.jsonl" in d["command"] and "/" not in d["command"], d["command"]
assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", d["date"]), d["date"]
for key in ["architecture", "date", "machine"]:
    assert d[key] in page, key
lines = [html.unescape(re.sub("<[^>]*>", "", x)) for x in re.findall(r'<div class="copy">(.*?)</div>', page)]
assert lines == [d["command"], "vllm serve run", "oneshot eval --model run --reference docs-llama-3m --dataset TEXT",
                 "oneshot verify run --model docs-llama-3m"], lines
loss, nearest = (sum(m[k] for m in d["modules"]) for k in ["objective", "nearest_objective"])
assert 0 < loss < 0.7 * nearest, (loss, nearest)
errors = re.search(r'<table id="errors">(.*?)</table>', page, re.S)[1]
rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>model.*?)</tr>", errors)]
rows = [[c.replace("<wbr>", "").replace("&nbsp;", " ") for c in row] for row in rows]
def percent(share):
    p = 100 * share
    return f"{p:.{1 if p >= 1 else 2 if p >= 0.01 else 3}f} %"
want = sorted(d["modules"], key=lambda m: -m["objective"])
want = [[m["name"], "4", percent(m["objective"] / loss), percent(m["objective"] / m["nearest_objective"]), percent(m["relative_squared_error"])]
        for m in want]
assert rows == want, (rows, want)
assert f"The loss at the outputs of 28 modules is {100 * loss / nearest:.1f}&nbsp;%" not in page, "the evaluation has not replaced the verdict"
assert "<b>The output predicts almost the same as the source.</b>" in page
for label in ["loss, rounded to nearest is 100 %", "dashed: rounded to nearest", "modules in the order of execution", "seconds", "subgraphs in order", "bytes in memory",
              "time since the start"]:
    assert f">{label}<" in page, label
P

[ "${1:-}" = browser ] || exit 0
shoot() { # arguments: page, name of the picture
    timeout 120 "$BROWSER" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" "${@:2}" \
        "file://$(python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' "$1")" 2>browser.log
}
shoot "$page" --dump-dom >dom.html || { cat browser.log; exit 1; }
python3 - <<'P'
import re
dom = open("dom.html", encoding="utf-8").read()
assert "<title>oneshot report</title>" in dom, "the page's title was changed, or it was not shown"
assert "<script" not in dom and "<img" not in dom
assert dom.count("<rect") >= 4 and re.search(r'id="errors"', dom)
P
# Shows pages of several kinds at three widths. No text touches another text or a chart, no word is
# broken, and nothing is cut.
gptq=(--model "$model" --dataset "$model/data/calibration.jsonl" --max-seq-length 64 --progress none)
budget=60MB
[ -z "$SANITIZED" ] || budget=1GB # a sanitizer keeps memory that the run has freed
"$ONESHOT" "${gptq[@]}" --scheme W4A16 --quality best --num-calibration-samples 8 --output best --host-memory $budget \
    --checkpoint half=model.layers.2.mlp.down_proj --sample "The program" >/dev/null
"$ONESHOT" "${gptq[@]}" --scheme W4A16 --num-calibration-samples 2 --target-bits 4.5 --output mixed >/dev/null
"$OSH_TOOLS/tiny_model" qwen3_moe moe
"$ONESHOT" --model moe --scheme W4A16 --group-size -1 --method gptq --ignore lm_head --dataset moe/calibration.jsonl \
    --output experts --progress none >/dev/null
pages=
for name in run best mixed experts; do pages=$pages,$PWD/$name/oneshot-report.html; done
sed "s|PAGES|${pages#,}|" "$OSH_SOURCE_DIR/tests/tools/report_boxes.html" >boxes.html
shoot "$PWD/boxes.html" --allow-file-access-from-files --disable-web-security --virtual-time-budget=60000 \
    --dump-dom >boxes.dom || { cat browser.log; exit 1; }
sed -n '/<pre id="said">/,/^end/p' boxes.dom | sed 's/.*<pre id="said">//' >said
cat said
[ "$(grep -cE '^[a-z]+ [0-9]+: [0-9]{3,} texts, [1-9][0-9]+ of them in charts$' said)" = 12 ] || { echo "not 12 pages"; exit 1; }
[ "$(wc -l <said)" = 13 ] || { echo "the layout has faults"; exit 1; }
for width in 420 1280; do
    shoot "$PWD/run/oneshot-report.html" --window-size=$width,2200 --screenshot="$PWD/shot.png" >/dev/null
    [ "$(stat -c %s shot.png)" -gt 20000 ] || { echo "the screenshot at $width is empty"; exit 1; }
done
