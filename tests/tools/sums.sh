# sums.sh - sourced: sums.
# Of an output's files that are promised byte for byte.
sums() { (cd "$1" && find . -type f ! -name 'oneshot-report.*' ! -name oneshot.log -print0 | sort -z | xargs -0 sha256sum); }
