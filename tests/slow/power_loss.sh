# power_loss.sh - runs tests/cli/power_loss.sh with 500 states of each run.
STATES=500 exec bash "$OSH_SOURCE_DIR/tests/cli/power_loss.sh"
