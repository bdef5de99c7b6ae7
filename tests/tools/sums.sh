# sums.sh - defines the functions `sums` and `same` for scripts that source it. The script must
# define `fail`. `sums` prints the checksums of those files of an output that are the same in every
# run.
sums() { (cd "$1" && find . -type f ! -name 'oneshot-report.*' ! -name oneshot.log -print0 | sort -z | xargs -0 sha256sum); }
same() { # arguments: output, name of the wanted checksums, label
    sums "$1" | diff -u "$2" - >diff.txt || { cat diff.txt; fail "$3: other bytes"; }
    rm -rf "$1"
}
