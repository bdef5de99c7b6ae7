# oneshot-report.html: names from a file's header are text in it, never markup; it needs nothing outside itself.
# With the argument "browser": a real one shows it.
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
        if tag not in {"meta", "br"}:
            self.open_.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)
    def handle_endtag(self, tag):
        assert self.open_.pop() == tag, (tag, self.open_)
    def handle_data(self, data):
        if self.open_ and self.open_[-1] == "td":
            self.cells.append(data)
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
"$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --output run --overwrite \
    --dataset "$model/data/calibration.jsonl" --num-calibration-samples 4 --max-seq-length 64 --progress none >/dev/null
grep -q 'aria-label="time per subgraph"' run/oneshot-report.html
grep -q '<svg id="memory"' run/oneshot-report.html

[ "${1:-}" = browser ] || exit 0
shoot() { # page, what
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
shoot "$PWD/run/oneshot-report.html" --window-size=1000,2200 --screenshot="$PWD/shot.png" >/dev/null
[ "$(stat -c %s shot.png)" -gt 20000 ] || { echo "the screenshot is empty"; exit 1; }
