# release.sh - tests scripts/release.py and packaging/oci.py on a copy of the repository. release.py
# must find a version number that differs from the others. With --set it must change all version
# numbers. With --tag it must refuse a changelog without a date, and a tree that is not clean.
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
release >out && fail "another version in one file is not found"
for name in docs/reference/oneshot.1 docs/how-to/packages.md CHANGELOG.md; do grep -q "^$name: " out || fail "$name: $(cat out)"; done
release --set 9.10.0 >out || fail "$(cat out)"
grep -q "^## \[9.10.0\] - unreleased" copy/CHANGELOG.md && grep -q "oneshot_9.10.0_amd64.deb" copy/docs/how-to/packages.md || fail "$(cat out)"
[ "$(grep -c '^## .*unreleased' copy/CHANGELOG.md)" = 1 ] || fail "the head of an unreleased version stays"
sed -i 's/^## \[9.10.0\] - unreleased/## [9.10.0] - 2026-01-31/' copy/CHANGELOG.md
release --set 9.11.0 >out || fail "$(cat out)"
[ "$(grep '^## ' copy/CHANGELOG.md | head -2 | tr '\n' ' ')" = "## [9.11.0] - unreleased ## [9.10.0] - 2026-01-31 " ] || fail "$(grep '^## ' copy/CHANGELOG.md)"
sed -i 's/^## \[9.10.0\] .*/## [9.10.0] - unreleased/' copy/CHANGELOG.md
release >out && fail "two unreleased versions are not found"
grep -q "9.10.0 follows 9.11.0 and is unreleased" out || fail "$(cat out)"
sed -i 's/^## \[9.10.0\] .*/## [9.10.0] - 2026-01-31/' copy/CHANGELOG.md
git -C copy init -q && git -C copy add -A && git -C copy commit -qm all
release --tag >out 2>err && fail "a tag of a version without a date is not refused"
grep -q "want the day" err || fail "$(cat err)"
sed -i "s/^## \[9.11.0\] - unreleased/## [9.11.0] - 2026-02-28\n\n- a change/" copy/CHANGELOG.md
release --tag >out 2>err && fail "a tag of a changed tree is not refused"
grep -q "not committed" err || fail "$(cat err)"
git -C copy commit -qam day
release --tag >out || fail "$(cat out)"
git -C copy cat-file -p v9.11.0 | grep -q '^oneshot 9.11.0$' || fail "$(git -C copy tag)"
[ "$(release --notes)" = "- a change" ] && git -C copy cat-file -p v9.11.0 | grep -qx -- "- a change" || fail "the notes differ from those of the tag"
mv copy/scripts/install-deps.sh copy/scripts/other.sh
release >out && fail "a missing script is not found"
grep -q '^Dockerfile: calls scripts/install-deps.sh, which does not exist' out || fail "$(cat out)"

# The image of packaging/oci.py has the layout of OCI, and the manifest that `docker load` reads.
# The digests are those of the blobs. Equal root directories give equal images.
mkdir -p root/bin
echo program >root/bin/oneshot
tar -C root --sort=name --mtime=@7 -cf root.tar .
for name in one two; do
    python3 copy/packaging/oci.py root.tar --tag oneshot:9.11.0 --command oneshot --created 7 --out $name.tar >out || fail "$(cat out)"
done
cmp one.tar two.tar
mkdir image
tar -C image -xf one.tar
python3 - <<'END'
import gzip, hashlib, json, pathlib, tarfile
image = pathlib.Path("image")
def blob(row, kind):
    data = (image / "blobs/sha256" / row["digest"].split(":")[1]).read_bytes()
    assert row["digest"] == "sha256:" + hashlib.sha256(data).hexdigest() and row["size"] == len(data), row
    assert row["mediaType"] == "application/vnd.oci.image." + kind, row
    return data
assert json.loads((image / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
index = json.loads((image / "index.json").read_text())["manifests"]
assert len(index) == 1 and index[0]["annotations"]["org.opencontainers.image.ref.name"] == "9.11.0"
assert index[0]["annotations"]["io.containerd.image.name"] == "docker.io/library/oneshot:9.11.0"
manifest = json.loads(blob(index[0], "manifest.v1+json"))
config = json.loads(blob(manifest["config"], "config.v1+json"))
layer = gzip.decompress(blob(manifest["layers"][0], "layer.v1.tar+gzip"))
assert layer == pathlib.Path("root.tar").read_bytes() and len(manifest["layers"]) == 1
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
assert (config["architecture"], config["os"], config["created"]) == ("amd64", "linux", "1970-01-01T00:00:07Z")
assert config["config"]["Entrypoint"] == ["oneshot"] and config["config"]["WorkingDir"] == "/data"
docker = json.loads((image / "manifest.json").read_text())[0]
assert docker["RepoTags"] == ["oneshot:9.11.0"] and (image / docker["Config"]).read_bytes() == blob(manifest["config"], "config.v1+json")
assert gzip.decompress((image / docker["Layers"][0]).read_bytes()) == layer
END
python3 copy/packaging/oci.py root.tar --tag oneshot --command oneshot --out three.tar >out 2>&1 && fail "a tag without a version"
grep -q -- "--tag oneshot: want NAME:VERSION" out || fail "$(cat out)"
