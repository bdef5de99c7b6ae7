# install.sh - tests that cmake --install puts the program, the library, its header, models, licence
# and man pages under the prefix. The installed program must work, and examples/c-api must build
# with the installed library.
set -euo pipefail
build=$(dirname "$ONESHOT")
[ -e "$build/cmake_install.cmake" ] || { echo "$build is no CMake build folder"; exit 77; }
cmake --install "$build" --prefix "$PWD/usr" >log

# If nothing but the target oneshot is built, three commands fail: cmake --install, cpack, and
# packaging/wheel.py. Each of their messages names the missing file and the target that makes this
# file.
mkdir -p unbuilt/tests/play
: >unbuilt/tests/play/cmake_install.cmake
for file in cmake_install.cmake CPackConfig.cmake CMakeCache.txt; do
    [ ! -e "$build/$file" ] || sed "s|$build|$PWD/unbuilt|g" "$build/$file" >"unbuilt/$file"
done
cp "$ONESHOT" unbuilt
for command in "cmake --install unbuilt --prefix nothing" "cpack --config unbuilt/CPackConfig.cmake -G DEB" \
               "python3 $OSH_SOURCE_DIR/packaging/wheel.py unbuilt"; do
    [[ $command != cpack* || -e unbuilt/CPackConfig.cmake ]] || continue
    $command >refused 2>&1 && { echo "$command succeeds without liboneshot"; exit 1; }
    tr -s ' \n' ' ' <refused >words # joins the lines that cmake has wrapped
    grep -q "unbuilt/liboneshot.so.[0-9.]* is not built.*cmake --build $PWD/unbuilt --target product" words || { cat refused; exit 1; }
done
[ ! -e nothing ]
type=$(sed -n 's/^CMAKE_BUILD_TYPE:.*=//p' "$build/CMakeCache.txt" | tr '[:upper:]' '[:lower:]')
libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:.*=//p' "$build/CMakeCache.txt")
(cd usr && find . -type f | sed "s|^./$libdir/|./lib/|" | sort) >files
{
    echo ./bin/oneshot
    echo ./include/oneshot.h
    printf './lib/%s\n' cmake/oneshot/oneshot{Config,ConfigVersion,Targets,Targets-"$type"}.cmake pkgconfig/oneshot.pc \
        "liboneshot.so.$("$ONESHOT" --version | sed -n "s/^oneshot //p")"
    printf './share/%s\n' bash-completion/completions/oneshot fish/vendor_completions.d/oneshot.fish zsh/site-functions/_oneshot
    echo ./share/man/man1/oneshot.1
    # there is one man page per command
    "$ONESHOT" help commands | sed 's|^\([a-z-]*\) .*|./share/man/man1/oneshot-\1.1|'
    printf './share/doc/oneshot/%s\n' CHANGELOG.md LICENSE NOTICE
    (cd "$OSH_SOURCE_DIR/models" && find . -name '*.json' | sed 's|^\./|./share/oneshot/models/|')
} | sort >want
diff -u want files
for row in bash=bash-completion/completions/oneshot fish=fish/vendor_completions.d/oneshot.fish zsh=zsh/site-functions/_oneshot; do
    "$ONESHOT" completion ${row%%=*} | cmp - "usr/share/${row#*=}"
done
cmp usr/share/man/man1/oneshot.1 "$OSH_SOURCE_DIR/docs/reference/oneshot.1"
diff -r usr/share/oneshot/models "$OSH_SOURCE_DIR/models"
# NOTICE names each library of the program
for library in $(readelf -d usr/bin/oneshot | sed -n 's/.*Shared library: \[lib\([a-z]*\).*/\1/p'); do
    case $library in c|m|ld|asan|ubsan|tsan|cudart|gcc|stdc) continue ;; pcre) library=pcre2 ;; esac
    grep -qi "^  \(lib\)\?$library" usr/share/doc/oneshot/NOTICE || { echo "NOTICE does not name $library"; exit 1; }
done
grep -q 'Apache License' usr/share/doc/oneshot/LICENSE
[ -x usr/bin/oneshot ]
usr/bin/oneshot --version | grep -qE '^oneshot [0-9]+\.[0-9]+\.[0-9]+'
usr/bin/oneshot graph --model "$OSH_SOURCE_DIR/examples/docs-llama-3m" --dot >built_in.dot
usr/bin/oneshot graph --model "$OSH_SOURCE_DIR/examples/docs-llama-3m" --models-dir usr/share/oneshot/models --dot >dir.dot
cmp built_in.dot dir.dot

# The library exports exactly what its header declares; the header alone compiles as C and C++.
header=usr/include/oneshot.h library=usr/$libdir/liboneshot.so
nm -D --defined-only "$library" | sed -n 's/.* [A-Z] \([a-z_]*\)@@ONESHOT_0$/\1/p' | sort >shown
sed -n 's/^ONESHOT_API .*[ *]\(oneshot_[a-z_]*\)(.*/\1/p' $header | sort >declared
[ "$(wc -l <declared)" -ge 10 ]
diff -u declared shown
nm -D --defined-only "$library" | grep -v '@@ONESHOT_0$\| A ONESHOT_0$' && exit 1
readelf -d "$library" >dynamic
grep -q 'SONAME.*\[liboneshot\.so\.0\]' dynamic
[ "$(readlink "usr/$libdir/liboneshot.so")" = liboneshot.so.0 ]
grep '#include' $header | grep -v '<std\(def\|int\)\.h>' && exit 1
echo '#include <oneshot.h>' >alone.c
cp alone.c alone.cc
cc -std=c99 -pedantic -Wall -Wextra -Werror -Iusr/include -fsyntax-only alone.c
c++ -std=c++11 -pedantic -Wall -Wextra -Werror -Iusr/include -fsyntax-only alone.cc

# Moves the installed tree. Then builds a program with the moved library: once with pkg-config, and
# once with find_package.
[ -z "$SANITIZED" ] || exit 0
mv usr moved
model=$OSH_SOURCE_DIR/examples/docs-llama-3m source=$OSH_SOURCE_DIR/examples/c-api
export PKG_CONFIG_PATH=$PWD/moved/$libdir/pkgconfig
[ "$(pkg-config --modversion oneshot)" = "$("$ONESHOT" --version | sed -n "s/^oneshot //p")" ]
# shellcheck disable=SC2046
cc "$source/compress.c" -o by_pkg_config $(pkg-config --cflags --libs oneshot)
cmake -S "$source" -B by_cmake -DCMAKE_PREFIX_PATH="$PWD/moved" >cmake.log
cmake --build by_cmake >>cmake.log
ldd by_cmake/compress >libraries # a file instead of a pipe, because grep -q would end ldd early
grep -q "$PWD/moved/$libdir/liboneshot.so.0 " libraries
for program in ./by_pkg_config by_cmake/compress; do
    LD_LIBRARY_PATH=$PWD/moved/$libdir "$program" "$model" "$model/data/calibration.jsonl" out profile.yaml >run.log
    grep -q '^6 of 6: the output$' run.log
    sha256sum <out/model.safetensors >>sums
done
moved/bin/oneshot --model "$model" --dataset "$model/data/calibration.jsonl" --scheme W4A16 --method gptq \
    --num-calibration-samples 16 --max-seq-length 128 --output cli --progress none >/dev/null
sha256sum <cli/model.safetensors >>sums
[ "$(sort -u sums | wc -l)" = 1 ]
