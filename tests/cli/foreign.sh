# foreign.sh - tests that oneshot never deletes or overwrites a file of the user. A run that would
# write, replace or delete a file that oneshot did not make must be refused. The message must name
# the path, and no file may change.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; [ ! -e log ] || cat log; exit 1; }
mkdir w && cd w
cp -r "$model" m && chmod -R u+w m
cp m/data/calibration.jsonl data.jsonl
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier: {targets: [Linear], scheme: W4A16, ignore: [lm_head]}\n' >r.yaml
one() { last_wins "$ONESHOT" --model m --recipe r.yaml --max-shard-size 2MB --progress none --threads 1 --output "$@"; }
killed() { # arguments: number of a disk call, then the arguments of one()
    if INJECT_AT=$1 INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one "${@:2}" >/dev/null 2>&1; then fail "the run was not killed"; fi
}
state() { # prints inode, size and time of change of all files
    find . -type f -printf 'f %p %i %n %s %T@\n' -o -printf '%y %p %i %l\n' | sort
}
n=0
# arguments: part of the message, arguments of one(); checks that the exit code is 2, and that no
# file changes
refused() {
    state >../before
    local code=0
    one "${@:2}" >../log 2>&1 || code=$?
    [ $code = 2 ] && grep -qE -- "$1" ../log || { cat ../log; fail "exit $code, wanted 2 and /$1/: one ${*:2}"; }
    state | diff ../before - || fail "changed by: one ${*:2}"
    n=$((n + 1))
}
INJECT_COUNT=$PWD/../calls LD_PRELOAD=$OSH_TOOLS/inject.so one o >/dev/null
calls=$(cat ../calls) p=o.oneshot-partial
half=$((calls / 2))
mv o finished

# Tests files of the user in the partial directory.
mkdir mine && echo mine >mine/file
ln -s mine $p; refused "$p is a symbolic link" o; refused "$p is a symbolic link" o --restart; rm $p
ln -s nowhere $p; refused "$p is a symbolic link" o; rm $p
echo mine >$p; refused "$p is a file" o; refused "$p is a file" o --restart; rm $p
mkdir $p && echo mine >$p/file
refused "$p was not made by oneshot.*it holds file and no oneshot-journal" o
refused "$p was not made by oneshot" o --restart
echo mine >$p/oneshot-journal; refused "$p/oneshot-journal is a file that oneshot did not make" o --restart
rm $p/oneshot-journal; echo OSHJRNL1 >elsewhere; ln -s ../elsewhere $p/oneshot-journal
refused "$p/oneshot-journal is a symbolic link" o --restart
rm $p/oneshot-journal; ln elsewhere $p/oneshot-journal
refused "$p/oneshot-journal is a file with a second name" o --restart
rm -r $p elsewhere
mkdir $p; echo mine >$p/oneshot-journal; refused "$p/oneshot-journal is a file that oneshot did not make" o; rm -r $p
# after a power loss, a journal may have only the first bytes of its header
for part in '' 'OSHJ' 'OSHJ\0\0\0\0' '\0\0\0\0\0\0\0\0'; do
    mkdir $p && printf "$part" >$p/oneshot-journal && one o >/dev/null && rm -r o
done
# if a run is killed at its start, the next run recognizes the files of the killed run
mkdir $p; killed 1 o; killed 2 o; killed 3 o
one o >/dev/null; rm -r o

# An unknown file in the partial directory stops the run. All files of a killed run are known, even
# its temporary files.
for at in $half $((calls - 12)) $((calls - 9)) $((calls - 6)); do
    killed $at o
    for flag in "" --restart "--restart --max-shard-size 1MB"; do
        echo mine >$p/notes.txt; refused "$p/notes.txt is a file that oneshot did not make" o $flag; rm $p/notes.txt
        mkdir $p/config.json.d; refused "$p/config.json.d is a directory" o $flag; rmdir $p/config.json.d
    done
    echo mine >$p/model-00007-of-00009.safetensors; refused 'model-00007-of-00009.safetensors is a file' o
    rm $p/model-00007-of-00009.safetensors
    [ $at = $half ] || { one o >/dev/null; rm -r o; continue; }
    ln $p/model-00001-of-00002.safetensors second; refused 'model-00001-of-00002.safetensors is a file with a second name' o
    rm second
    mv $p/model-00001-of-00002.safetensors first; ln -s ../first $p/model-00001-of-00002.safetensors
    refused 'model-00001-of-00002.safetensors is a symbolic link' o
    rm $p/model-00001-of-00002.safetensors; mv first $p/model-00001-of-00002.safetensors
    # the journal lists the shards and other files of the run
    one o --restart --max-shard-size 1MB >/dev/null; rm -r o
done
killed $half o
echo side >m/side.txt
one o --restart >/dev/null; rm -r o
killed $((calls - 3)) o # the run is killed after the seal
[ -e $p/side.txt ] || fail "the side file is not there yet"
rm m/side.txt; one o --restart >/dev/null; rm -r o

# If a key occurs twice in the journal, --restart must discard the partial directory. --restart must
# delete only files of the run.
echo side >m/side.txt; killed $((calls - 3)) o; [ -e $p/side.txt ] || fail "the unfinished output lacks side.txt"; rm m/side.txt
"$OSH_TOOLS/journal_twice" $p/oneshot-journal side.txt
code=0; one o >../log 2>&1 || code=$?
[ $code = 1 ] && grep -q "'source side.txt' occurs twice.*of $p; --restart discards" ../log || fail "exit $code"
echo mine >$p/notes.txt; refused "$p/notes.txt is a file that oneshot did not make" o --restart; rm $p/notes.txt
one o --restart >/dev/null; [ ! -e o/side.txt ] || fail "side.txt stayed"; rm -r o

# Another program makes a file during the run.
INJECT_AT=$half INJECT_WHAT=stop LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" --model m --recipe r.yaml --max-shard-size 2MB \
    --progress none --threads 1 --output o >../log 2>&1 &
pid=$!
while ! grep -q '^State:.T' /proc/$pid/status; do sleep 0.02; done
echo mine >$p/notes.txt
kill -CONT $pid
code=0; wait $pid || code=$?
[ $code = 1 ] && grep -q "$p/notes.txt is a file that oneshot did not make" ../log && [ ! -e o ] || fail "$(cat ../log)"
mv $p/notes.txt . && one o >/dev/null && rm -r o notes.txt

# Tests files of the user in the directory to which a replaced output is moved.
cp -r finished o
mkdir o.oneshot-replaced
refused 'o.oneshot-replaced is a directory, but a replaced output needs this name' o --overwrite
echo mine >o.oneshot-replaced/file; refused 'o.oneshot-replaced is a directory' o --overwrite
rm -r o.oneshot-replaced; cp -r finished o.oneshot-replaced; refused 'o.oneshot-replaced is a directory' o --overwrite
rm -r o.oneshot-replaced; ln -s mine o.oneshot-replaced; refused 'o.oneshot-replaced is a symbolic link' o --overwrite
rm -r o.oneshot-replaced

# Tests unknown files in an output that the run would replace.
echo mine >o/notes.txt; refused 'o/notes.txt is a file that oneshot did not make' o --overwrite; rm o/notes.txt
mkdir o/sub; refused 'o/sub is a directory' o --overwrite; rmdir o/sub
mv o/oneshot-manifest.json manifest; refused 'o is not empty and was not made by oneshot' o --overwrite
mv manifest o/oneshot-manifest.json
one o --overwrite >/dev/null

# The program must refuse to replace an output that contains an input: the model, the data, the
# recipe or another file. It must recognize the input under any path.
inside() { # arguments: input, the input's name in messages, flags; moves the input into o
    mv "$1" o/x
    refused "$2 .*lies in o, and this run would replace" o --overwrite "${@:3}"
    mv o/x "$1"
}
inside m --model --model o/x
inside m --model --model "$PWD/finished/../o/x"
ln -s o/x to; inside m --model --model to
mkdir d; ln -s ../o d/o; inside m --model --model d/o/x; rm -r d
inside data.jsonl --dataset --dataset o/x
inside data.jsonl --dataset --dataset to; rm to
cp r.yaml r2.yaml; inside r2.yaml --recipe --recipe o/x
mkdir models; inside models --models-dir --models-dir o/x; inside models --scratch-dir --scratch-dir o/x; rmdir models
refused '--profile .*lies in o, ' o --overwrite --profile o/profile.yaml
refused '--log-file .*lies in o, ' o --overwrite --log-file o/run.log
refused '--scratch-dir .*lies in o.oneshot-partial, ' o --overwrite --scratch-dir o.oneshot-partial/s
# only one file of the model is in the output
mv m/model.safetensors o/x; ln -s ../o/x m/model.safetensors
refused "the model's file m/model.safetensors lies in o, " o --overwrite
rm m/model.safetensors; mv o/x m/model.safetensors
ln -s o link; mv m o/x; refused '--model o/x lies in .*o, ' link --overwrite --model o/x; mv o/x m
refused '--model m lies in .*m, ' m --overwrite
refused '--model m lies in .*m, ' m/../m/. --overwrite
refused '--model m lies in ' . --overwrite
mv m $p; refused "--model $p lies in $p, and this run would delete" o --overwrite --model $p --restart; mv $p m
one m/o >/dev/null; [ -e m/o/config.json ] && [ -e m/model.safetensors ] || fail "the run changes the model, or makes no output in its directory"
rm -r m/o; one link --overwrite >/dev/null; [ -L link ] && [ -e o/config.json ] || fail "the run replaces the link to the output"

# In --scratch-dir, another program has made the directory for the values of the run.
gptq=(--model m --dataset data.jsonl --num-calibration-samples 1 --max-seq-length 16 --mem-opt-level 2 --scratch-dir s)
calibrated() { "$ONESHOT" "${gptq[@]}" --scheme W4A16 --method gptq --ignore lm_head --progress none --threads 1 --output "$@"; }
INJECT_AT=90 INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so calibrated v >/dev/null 2>&1 && fail "the run was not killed"
dir=$(echo s/oneshot-*)
[ -e "$dir/oneshot-scratch" ] || fail "the killed run leaves no directory of values"
rm -r v.oneshot-partial "$dir"
one() { calibrated "$@"; }
mkdir "$dir" && echo mine >"$dir/file"; refused "$dir was not made by oneshot" v; refused "$dir was not made by oneshot" v --restart
rm -r "$dir"; ln -s ../mine "$dir"; refused "$dir is a symbolic link" v; rm "$dir"
one v >/dev/null
[ -z "$(ls s)" ] || fail "left: $(ls s)"

# --only-largest-layer does not delete files that oneshot did not make.
one() { last_wins "$ONESHOT" --model m --recipe r.yaml --progress none --threads 1 --only-largest-layer --output "$@"; }
t=o.oneshot-trial.oneshot-partial
mkdir $t && echo mine >$t/file; refused "$t was not made by oneshot" o; rm -r $t
state >../before; one o >/dev/null; state | diff ../before - || fail "a refused run changes files"
[ $n -ge 65 ] || fail "only $n cases ran"
