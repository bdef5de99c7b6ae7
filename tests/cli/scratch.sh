# scratch.sh - tests that a run uses only values that it has written to the disk itself. Tests two
# runs that share --scratch-dir, a file in which two samples are swapped, and files of another run,
# value or stage.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
cp -r "$model" other && chmod -R u+w other
# makes another model with the same shapes: some weights of the first layer have the opposite sign
python3 - <<'P'
import json, struct
with open("other/model.safetensors", "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    at = json.loads(f.read(n))["model.layers.0.mlp.down_proj.weight"]["data_offsets"][0] + 8 + n
    f.seek(at)
    b = bytearray(f.read(4096))
    for i in range(1, len(b), 2): b[i] ^= 0x80
    f.seek(at)
    f.write(b)
P
one() { # arguments: model, output, flags
    "$ONESHOT" --model "$1" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl" \
        --num-calibration-samples 3 --max-seq-length 64 --concatenate-data --progress none --threads 1 --output "$2" "${@:3}"
}
sum() { sha256sum <"$1/model.safetensors"; }
killed() { # arguments: number of a disk call, then the arguments of one()
    if INJECT_AT=100 INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one "$@" >/dev/null 2>&1; then fail "the run was not killed"; fi
}
one "$model" plain >/dev/null
one "$PWD/other" plain.other >/dev/null
[ "$(sum plain)" != "$(sum plain.other)" ] || fail "both models give the same bytes: the test cannot fail"

# Two runs have different working directories. Their outputs have the same relative path, and they
# share one --scratch-dir.
mkdir d1 d2
flags=(--mem-opt-level 2 --scratch-dir ../scr)
(cd d1 && killed "$model" out "${flags[@]}")
(cd d2 && killed ../other out "${flags[@]}")
[ "$(find scr -name 'oneshot-????????????????' | wc -l)" = 2 ] || fail "the two runs share a directory: $(ls scr)"
for d in d1 d2; do [ -e $d/out.oneshot-partial/oneshot-journal ] || fail "$d: the killed run leaves no journal"; done
(cd d1 && one "$model" out "${flags[@]}" --log-level info >/dev/null 2>log)
grep -q 'values after .* are read from the disk' d1/log || fail "d1: $(cat d1/log)"
[ "$(sum d1/out)" = "$(sum plain)" ] || fail "d1 took the values of d2"
(cd d2 && one ../other out "${flags[@]}" >/dev/null)
[ "$(sum d2/out)" = "$(sum plain.other)" ] || fail "d2 took the values of d1"
rm -r d1 d2
[ ! -e scr ] || [ -z "$(ls scr)" ] || fail "left in the scratch directory: $(ls scr)"

# Values that were changed are not used: the run starts again from the tokens.
values() { ls o.oneshot-partial/scratch/*.values | head -n "${1:-1}" | tail -n 1; }
leave() { killed "$model" o --mem-opt-level 2; }
goes_on() { # argument: label; the run starts again from the tokens
    one "$model" o --mem-opt-level 2 --log-level info >/dev/null 2>log || fail "$1: $(cat log)"
    grep -q 'are incomplete on the disk: starting from the tokens' log || fail "$1: $(cat log)"
    [ "$(sum o)" = "$(sum plain)" ] || fail "$1: the output has other bytes"
    rm -r o
}
leave
python3 - "$(values)" <<'P' # swaps two samples of 64 tokens, whose slots have the same size
import os, sys
path, n = sys.argv[1], os.path.getsize(sys.argv[1]) // 3
b = open(path, "rb").read()
assert n * 3 == len(b) and b[:n] != b[n : 2 * n]
open(path, "r+b").write(b[n : 2 * n] + b[:n] + b[2 * n :])
P
goes_on "two slots swapped"
leave
cp "$(values)" kept.values
rm -r o.oneshot-partial
leave
cp kept.values "$(values)"
goes_on "values of another run"
leave
file=$(values)
mv "$file" "${file%/*}/00099.values"
cp "${file%/*}/00099.values" "$file" # restores the original file; the run then uses its values
one "$model" o --mem-opt-level 2 --log-level info >/dev/null 2>log
grep -q 'are read from the disk' log || fail "the run does not read the values of a copied file: $(cat log)"
[ "$(sum o)" = "$(sum plain)" ] && [ ! -e o.oneshot-partial ] && [ ! -e o/scratch ] || fail "after a copy: $(ls o)"

# Only one process at a time may use the stored values of a run.
rm -r o
leave
code=0
flock o.oneshot-partial/scratch/oneshot-scratch "$ONESHOT" --version >/dev/null
flock o.oneshot-partial/scratch/oneshot-scratch bash -c "$(declare -f one); model=$model ONESHOT=$ONESHOT one $model o --mem-opt-level 2" \
    >log 2>&1 || code=$?
[ $code = 2 ] && grep -q 'scratch: another process stores values in this directory' log || fail "a locked directory: exit $code, $(cat log)"
one "$model" o --mem-opt-level 2 >/dev/null
[ "$(sum o)" = "$(sum plain)" ] || fail "after a locked directory: the output has other bytes"
