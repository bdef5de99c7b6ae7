# pages.sh - runs the commands of docs/tutorials/*.md and docs/how-to/jobs.md. Every command must
# work, and must print the text of the page.
set -euo pipefail
[ -z "${SANITIZED:-}" ] || { echo "a sanitizer needs more memory than the budgets of the pages"; exit 77; }
PATH=$(dirname "$ONESHOT"):$PATH
for page in tutorials/{first-run,fine-tuned-model,larger-than-memory,eight-gb-gpu} how-to/jobs; do
    mkdir -p "$page"
    ln -s "$OSH_SOURCE_DIR/examples" "$page/examples"
    (cd "$page" && python3 "$OSH_SOURCE_DIR/tests/tools/run_page.py" "$OSH_SOURCE_DIR/docs/$page.md")
    rm "$page/examples" # removes only the link
done
