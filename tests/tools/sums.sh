# sums.sh - sourced: sums, same. The script has fail.
# Of an output's files that are promised byte for byte.
sums() { (cd "$1" && find . -type f ! -name 'oneshot-report.*' ! -name oneshot.log -print0 | sort -z | xargs -0 sha256sum); }
same() { # output, name of what is wanted, what was done
    sums "$1" | diff -u "$2" - >diff.txt || { cat diff.txt; fail "$3: other bytes"; }
    rm -rf "$1"
}
