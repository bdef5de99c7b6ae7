#!/usr/bin/env bash
# release.sh - builds the files of a release from the committed tree (HEAD) in a bare Debian 12:
# .deb, tarball, wheel and container image, without CUDA. Tries each file in a bare Debian 12 and a
# bare Debian 13. A trial installs the file, and makes an output without data and a calibrated
# output. The outputs must have the same bytes as those of the program that was just built. Needs
# root and debootstrap; takes packages from the mirror of this machine's apt. The systems on which
# the files are tried need packages too: python3-venv for the wheel, skopeo and umoci for the image.
#
# Usage: scripts/release.sh [--keep DIR] OUT
#   OUT              an empty directory for the files and SHA256SUMS
#   --keep DIR       keeps the bare systems in DIR, so that the next call can use DIR/bookworm.tar
#                    and DIR/trixie.tar again. Without this option, they are in a temporary
#                    directory, which is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/bare.sh

keep= out=
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --keep) [ $# -gt 1 ] || usage; keep=$2; shift ;;
        -*) usage ;;
        *) [ -z "$out" ] || usage; out=$1 ;;
    esac
    shift
done
[ -n "$out" ] || usage
bare_wants git python3 sha256sum
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ -z "$(ls -A "$out")" ] || { echo "release.sh: $out is not empty; want an empty directory" >&2; exit 1; }
if [ -z "$keep" ]; then
    keep=$(mktemp -d)
    trap 'rm -rf --one-file-system "$keep"' EXIT
fi
mkdir -p "$keep"
keep=$(cd "$keep" && pwd)
version=$(sed -n 's/^project(oneshot VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
created=$(git log -1 --format=%ct)
for suite in bookworm trixie; do bare_base $suite "$keep/$suite.tar"; done

# ---- the files ----

# Makes outputs.sh. "outputs.sh PROGRAM" makes outputs with the program and prints their checksums.
cat >"$keep/outputs.sh" <<'END'
set -eu
[ "$("$1" --version | head -1)" = "oneshot $VERSION" ] || { "$1" --version; exit 1; }
run() { "$program" --model /model --output "/outputs/$name" --progress none --threads 2 "$@" >/dev/null; }
program=$1
rm -rf /outputs
mkdir /outputs
name=free run --scheme FP8_DYNAMIC
name=calibrated run --scheme W4A16 --method gptq --dataset /model/data/calibration.jsonl --num-calibration-samples 16 \
    --max-seq-length 128
for name in free calibrated; do "$1" verify /outputs/$name --model /model >/dev/null; done
cd /outputs
sha256sum */model.safetensors */config.json */tokenizer.json
END
# prepare SUITE ROOT - makes a bare system with the small model and outputs.sh
prepare() {
    bare_unpack "$1" "$keep/$1.tar" "$2"
    git archive HEAD:examples/docs-llama-3m --prefix=model/ | tar -C "$2" -x
    cp "$keep/outputs.sh" "$2"
}

echo "== build"
root=$keep/build
prepare bookworm "$root"
mkdir "$root/source" "$root/files"
git archive HEAD | tar -C "$root/source" -x
bare_enter "$root" env VERSION="$version" nice bash -euc '
    cd /source
    scripts/install-deps.sh
    cmake --preset release -DOSH_TESTS=OFF -DOSH_CUDA=OFF >/configure.log || { cat /configure.log; exit 1; }
    cmake --build --preset release -- --quiet
    (cd build/release && cpack -G DEB && cpack -G TGZ) >/packages.log || { cat /packages.log; exit 1; }
    python3 packaging/wheel.py build/release --out /files
    mv build/release/*.deb build/release/*.tar.gz /files
    bash /outputs.sh /source/build/release/oneshot >/expected'
cp "$root"/files/* "$out"
cp "$root/expected" "$keep/expected"

echo "== image"
root=$keep/image
bare_unpack bookworm "$keep/bookworm.tar" "$root"
mkdir "$root/files"
cp "$out"/*.deb "$root/files"
bare_enter "$root" bash -euc 'apt-get update -qq
    apt-get install -y -qq --no-install-recommends ca-certificates /files/*.deb >/dev/null'
bare_forget "$root"
rm -r "$root/files"
mkdir "$root/data"
tar -C "$root" --sort=name --numeric-owner --mtime="@$created" --exclude=./dev/* -cf "$keep/image.tar" .
python3 packaging/oci.py "$keep/image.tar" --tag "oneshot:$version" --command oneshot --created "$created" \
    --out "$out/oneshot-$version-linux-x86_64.oci.tar"
(cd "$out" && sha256sum -- * >"$keep/SHA256SUMS" && mv "$keep/SHA256SUMS" .)

# ---- the trials ----

# The scripts install /files/... in the current system, and run outputs.sh with the installed
# program.
declare -A trials=(
    [deb]='apt-get install -y -qq --no-install-recommends /files/*.deb >/dev/null
        bash /outputs.sh /usr/bin/oneshot'
    [tarball]='tar -C /opt -xzf /files/*.tar.gz
        bash /outputs.sh /opt/oneshot-*/bin/oneshot'
    [wheel]='apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
        python3 -m venv /venv
        /venv/bin/pip install --quiet --no-index /files/*.whl
        bash /outputs.sh /venv/bin/oneshot >/by_command
        /venv/bin/python -c "
import oneshot
data = dict(dataset=\"/model/data/calibration.jsonl\", num_calibration_samples=16, max_seq_length=128, threads=2)
recipe = {\"GPTQModifier\": {\"scheme\": \"W4A16\", \"targets\": [\"Linear\"], \"ignore\": [\"lm_head\"]}}
assert oneshot.plan(\"/model\", recipe, **data)[\"modules\"]
oneshot.oneshot(\"/model\", recipe, output_dir=\"/outputs/python\", **data)
oneshot.verify(\"/outputs/python\", \"/model\")"
        cmp /outputs/python/model.safetensors /outputs/calibrated/model.safetensors
        cat /by_command'
    [image]='apt-get install -y -qq --no-install-recommends skopeo umoci jq >/dev/null
        skopeo copy --quiet oci-archive:$(ls /files/*.oci.tar) "oci:/layout:$VERSION"
        skopeo inspect docker-archive:$(ls /files/*.oci.tar) >/dev/null
        umoci unpack --image "/layout:$VERSION" /bundle >/dev/null
        [ "$(jq -r ".process.args[0], .process.cwd" /bundle/config.json | xargs)" = "oneshot /data" ]
        cp -r /model /outputs.sh /bundle/rootfs
        mount --rbind /dev /bundle/rootfs/dev
        mount -t proc proc /bundle/rootfs/proc
        chroot /bundle/rootfs bash /outputs.sh oneshot'
)
for suite in bookworm trixie; do
    for trial in deb tarball wheel image; do
        root=$keep/trial
        prepare $suite "$root"
        mkdir "$root/files"
        cp "$out"/* "$root/files"
        bare_enter "$root" env VERSION="$version" bash -euc "[ $trial = tarball ] || apt-get update -qq
            ${trials[$trial]}" >"$keep/found" || { echo "release.sh: $trial in $suite fails" >&2; exit 1; }
        diff -u "$keep/expected" "$keep/found" || { echo "release.sh: $trial in $suite makes other bytes" >&2; exit 1; }
        echo "$suite: $trial: equal bytes"
    done
done
rm -rf --one-file-system "$keep"/{build,image,trial} "$keep/image.tar"
cat "$out/SHA256SUMS"
