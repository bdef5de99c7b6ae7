#!/usr/bin/env bash
# wrap_long_lines.sh - lets clang-format wrap only those lines of C files that lint.py refuses as
# too long. Comments are not changed (ReflowComments: false), because clang-format would join the
# rows of a list. Wrap comments by hand.
set -euo pipefail
cd "$(dirname "$0")/.."
find src include tests -name '*.[ch]' | sort | while read -r file; do
    lines=$(awk 'length($0) > 120 { printf " --lines=%d:%d", FNR, FNR }' "$file")
    [ -z "$lines" ] && continue
    # shellcheck disable=SC2086 # one argument for each line
    clang-format -i --style=file $lines "$file"
    echo "wrapped $file"
done
