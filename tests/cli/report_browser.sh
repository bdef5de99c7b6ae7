# report_browser.sh - shows the HTML report in a real, headless browser. Markup in the name of a
# tensor must have no effect.
set -euo pipefail
BROWSER=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$BROWSER" ]; then
    echo "no browser: scripts/install-deps.sh --browser installs chromium"
    exit 77
fi
export BROWSER
bash "$OSH_SOURCE_DIR/tests/cli/report_html.sh" browser
