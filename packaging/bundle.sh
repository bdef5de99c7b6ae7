#!/usr/bin/env bash
# bundle.sh - copies libraries into DIR: those that PROGRAM links or opens at run time, and all
# libraries to which these libraries are linked. Strips the copies. Copies the licences of the
# libraries' packages into LICENCES.
# Usage: bundle.sh PROGRAM DIR LICENCES [NAME ...]
#        NAME is a library that is not copied, such as libc.so.6.
set -euo pipefail
program=$1 dir=$2 licences=$3
without=" ${*:4} "
mkdir -p "$dir" "$licences"

PATH=$PATH:/usr/sbin:/sbin # for ldconfig
opened=$(strings "$program" | grep -oE '^lib(openblas|curl|crypto)\.so\.[0-9]+$' | sort -u)
[ "$(wc -w <<<"$opened")" = 3 ] || { echo "bundle.sh: $program opens \"$opened\", wanted OpenBLAS, libcurl and libcrypto"; exit 1; }
files=("$program")
for name in $opened; do
    [[ $without == *" $name "* ]] && continue
    file=$(ldconfig -p | sed -n "s|^\s*$name .*x86-64.* => ||p" | head -1)
    [ -n "$file" ] || { echo "bundle.sh: $name is not installed"; exit 1; }
    files+=("$file")
done
if ldd "${files[@]}" | grep 'not found'; then exit 1; fi
rows=$({
    for file in "${files[@]:1}"; do echo "$(basename "$file") $file"; done
    ldd "${files[@]}" | sed -n 's|^\s*\(\S*\) => \(/\S*\) .*|\1 \2|p; s|^\s*\(/\S*/\)\(ld-linux\S*\) .*|\2 \1\2|p'
} | sort -u)
mapfile -t reals < <(while read -r _ file; do realpath "$file"; done <<<"$rows")
# with a merged /usr a file has two names
owners=$(dpkg-query -S "${reals[@]}" "${reals[@]#/usr}" 2>/dev/null || true)
while read -r name file; do
    [[ $without == *" $name "* || $name == liboneshot* ]] && continue
    cp -L "$file" "$dir/$name"
    real=$(realpath "$file")
    package=$(sed -n "s|^\([^:]*\):.* \(/usr\)\?${real#/usr}$|\1|p" <<<"$owners" | head -1)
    [ -n "$package" ] || { echo "bundle.sh: no package has $real: its licence is not known"; exit 1; }
    cp "/usr/share/doc/$package/copyright" "$licences/$package"
done <<<"$rows"
chmod 755 "$dir"/*.so*
strip --strip-unneeded "$dir"/*.so*
