# The HTML report in a real, headless browser: shown, and no markup of a tensor's name came alive.
set -euo pipefail
BROWSER=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$BROWSER" ]; then
    echo "no browser: scripts/install-deps.sh --browser installs chromium"
    exit 77
fi
export BROWSER
bash "$OSH_SOURCE_DIR/tests/cli/report_html.sh" browser
