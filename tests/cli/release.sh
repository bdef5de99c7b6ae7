# release.sh - scripts/release.py on a copy of the repository. It finds a version number that was
# forgotten. --set changes all version numbers. --tag needs a date and a clean tree.
set -euo pipefail
fail() { echo "$*"; exit 1; }
command -v python3 >/dev/null && command -v git >/dev/null || { echo "wants python3 and git"; exit 77; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
mkdir copy
(cd "$OSH_SOURCE_DIR" && cp -r --parents CMakeLists.txt CMakePresets.json CHANGELOG.md Dockerfile .github .ci cmake scripts packaging docs \
    "$OLDPWD/copy")
release() { (cd copy && python3 scripts/release.py "$@"); }
release >out || fail "$(cat out)"
sed -i "s/^project(oneshot VERSION [0-9.]*/project(oneshot VERSION 9.9.9/" copy/CMakeLists.txt
release >out && fail "a number of one file"
for name in docs/reference/oneshot.1 docs/how-to/packages.md CHANGELOG.md; do grep -q "^$name: " out || fail "$name: $(cat out)"; done
release --set 9.10.0 >out || fail "$(cat out)"
grep -q "^## \[9.10.0\] - unreleased" copy/CHANGELOG.md && grep -q "oneshot_9.10.0_amd64.deb" copy/docs/how-to/packages.md || fail "$(cat out)"
[ "$(grep -c '^## .*unreleased' copy/CHANGELOG.md)" = 1 ] || fail "the head of an unreleased version stays"
sed -i 's/^## \[9.10.0\] - unreleased/## [9.10.0] - 2026-01-31/' copy/CHANGELOG.md
release --set 9.11.0 >out || fail "$(cat out)"
[ "$(grep '^## ' copy/CHANGELOG.md | head -2 | tr '\n' ' ')" = "## [9.11.0] - unreleased ## [9.10.0] - 2026-01-31 " ] || fail "$(grep '^## ' copy/CHANGELOG.md)"
sed -i 's/^## \[9.10.0\] .*/## [9.10.0] - unreleased/' copy/CHANGELOG.md
release >out && fail "two that are not released"
grep -q "9.10.0 follows 9.11.0 and is unreleased" out || fail "$(cat out)"
sed -i 's/^## \[9.10.0\] .*/## [9.10.0] - 2026-01-31/' copy/CHANGELOG.md
git -C copy init -q && git -C copy add -A && git -C copy commit -qm all
release --tag >out 2>err && fail "no day, and a tag"
grep -q "want the day" err || fail "$(cat err)"
sed -i "s/^## \[9.11.0\] - unreleased/## [9.11.0] - 2026-02-28\n\n- a change/" copy/CHANGELOG.md
release --tag >out 2>err && fail "changes, and a tag"
grep -q "not committed" err || fail "$(cat err)"
git -C copy commit -qam day
release --tag >out || fail "$(cat out)"
git -C copy cat-file -p v9.11.0 | grep -q '^oneshot 9.11.0$' || fail "$(git -C copy tag)"
[ "$(release --notes)" = "- a change" ] && git -C copy cat-file -p v9.11.0 | grep -qx -- "- a change" || fail "other notes than those of the tag"
mv copy/scripts/install-deps.sh copy/scripts/other.sh
release >out && fail "a missing script is not found"
grep -q '^Dockerfile: calls scripts/install-deps.sh, which is not there' out || fail "$(cat out)"
