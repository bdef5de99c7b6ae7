# ranks_eval.sh - runs eval and verify under mpirun. The commands divide windows and tensors among
# ranks. Numbers, files and findings must be the same as with one process.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/ranks.sh"
fail() { echo "$1"; [ ! -e log ] || cat log; exit 1; }
docs=$OSH_SOURCE_DIR/examples/docs-llama-3m
"$ONESHOT" --model "$docs" --scheme W4A16 --output out --progress none >/dev/null 2>&1
data=(--dataset "$docs/data/evaluation.txt" --max-seq-length 48 --progress none --max-windows 9 --threads 1)
figures() { # arguments: directory for the files, [launcher...]
    rm -rf "$1" && mkdir "$1"
    "${@:2}" "$ONESHOT" eval --model "$docs" "${data[@]}" --save-logits "$1/logits" --panel "$1/dense.json" \
        >"$1/dense" 2>log || fail "eval of the source fails: $*"
    "${@:2}" "$ONESHOT" eval --model out --reference "$docs" "${data[@]}" --batch-size 2 --json --sample "The" --panel "$1/panel.json" \
        --per-token "$1/tokens.npy" >"$1/json" 2>log || fail "eval with a reference fails: $*"
    "${@:2}" "$ONESHOT" eval --model out --reference "$1/logits" "${data[@]}" >"$1/saved" 2>log ||
        fail "eval with saved logits fails: $*"
}
figures plain
for mpi in "${mpis[@]}"; do
    for n in 1 3 7; do
        [ $mpi = "${mpis[0]}" ] || [ $n = 3 ] || continue
        [ -z "$SANITIZED" ] || [ $n = 3 ] || continue
        figures ranks start $mpi $n
        diff -r plain ranks >log || fail "$mpi, $n ranks: the figures differ from those of one process"
    done
done
mpi=${mpis[0]}

# `oneshot verify` prints the same findings in the same order as with one process, also for a
# damaged output.
cp -r out damaged
python3 - <<'END'
import json, struct
path = "damaged/model.safetensors"
data = bytearray(open(path, "rb").read())
head = struct.unpack("<Q", data[:8])[0]
for i, (name, t) in enumerate(sorted(json.loads(data[8:8 + head]).items())):
    if name != "__metadata__" and i % 3 == 0:
        data[8 + head + t["data_offsets"][0]] ^= 0x81
open(path, "wb").write(data)
open("damaged/tokenizer.json", "a").write(" ")
open("damaged/stranger.txt", "w").write("x")
END
for what in "out --model $docs" "damaged --model $docs" "damaged --json" "$docs"; do
    "$ONESHOT" verify $what >want 2>log || [ "$what" != "out --model $docs" ] || fail "verify fails"
    [ "$what" != "damaged --model $docs" ] || [ "$(grep -c wanted want)" -gt 10 ] || fail "too few findings"
    for n in 2 7; do
        start ${mpis[n % ${#mpis[@]}]} $n "$ONESHOT" verify $what >got 2>log || [ "$what" != "out --model $docs" ] || fail "verify fails"
        ! grep -qi 'mpi_abort\|aborting' log || fail "verify $what: a rank with findings ends the other ranks"
        diff want got >log 2>&1 || fail "verify $what, $n ranks: other findings"
    done
done

# All ranks of a node share its budget. If the budget is too small, all ranks refuse it with one
# message. The message names a budget, and this budget is enough.
if start $mpi 2 "$ONESHOT" eval --model out "${data[@]}" --host-memory 2MiB >log 2>&1; then fail "a budget of 2 MiB is not refused"; fi
[ "$(grep -c '^oneshot: ' log)" = 1 ] || fail "wanted one message"
least=$(grep -oE 'want at least --host-memory [0-9]+' log | grep -oE '[0-9]+$')
start $mpi 2 "$ONESHOT" eval --model out "${data[@]}" --host-memory $((2 * least))MiB >got 2>log || fail "eval fails with the smallest budget"
"$ONESHOT" eval --model out "${data[@]}" >want 2>log
cmp want got || fail "the figures differ with a budget"
# Tests a rank whose model or text differs from that of rank 0.
cp -r "$docs" old && touch -d @1 old/*.safetensors && mkdir model && cp -r "$docs"/. model
cat >source <<'END'
#!/bin/bash
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || exec unshare -m bash -c 'mount --bind old model && exec "$@"' - "$@"
exec "$@"
END
chmod +x source
if unshare -m true 2>/dev/null; then
    if start $mpi 2 ./source "$ONESHOT" eval --model model "${data[@]}" >log 2>&1; then fail "another model of a rank is not refused"; fi
    grep -q 'rank 1 of 2 on .*has another model or reference than rank 0: here .source model.*changed at' log || fail "another model of a rank is not refused"
fi
