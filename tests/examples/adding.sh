# adding.sh - tests docs/internals/adding-*.md. Applies the additions of each page to a copy of the
# tree, and builds the copy. The new feature must work as the page says.
set -euo pipefail
[ -z "$SANITIZED" ] || { echo "this test runs pages only"; exit 77; }
build=$(dirname "$ONESHOT")
command -v ninja >/dev/null && command -v python3 >/dev/null && [ -e "$build/build.ninja" ] || { echo "wants ninja and python3"; exit 77; }
for page in "$OSH_SOURCE_DIR"/docs/internals/adding-*.md; do
    name=$(basename "$page" .md)
    echo "$name"
    mkdir -p "$name/tests"
    cp -r "$OSH_SOURCE_DIR"/{src,include,models} "$name"
    cp -r "$OSH_SOURCE_DIR"/tests/{*.h,unit,kernels,prop} "$name/tests"
    cp -r "$OSH_SOURCE_DIR"/examples "$name"
    (cd "$name" && python3 "$OSH_SOURCE_DIR/tests/tools/apply_page.py" "$page" "$build" &&
        PATH=$PWD/build/release:$build:$PATH python3 "$OSH_SOURCE_DIR/tests/tools/run_page.py" "$page")
    rm -rf "$name"
done
