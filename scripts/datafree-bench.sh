#!/bin/bash
# datafree-bench.sh - compares the wall time of a run without data with the least time that the disk
# needs: input / read rate + output / write rate + output / read rate. Prints the least time divided
# by the wall time. dd with O_DIRECT measures the rates in the same minute.
# Usage: datafree-bench.sh ONESHOT MODEL DIR [RUNS [flags of oneshot]]
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 ONESHOT MODEL DIR [RUNS [flags]]" >&2; exit 2; }
oneshot=$1 model=$2 dir=$3 runs=${4:-3}
shift $(($# < 4 ? $# : 4))
[ $# -gt 0 ] || set -- --scheme W8A16 --ignore lm_head
mkdir -p "$dir"
trap 'rm -rf "$dir/dd" "$dir/out" "$dir/out.oneshot-partial" "$dir/time"' EXIT
bytes() { stat -L -c %s "$1"/*.safetensors | awk '{n += $1} END {printf "%.0f", n}'; }
seconds() { LC_ALL=C dd "$@" 2>&1 | sed -n 's/.* copied, \([0-9.e-]*\) s,.*/\1/p'; }
cold() { sync; (echo 3 >/proc/sys/vm/drop_caches) 2>/dev/null || true; }
file=$(stat -L -c '%s %n' "$model"/*.safetensors | sort -rn | head -1)
for _ in $(seq "$runs"); do
    rm -rf "$dir/out"
    cold
    read_s=$(seconds if="${file#* }" of=/dev/null bs=8M iflag=direct)
    write_s=$(seconds if=/dev/zero of="$dir/dd" bs=8M count=64 oflag=direct conv=fsync)
    again_s=$(seconds if="$dir/dd" of=/dev/null bs=8M iflag=direct)
    rm "$dir/dd"
    cold
    /usr/bin/time -o "$dir/time" -f '%e %U %S %M' "$oneshot" --model "$model" --pipeline datafree --progress none \
        --output "$dir/out" --overwrite "$@" >/dev/null
    awk -v in_bytes="$(bytes "$model")" -v out_bytes="$(bytes "$dir/out")" -v file="${file%% *}" -v r="$read_s" \
        -v w="$write_s" -v a="$again_s" '{
            dd = 64 * 8 * 1048576; least = in_bytes / file * r + out_bytes / dd * (w + a)
            printf "disk %.2f s (reads %.2f, writes %.2f, reads again %.2f GB/s), run %.2f s, %.2f s user, %.2f s system, ",
                least, file / r / 1e9, dd / w / 1e9, dd / a / 1e9, $1, $2, $3
            printf "%.0f MB: %.2f of the speed of the disk\n", $4 * 1024 / 1e6, least / $1 }' "$dir/time"
done
