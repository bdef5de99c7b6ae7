#!/usr/bin/env bash
# install-hooks.sh - makes scripts/check_subjects.py the commit-msg hook of this checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
hook=$(git rev-parse --git-path hooks)/commit-msg
mkdir -p "$(dirname "$hook")"
printf '#!/bin/sh\nexec python3 "$(git rev-parse --show-toplevel)/scripts/check_subjects.py" --message "$1"\n' >"$hook"
chmod +x "$hook"
echo "installed: $hook"
