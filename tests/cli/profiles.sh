# profiles.sh - tests oneshot report. It must compare the profiles of several runs, even of a killed
# run, as text and as a page. It must also read the profile of AMD Quark, and refuse files that are
# not profiles. The page must not overwrite a file that oneshot did not make. Also tests
# ONESHOT_PROFILING, and stages from the command line.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
one() {
    "$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" \
        --dataset "$model/data/calibration.jsonl" --max-seq-length 64 --num-calibration-samples 4 --overwrite \
        --output out --progress none "$@" >/dev/null
}
report() { "$ONESHOT" report "$@"; }
fails() { # arguments: exit code, part of the message, the command
    local code=0
    "${@:3}" >said 2>err || code=$?
    [ $code = "$1" ] && grep -q -- "$2" err || { echo "wanted $1 and '$2' of: ${*:3}"; cat err; exit 1; }
}

ONESHOT_PROFILING=layers.yaml one --checkpoint 'middle=model.layers.1..model.layers.2' --checkpoint half=model.layers.1
one --profile linear.yaml --sequential-targets Linear
(cd "$PWD" && ONESHOT_PROFILING=1 one && [ -s oneshot_profile.yaml ])
ONESHOT_PROFILING=never.yaml one --profile given.yaml
ONESHOT_PROFILING=0 one
[ ! -e never.yaml ] && [ ! -e 0 ]
# Cuts a profile after the first records of the run. The profile of a killed run looks the same.
sed '/propagate model.layers.1 Start/,$d' layers.yaml >killed.yaml
cat >quark.yaml <<'Y'
memory_usage:
- {step: "Start", timestamp: 1.0, relative_time_secs: 0.0, cpu_memory_mb: 128.5, gpu_memory_mb: 0.0, disk_read_mb: 0.0, disk_write_mb: 0.0}
- {step: "Calibration Start", timestamp: 2.0, relative_time_secs: 1.0, cpu_memory_mb: 515.0, gpu_memory_mb: 1024.0, disk_read_mb: 325.0, disk_write_mb: 1.3}
- {step: "Calibration End", timestamp: 17.5, relative_time_secs: 16.5, cpu_memory_mb: 520.0, gpu_memory_mb: 2048.5, disk_read_mb: 890.4, disk_write_mb: 2.7}
- {step: "Quantization (Static) Start", timestamp: 17.6, relative_time_secs: 17.0, cpu_memory_mb: 768.0, gpu_memory_mb: 2050.0, disk_read_mb: 892.1, disk_write_mb: 3.0}
- {step: "Quantization (Static) End", timestamp: 31.0, relative_time_secs: 31.5, cpu_memory_mb: 640.0, gpu_memory_mb: 1536.0, disk_read_mb: 905.3, disk_write_mb: 158.6}
total_quantization_time_seconds: 35.5
peak_memory_mb: 768.0
gpu_peak_memory_mb: 2050.0
Y

report layers.yaml linear.yaml killed.yaml quark.yaml --output page.html >table.txt
report layers.yaml linear.yaml killed.yaml quark.yaml --format text | cmp - table.txt
report killed.yaml >alone.html
report layers.yaml --format svg >picture.svg
cat >check.py <<'P'
import html.parser, re
table = open("table.txt").read()
rows = {line.split("  ")[-1].split(" ")[0]: line.split() for line in table[:table.index("highest")].splitlines() if ".yaml" in line
       }
def summary(name, key):
    return float(re.search(rf"^{key}: ([0-9.]+)", open(name).read(), re.M).group(1))
for name in ("layers.yaml", "linear.yaml"):
    got = dict(zip(("seconds", "memory", "used", "rss"), map(float, rows[name][:4])))
    for key, of in (("seconds", "total_quantization_time_seconds"), ("memory", "peak_memory_mb"), ("used", "peak_live_mb"),
                    ("rss", "peak_rss_mb")):
        assert abs(got[key] - summary(name, of)) <= 0.011, (name, key, got, summary(name, of))
assert rows["killed.yaml"][0].endswith("+") and float(rows["killed.yaml"][1]) > 0
assert rows["quark.yaml"][:5] == ["35.50", "768.00", "-", "-", "2050.00"], rows["quark.yaml"]
cross = table[table.index("by model and method"):]
assert re.search(r"w4a16-gptq.yaml, Linear\n +[0-9.]+  docs-llama-3m", cross), cross

class page(html.parser.HTMLParser):
    def __init__(self, name):
        super().__init__()
        self.open, self.tables, self.text, self.row = [], {}, "", None
        self.feed(open(name).read())
        assert not self.open, self.open
    def handle_starttag(self, tag, attrs):
        if tag in ("meta", "line", "polygon", "polyline"): return
        self.open.append(tag)
        if tag == "table": self.row = self.tables.setdefault(dict(attrs)["id"], [])
        if tag == "tr": self.row.append([])
        if tag in ("td", "th"): self.row[-1].append("")
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        if tag not in ("line", "polygon", "polyline"): assert self.open.pop() == tag
    def handle_data(self, data):
        self.text += data
        if "td" in self.open or "th" in self.open: self.row[-1][-1] += data.replace("\u00a0", " ")
p = page("page.html")
assert len(p.tables["profiles"]) == 5 and len(p.tables["peaks"]) == 3, p.tables["peaks"]
assert p.tables["peaks"][0] == ["", "w4a16-gptq.yaml", "w4a16-gptq.yaml, Linear", ""]
assert p.tables["peaks"][2][0] == "quark.yaml" and p.tables["peaks"][2][3] == "805 MB"
a = page("alone.html")
import xml.etree.ElementTree
svg = xml.etree.ElementTree.parse("picture.svg").getroot()
assert svg.tag == "{http://www.w3.org/2000/svg}svg" and len(svg.findall(".//{*}polyline")) == 1
assert "did not end by itself" in a.text and "model.layers.1" in a.text
stages = {row[0]: row for row in a.tables["stages"][1:]}
assert list(stages) == ["Pre-process", "Calibration", "Quantization", "Post-process"], stages
layers = open("layers.yaml").read()
at = [layers.index(f'step: "{s}"') for s in
      ("solve model.layers.0 End", "middle Start", "observe model.layers.1 Start", "half", "propagate model.layers.2 End", "middle End",
       "observe model.layers.3 Start")]
assert at == sorted(at), at
P
python3 check.py

echo 'a: 1' >other.yaml
printf 'memory_usage:\n- step: "x"\n  cpu_memory_mb: -3\n- step: "End"\n  relative_time_secs: 1\n  cpu_memory_mb: 1\n' >wrong.yaml
echo 'memory_usage:' >empty.yaml
fails 1 'other.yaml is not a profile' report other.yaml
fails 1 'wrong.yaml:2: want a record' report wrong.yaml
fails 1 'empty.yaml: the list memory_usage has no records' report empty.yaml
fails 1 'nowhere.yaml' report layers.yaml nowhere.yaml
fails 2 'svg draws one profile, got 2' report layers.yaml linear.yaml --format svg
fails 2 'output is for the page' report layers.yaml --format text --output x.txt
fails 2 'report wants files' report
fails 2 'layers.yaml: the existing file is not a page' report layers.yaml --output layers.yaml
report layers.yaml --output page.html >/dev/null
fails 2 "a=model.layers.2..model.layers.1: model.layers.1 comes before model.layers.2" one --checkpoint a=model.layers.2..model.layers.1
fails 2 'matches no subgraph' one --checkpoint a=model.layers.2..x
fails 2 'want a name for the stage' one --checkpoint model.layers.1..model.layers.2

# scripts/onloading.sh runs one job with three kinds of targets, and makes a table and three
# pictures.
"$OSH_SOURCE_DIR/scripts/onloading.sh" --oneshot "$ONESHOT" --model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" \
    --dataset "$model/data/calibration.jsonl" --out ways --title small --samples 4 --length 64 >ways.md
[ "$(grep -cE '^\| (basic, 1 subgraph|layer, 5 subgraphs|linear, 18 subgraphs) \| [0-9.]+ MB' ways.md)" = 3 ] || { cat ways.md; exit 1; }
for way in basic layer linear; do grep -q '<polyline' ways/small-$way.svg; done
