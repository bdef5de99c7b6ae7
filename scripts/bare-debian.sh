#!/usr/bin/env bash
# bare-debian.sh - tests the committed tree (HEAD) in a bare Debian 12, which debootstrap makes. It
# runs README's two commands there: scripts/quickstart.sh and scripts/test.sh. It then makes the
# packages of docs/how-to/packages.md. The script needs root and debootstrap, and takes packages
# from the mirror of this machine's apt.
#
# Usage: scripts/bare-debian.sh [-R REGEX] [DIR]
#   -R REGEX         build everything, but run only the tests whose names match (ctest -R)
#   DIR              keep the Debian here: the next call uses DIR/base.tar again, and makes DIR/root
#                    again. Without DIR all is in a temporary directory, which is removed at the
#                    end.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/bare.sh

suite=bookworm tests= dir=
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        -R) [ $# -gt 1 ] || usage; tests=$2; shift ;;
        -*) usage ;;
        *) [ -z "$dir" ] || usage; dir=$1 ;;
    esac
    shift
done
bare_wants git

if [ -z "$dir" ]; then
    dir=$(mktemp -d)
    trap 'rm -rf --one-file-system "$dir"' EXIT
fi
mkdir -p "$dir"
dir=$(cd "$dir" && pwd) root=$dir/root
bare_base $suite "$dir/base.tar"
bare_unpack $suite "$dir/base.tar" "$root"

mkdir "$root/source"
git archive HEAD | tar -C "$root/source" -x
commands=$(sed -n '/^## Start/,/^## /s|^    \(scripts/[a-z]*\.sh\)  *#.*|\1|p' README.md)
[ "$(wc -l <<<"$commands")" = 2 ] || { echo "bare-debian.sh: README.md: want two commands in the section Start, found: $commands" >&2; exit 1; }

cat >"$root/run.sh" <<'END'
set -eu
cd /source
for command in $1; do
    echo "== $command"
    if [ "$command" = scripts/test.sh ] && [ -n "$2" ]; then
        "$command" release -- -R "$2"
    else
        "$command"
    fi
    if [ "$command" = scripts/quickstart.sh ]; then # whose build is enough for the packages of docs/how-to/packages.md
        echo "== packages"
        (cd build/release && cpack -G DEB && cpack -G TGZ && cmake --install . --prefix /installed) >/packages.log ||
            { cat /packages.log; exit 1; }
        python3 packaging/wheel.py build/release --out /
    fi
done
END
bare_enter "$root" bash /run.sh "$commands" "$tests"
