# bare.sh - defines functions that make a minimal Debian system with debootstrap, and that run
# commands in it. To be sourced. The functions need root. They take packages from the mirror that
# apt on this machine uses.

# bare_wants PROGRAM ... - ends the script if the user is not root, or if a program is missing
bare_wants() {
    local program
    [ "$(id -u)" = 0 ] || { echo "${0##*/}: found user $(id -un), want root: debootstrap and chroot need it" >&2; exit 1; }
    for program in debootstrap unshare "$@"; do
        command -v "$program" >/dev/null || { echo "${0##*/}: no $program in PATH" >&2; exit 1; }
    done
}

# bare_rows SUITE - prints a line "URI RELEASE COMPONENT" for each apt source of this machine. SUITE
# replaces the name of this machine's release.
bare_rows() {
    local own
    own=$(. /etc/os-release; echo "$VERSION_CODENAME")
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
        grep -E " $own(-updates|-security)? main$" | sed "s/ $own\(-updates\|-security\|\) main$/ $1\1 main/" | sort -u || true
}

# bare_base SUITE TAR - makes the archive of a bare system, if the file does not exist
bare_base() {
    local mirror tree=$2.tree
    [ ! -e "$2" ] || return 0
    mirror=$(bare_rows "$1" | sed -n "s| $1 main$||p" | head -1)
    [ -n "$mirror" ] || { echo "${0##*/}: /etc/apt names no mirror of Debian's main" >&2; exit 1; }
    rm -rf --one-file-system "$tree"
    debootstrap --variant=minbase "$1" "$tree" "$mirror" >"$2.log" 2>&1 || { tail -20 "$2.log" >&2; exit 1; }
    tar -C "$tree" -cf "$2.partial" .
    mv "$2.partial" "$2"
    rm -rf --one-file-system "$tree"
}

# bare_unpack SUITE TAR ROOT - makes the directory ROOT again, from the archive of bare_base. In
# ROOT, apt needs some files of this machine to reach the mirror: sources, settings for downloads,
# names, certificates, proxies. Copies these files to ROOT.
bare_unpack() {
    local file root=$3
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    tar -C "$root" -xf "$2"
    rm -f "$root"/etc/apt/sources.list.d/*
    bare_rows "$1" | sed 's/^/deb /' >"$root/etc/apt/sources.list"
    apt-config dump | grep -E '^Acquire::(http|https|ftp|Check-|Retries)' >"$root/etc/apt/apt.conf.d/99host" || true
    for file in /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/resolv.conf /etc/hosts /etc/pip.conf; do
        [ ! -e "$file" ] || cp -rL "$file" "$root$(dirname "$file")/"
    done
}

# bare_enter ROOT COMMAND ... - runs the command in ROOT, without this machine's environment. The
# mounts are in a new namespace, and end with the namespace.
bare_enter() {
    local name settings=() root=$1
    shift
    while IFS= read -r name; do
        case $name in *_proxy | *_PROXY | PIP_*) settings+=("$name=${!name}") ;; esac
    done < <(compgen -e)
    unshare --mount --propagation private --pid --fork bash -euc '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount -t sysfs -o ro sysfs "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/dev/shm"
        exec chroot "$root" "$@"
    ' mounts "$root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        DEBIAN_FRONTEND=noninteractive ${settings[@]+"${settings[@]}"} "$@" </dev/null
}

# bare_forget ROOT - removes files that must not be published with ROOT: the files that bare_unpack
# has copied from this machine, the names of its mirrors, and the caches of apt
bare_forget() {
    (cd "$1" && rm -rf --one-file-system etc/apt/auth.conf etc/apt/auth.conf.d etc/apt/apt.conf.d/99host etc/pip.conf run.sh \
        var/lib/apt/lists/* var/cache/apt/*.bin var/cache/apt/archives/*.deb var/cache/ldconfig/* var/log/* tmp/*)
    : >"$1/etc/resolv.conf"
    echo '127.0.0.1 localhost' >"$1/etc/hosts"
    : >"$1/etc/apt/sources.list"
}
