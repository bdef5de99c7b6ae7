# cmake --install: binary, models, licence and man page under the prefix, and a binary that works from there.
set -euo pipefail
build=$(dirname "$ONESHOT")
[ -e "$build/cmake_install.cmake" ] || { echo "$build is no CMake build folder"; exit 77; }
cmake --install "$build" --prefix "$PWD/usr" >log
(cd usr && find . -type f | sort) >files
{
    echo ./bin/oneshot
    echo ./share/man/man1/oneshot.1
    printf './share/doc/oneshot/%s\n' CHANGELOG.md LICENSE NOTICE
    (cd "$OSH_SOURCE_DIR/models" && find . -name '*.json' | sed 's|^\./|./share/oneshot/models/|')
} | sort >want
diff -u want files
cmp usr/share/man/man1/oneshot.1 "$OSH_SOURCE_DIR/docs/oneshot.1"
diff -r usr/share/oneshot/models "$OSH_SOURCE_DIR/models"
for library in $(readelf -d usr/bin/oneshot | sed -n 's/.*Shared library: \[lib\([a-z]*\).*/\1/p'); do # each in NOTICE
    case $library in c|m|ld|asan|ubsan|tsan|cudart|gcc|stdc) continue ;; pcre) library=pcre2 ;; esac
    grep -qi "^  \(lib\)\?$library" usr/share/doc/oneshot/NOTICE || { echo "NOTICE does not name $library"; exit 1; }
done
grep -q 'Apache License' usr/share/doc/oneshot/LICENSE
[ -x usr/bin/oneshot ]
usr/bin/oneshot --version | grep -qE '^oneshot [0-9]+\.[0-9]+\.[0-9]+'
usr/bin/oneshot graph --model "$OSH_SOURCE_DIR/examples/docs-llama-3m" --dot >built_in.dot
usr/bin/oneshot graph --model "$OSH_SOURCE_DIR/examples/docs-llama-3m" --models-dir usr/share/oneshot/models --dot >dir.dot
cmp built_in.dot dir.dot
