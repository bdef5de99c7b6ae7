#!/usr/bin/env bash
# site.sh - builds the pages of docs/ as static HTML with search, in build/site.
#
# mkdocs and its theme are installed by pip into a virtual environment under build/; the program and
# its tests never need them. The build fails if a link has no target. Links to files outside docs/
# (scripts, examples, the README) become text, because the site has no such pages.
# Usage: scripts/site.sh [--serve]     --serve: also serves the pages on port 8000 of this machine
set -euo pipefail
cd "$(dirname "$0")/.."
work=build/site-work venv=build/site-venv
case ${1:-} in
"" | --serve) ;;
*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
command -v python3 >/dev/null || { echo "site.sh: python3 is not installed" >&2; exit 1; }
if [ ! -x "$venv/bin/mkdocs" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet 'mkdocs<2' 'mkdocs-material<10'
fi
rm -rf "$work" && mkdir -p "$work"
cp -r docs "$work/docs"
python3 - "$work/docs" >"$work/nav" <<'PYTHON'
"""Turns links to files outside of docs/ into text, and removes the words after the language of a
code block, which mkdocs does not know. Prints the navigation in the order of docs/README.md."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
for page in root.rglob("*.md"):
    def kept(m, page=page):
        name = m[2].split("#")[0]
        inside = not name or (page.parent / name).resolve().is_relative_to(root)
        return m[0] if inside else m[1]
    text = re.sub(r"\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)", kept, page.read_text(encoding="utf-8"))
    page.write_text(re.sub(r"^(```\w+) .*$", r"\1", text, flags=re.M), encoding="utf-8")
print("nav:\n  - README.md")
for line in (root / "README.md").read_text(encoding="utf-8").split("\n"):
    if line.startswith("## "):
        print(f"  - {line[3:]}:")
    elif line.startswith("| ["):
        print(f"      - {re.search(r'[(]([^)]+)[)]', line)[1]}")
PYTHON
cat >"$work/mkdocs.yml" <<'YAML'
site_name: oneshot
docs_dir: docs
site_dir: ../site
use_directory_urls: false
exclude_docs: |
  *.1
theme:
  name: material
  font: false
  features: [navigation.indexes, navigation.top, search.highlight, content.code.copy]
  palette:
    - {media: "(prefers-color-scheme: light)", scheme: default}
    - {media: "(prefers-color-scheme: dark)", scheme: slate}
plugins: [search]
markdown_extensions: [tables, fenced_code, toc, def_list, sane_lists]
validation: {links: {anchors: warn, unrecognized_links: warn, not_found: warn}}
YAML
cat "$work/nav" >>"$work/mkdocs.yml"
export NO_MKDOCS_2_WARNING=1
"$venv/bin/mkdocs" build --strict --config-file "$work/mkdocs.yml"
echo "build/site/index.html: $(find build/site -name '*.html' | wc -l) pages"
[ "${1:-}" != --serve ] || exec python3 -m http.server --directory build/site --bind 127.0.0.1 8000
