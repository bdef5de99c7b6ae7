#!/usr/bin/env bash
# bare-debian.sh - runs README's two commands, scripts/quickstart.sh and scripts/test.sh, in a bare
# Debian 12 that debootstrap makes, on the committed tree (HEAD). It then makes the packages of
# docs/how-to/packages.md there. Needs root and debootstrap; takes packages from the mirror of this
# machine's apt.
#
# Usage: scripts/bare-debian.sh [-R REGEX] [DIR]
#   -R REGEX         build everything, but run only the tests whose names match (ctest -R)
#   DIR              keep the Debian here: the next call uses DIR/base.tar again, and makes DIR/root
#                    again. Without DIR all is in a temporary directory, which is removed at the
#                    end.
set -euo pipefail
cd "$(dirname "$0")/.."

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
[ "$(id -u)" = 0 ] || { echo "bare-debian.sh: the user is $(id -un), root is wanted: debootstrap and chroot need it" >&2; exit 1; }
for program in debootstrap git unshare; do
    command -v "$program" >/dev/null || { echo "bare-debian.sh: no $program in PATH" >&2; exit 1; }
done
# Lists "URI RELEASE COMPONENT" of this machine's apt sources for the suite.
rows=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
    grep -E " $suite(-updates|-security)? main$" | sort -u || true)
mirror=$(sed -n "s| $suite main$||p" <<<"$rows" | head -1)
[ -n "$mirror" ] || { echo "bare-debian.sh: /etc/apt names no mirror of $suite main" >&2; exit 1; }

if [ -z "$dir" ]; then
    dir=$(mktemp -d)
    trap 'rm -rf --one-file-system "$dir"' EXIT
fi
mkdir -p "$dir"
dir=$(cd "$dir" && pwd) root=$dir/root
rm -rf --one-file-system "$root"
if [ ! -e "$dir/base.tar" ]; then
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$dir/debootstrap.log" 2>&1 ||
        { tail -20 "$dir/debootstrap.log" >&2; exit 1; }
    tar -C "$root" -cf "$dir/base.tar.partial" .
    mv "$dir/base.tar.partial" "$dir/base.tar"
else
    mkdir "$root"
    tar -C "$root" -xf "$dir/base.tar"
fi

# Copies the files that the Debian needs to reach the mirror: sources, apt's settings for downloads,
# names, certificates, proxies.
sed 's/^/deb /' <<<"$rows" >"$root/etc/apt/sources.list"
apt-config dump | grep -E '^Acquire::(http|https|ftp|Check-|Retries)' >"$root/etc/apt/apt.conf.d/99host" || true
for file in /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/resolv.conf /etc/hosts /etc/pip.conf; do
    [ ! -e "$file" ] || cp -rL "$file" "$root$(dirname "$file")/"
done
settings=()
while IFS= read -r name; do
    case $name in *_proxy | *_PROXY | PIP_*) settings+=("$name=${!name}") ;; esac
done < <(compgen -e)

mkdir "$root/source"
git archive HEAD | tar -C "$root/source" -x
commands=$(sed -n '/^## Start/,/^## /s|^    \(scripts/[a-z]*\.sh\)  *#.*|\1|p' README.md)
[ "$(wc -l <<<"$commands")" = 2 ] || { echo "bare-debian.sh: README.md has not two commands below Start: $commands" >&2; exit 1; }

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
# The mounts are in a namespace of their own, and are removed with it.
unshare --mount --propagation private --pid --fork bash -euc '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    exec chroot "$root" "$@"
' mounts "$root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ${settings[@]+"${settings[@]}"} bash /run.sh "$commands" "$tests" </dev/null
