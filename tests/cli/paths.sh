# paths.sh - tests paths that a job would write. If such a path is an input or a file of another
# program, under any name, the job must be refused before it writes anything. A flag that is not a
# list must accept only one value. The test takes 3 s of processor time.
set -euo pipefail
fail() { echo "$*"; exit 1; }
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
cp -r "$OSH_SOURCE_DIR/examples/docs-llama-3m" m && chmod -R u+w m
mkdir d t sub && cp m/data/calibration.jsonl d/rows.jsonl
printf 's_stage:\n  s_modifiers:\n    QuantizationModifier: {targets: [Linear], scheme: W4A16, ignore: [lm_head]}\n' >r.yaml
echo precious >user.txt
ln m/model.safetensors hard.yaml
ln -s m/model.safetensors soft.log
ln d/rows.jsonl rows.log
ln -s ../r.yaml sub/recipe.log
# a job may overwrite an empty file, but not an empty input
: >d/empty.jsonl && ln d/empty.jsonl empty.log
state() { # prints the state of all files, with their times of change
    find . -not -name . -not -name said -printf '%y %p %i %n %s %T@\n' | sort
}
# arguments: part of the message, then the arguments of oneshot; checks that the exit code is 2 and
# that nothing is written
refused() {
    local text=$1 rc=0 was
    shift
    was=$(state)
    "$ONESHOT" "$@" >said 2>&1 || rc=$?
    [ $rc = 2 ] && grep -qE -- "$text" said || fail "$rc, wanted 2 and '$text': $(cat said)"
    [ "$(state)" = "$was" ] || fail "changed by: $*"
}
job=(--model m --recipe r.yaml --dataset d --models-dir t --progress none --output o)
for flag in --profile --log-file; do
    for path in m/model.safetensors ./m/../m/config.json hard.yaml soft.log rows.log sub/recipe.log empty.log d/rows.jsonl r.yaml; do
        refused "$flag .* would overwrite .*, and --(model|dataset|recipe) reads that file|$flag .* lies in (m|d), and" "${job[@]}" $flag $path
        refused "$flag" plan "${job[@]}" $flag $path
    done
    for path in m/run.log d/new.jsonl t/x; do refused "$flag $path lies in [mdt], and --(model|dataset|models-dir) reads" "${job[@]}" $flag $path; done
    refused "$flag user.txt: the existing file is not a (log|profile) of oneshot" "${job[@]}" $flag user.txt
    refused "$flag sub: there is a directory" "${job[@]}" $flag sub
    refused "are one file: want two" "${job[@]}" $flag o
done
for log in new.yaml ./new.yaml sub/../NEW.yaml; do refused 'are one file: want two' "${job[@]}" --profile new.yaml --log-file $log; done
ONESHOT_PROFILING=user.txt refused 'user.txt: the existing file is not' "${job[@]}"
eval=(eval --model m --dataset d/rows.jsonl --max-windows 1 --max-seq-length 32 --progress none)
refused '--per-token hard.yaml would overwrite m/model.safetensors' "${eval[@]}" --per-token hard.yaml
refused '--per-token user.txt: .* not a list of f32' "${eval[@]}" --per-token user.txt
refused '--per-token m/x.npy lies in m' "${eval[@]}" --per-token m/x.npy

# Files that oneshot made may be written again: a log grows, other files are replaced.
for _ in 1 2; do
    "$ONESHOT" --model m --recipe r.yaml --progress none --overwrite --output o --profile p.yaml --log-file run.log >/dev/null
    "$ONESHOT" "${eval[@]}" --per-token t.npy >/dev/null
    "$ONESHOT" report p.yaml --output p.html >/dev/null
done
[ "$(grep -c ' command ' run.log)" = 2 ] && [ "$(grep -c '^# oneshot profile' p.yaml)" = 1 ] || fail "$(cat run.log)"
"$ONESHOT" --model m --recipe r.yaml --progress none --overwrite --output o --profile /dev/null --log-file /dev/null >/dev/null
refused '--output user.txt: .* not a page of oneshot' report p.yaml --output user.txt
refused '--output p.yaml: .* not a page of oneshot' report p.yaml --output p.yaml
cp user.txt p.html.tmp && ln p.html.tmp other && code=0
"$ONESHOT" report p.yaml --output p.html >/dev/null 2>said || code=$?
[ $code = 1 ] && grep -q 'cannot create p.html.tmp: found a file with a second name' said || fail "$code: $(cat said)"

# Tests flags that are given twice.
twice() { # arguments: flag, its two values, then the arguments of oneshot
    refused "$1 was given twice: '$2' and '$3'" "${@:4}"
}
twice --dataset d/rows.jsonl d/rows.jsonl plan --model m --scheme W4A16 --method gptq --dataset=d/rows.jsonl --dataset d/rows.jsonl
twice --output a b "${job[@]:0:4}" --output a --output-dir b
twice --threads 1 2 "${job[@]}" --threads 1 --threads=2
twice --overwrite true false "${job[@]}" --overwrite --overwrite false
twice --streaming true true "${job[@]}" --streaming true --streaming true
twice --model a b eval --model a --model b --dataset d/rows.jsonl
twice --model a b verify o --model a --model b
twice --format text svg report p.yaml --format text --format svg
"$ONESHOT" --model m --scheme W4A16 --ignore lm_head --ignore 're:.*0.mlp.*' --progress none --output lists >said
# 7 Linears in each of 4 layers, without the 3 Linears of an ignored MLP
grep -q ' 25 modules' said && ! grep -q 'output head' said || fail "lists: $(cat said)"
