# packages.sh - tests the packages of cpack. The .deb must depend on the libraries that the program
# links and opens, and must work after it is unpacked. The tarball must work in an otherwise empty
# root directory. There the program must write the same bytes as outside of it.
set -euo pipefail
build=$(dirname "$ONESHOT") model=$OSH_SOURCE_DIR/examples/docs-llama-3m
[ -e "$build/CPackConfig.cmake" ] || { echo "$build makes no packages"; exit 77; }
name=$(sed -n 's/^set(CPACK_PACKAGE_NAME "\(.*\)")/\1/p' "$build/CPackConfig.cmake")
cpack --config "$build/CPackConfig.cmake" >log || { cat log; exit 1; }

# Tests the .deb.
version=$("$ONESHOT" --version | sed -n "s/^oneshot //p")
deb=${name}_${version}_amd64.deb
dpkg-deb -f "$deb" Package Depends >control
grep -qx "Package: $name" control
for file in $(strings "$ONESHOT" | grep -oE '^lib(openblas|curl|crypto)\.so\.[0-9]+$') \
            $(readelf -d "$ONESHOT" | sed -n 's/.*NEEDED.*\[\(lib.*\)\]/\1/p'); do
    at=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n "s|^\s*$file .*x86-64.* => ||p" | head -1)
    at=$(realpath "$at")
    package=$({ dpkg-query -S "$at" "${at#/usr}" 2>/dev/null || true; } | head -1 | cut -d: -f1)
    echo "$file: ${package:-?}"
    package=${package//+/[+]}
    grep -qE "[ ,]${package%-pthread}( \([^)]*\))?(,|$)" control || { cat control; exit 1; }
done
# Debian 12 and Debian 13 have different names for the package of utf8proc. So a .deb for both must
# contain the code of utf8proc.
if grep utf8proc control; then echo "the .deb needs utf8proc"; exit 1; fi
dpkg-deb -x "$deb" deb
deb/usr/bin/oneshot --version >version
grep -qx "oneshot $version" version
for row in bash=bash-completion/completions/oneshot fish=fish/vendor_completions.d/oneshot.fish zsh=zsh/vendor-completions/_oneshot; do
    "$ONESHOT" completion ${row%%=*} | cmp - "deb/usr/share/${row#*=}"
done
[ -e deb/usr/lib/liboneshot.so.0 ] && [ -e deb/usr/share/doc/oneshot/LICENSE ]

# Tests the tarball.
tree=$name-$version-linux-x86_64
tar xzf "$tree.tar.gz"
readelf -l "$tree/bin/oneshot" >segments
grep INTERP segments && exit 1
[ "$(find "$tree/share/doc/oneshot/licences" -type f -size +100c | wc -l)" -ge 8 ]
args=(--model /model --dataset /model/data/calibration.jsonl --scheme W4A16 --method gptq --num-calibration-samples 4
      --max-seq-length 64 --progress none --threads 2)
inside=() # makes a root directory that has only the unpacked tarball and a model
[ "$(id -u)" = 0 ] || inside=(unshare --user --map-root-user)
mkdir root
cp -r "$model" root/model
mv "$tree" root/tree
PATH=$PATH:/usr/sbin
export HF_HOME=/hub HF_ENDPOINT=http://127.0.0.1:9 HF_HUB_OFFLINE=0 TRANSFORMERS_OFFLINE=0
"${inside[@]}" chroot root /tree/bin/oneshot --version >version || {
    "${inside[@]}" chroot / true || { echo "chroot is not allowed here"; exit 77; }
    exit 1
}
grep -qx "oneshot $version" version
"${inside[@]}" chroot root /tree/bin/oneshot "${args[@]}" --output /out >made
grep -q '^/out: 28 modules' made
"${inside[@]}" chroot root /tree/bin/oneshot verify /out --model /model >verified
# libcurl works, but there is no server
"${inside[@]}" chroot root /tree/bin/oneshot pull org/name 2>refused && exit 1
grep -q 'Connection refused\|Could not connect\|Couldn.t connect' refused || { cat refused; exit 1; }
# A program of this system uses the library of the tarball. The library must open libraries of the
# tarball.
libs=$PWD/root/tree/lib
cc "$OSH_SOURCE_DIR/examples/c-api/compress.c" -o compress \
    $(PKG_CONFIG_PATH=$libs/pkgconfig pkg-config --cflags --libs oneshot) "-Wl,-rpath,$libs"
LD_DEBUG=files LD_DEBUG_OUTPUT=opened ./compress "$model" "$model/data/calibration.jsonl" by_library profile.yaml >said
[ -s by_library/model.safetensors ] || { cat said; exit 1; }
for name in libopenblas libpcre2; do
    cat opened.* | grep -q "calling init: $libs/oneshot/$name" || { echo "$name is not the tarball's"; exit 1; }
done
if cat opened.* | grep 'calling init.*/libc\.so' | grep "$libs"; then exit 1; fi
"$ONESHOT" "${args[@]/#\/model/$model}" --output out >/dev/null
cmp out/model.safetensors root/out/model.safetensors
rm -rf root _CPack_Packages "$tree.tar.gz"
