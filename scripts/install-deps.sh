#!/usr/bin/env bash
# install-deps.sh - installs the Debian 12 packages for building and testing; does nothing if all
# are installed.
# Usage: install-deps.sh [--browser]     --browser: also installs chromium (100 MB) for the test of
#                                        the HTML report
set -euo pipefail

packages=(
    ca-certificates cmake dpkg-dev file g++ gcc libc6-dev ninja-build patchelf pkg-config python3 zstd
    libcjson-dev libyaml-dev libpcre2-dev libutf8proc-dev libzstd-dev zlib1g-dev libxxhash-dev libcurl4-openssl-dev libssl-dev
    libopenblas-dev liblapacke-dev libcmocka-dev
    libopenmpi-dev openmpi-bin libmpich-dev mpich # for jobs of several ranks (docs/how-to/cluster.md)
)
[ "${1:-}" = --browser ] && packages+=(chromium)

missing=()
for p in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "install-deps.sh: want root or sudo to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    </dev/null >/dev/null
