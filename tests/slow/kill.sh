# kill.sh - runs tests/cli/kill.sh with 200 kills.
KILLS=200 exec bash "$OSH_SOURCE_DIR/tests/cli/kill.sh"
