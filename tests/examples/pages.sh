# pages.sh - docs/tutorial.md and docs/how-to.md: every command works, and prints what the page
# says.
set -euo pipefail
PATH=$(dirname "$ONESHOT"):$PATH
for page in tutorial how-to; do
    mkdir "$page"
    ln -s "$OSH_SOURCE_DIR/examples" "$page/examples"
    (cd "$page" && python3 "$OSH_SOURCE_DIR/tests/tools/run_page.py" "$OSH_SOURCE_DIR/docs/$page.md")
    rm "$page/examples" # removes the link only
done
