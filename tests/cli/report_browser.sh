# report_browser.sh - a real, headless browser shows the HTML report; markup in a tensor's name has
# no effect.
set -euo pipefail
BROWSER=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$BROWSER" ]; then
    echo "no browser: scripts/install-deps.sh --browser installs chromium"
    exit 77
fi
export BROWSER
bash "$OSH_SOURCE_DIR/tests/cli/report_html.sh" browser
