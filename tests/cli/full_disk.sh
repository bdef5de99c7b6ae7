# full_disk.sh - tests a full disk. The run must be refused before any computation, or fail when the
# disk becomes full. In both cases, no output may have the final name.
set -euo pipefail
# A limit on the size of files (ulimit -f) causes an error, not a signal. The same command, without
# the limit, then continues the run.
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
code=0
(ulimit -f 1000; exec "$ONESHOT" --model "$model" --scheme W4A16 --ignore lm_head --output limited --progress none) >stdout 2>stderr || code=$?
[ $code = 1 ] && grep -q 'limited.oneshot-partial/model.safetensors: File too large' stderr ||
    { echo "exit $code, want 1"; cat stderr; exit 1; }
"$ONESHOT" --model "$model" --scheme W4A16 --ignore lm_head --output limited --progress none >/dev/null
"$ONESHOT" verify limited --model "$model" >/dev/null
rm -r limited
mkdir small
mount -t tmpfs -o size=2m none small 2>/dev/null || { echo "cannot mount a small file system here"; exit 77; }
trap 'umount small' EXIT
set +e
"$ONESHOT" --model "$OSH_SOURCE_DIR/examples/docs-llama-3m" --scheme W4A16 --ignore lm_head --output small/out --progress none >stdout 2>stderr
code=$?
set -e
[ $code = 1 ] || { echo "exit $code, want 1"; cat stderr; exit 1; }
grep -q 'the disk of small/out has .* bytes free, the output needs' stderr || { cat stderr; exit 1; }
[ -z "$(ls -A small)" ] || { echo "left behind:"; ls -A small; exit 1; }
