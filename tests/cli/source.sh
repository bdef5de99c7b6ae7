# source.sh - tests a source that changes between two runs with the same output, during a run, or
# after a run. If only the time of a file changes, the source must be accepted. If bytes change, the
# source must be refused, with a message that names the file and the tensor. A finished output must
# always belong to the current bytes of the source.
set -euo pipefail
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
cp -r "$OSH_SOURCE_DIR/examples/docs-llama-3m" m && chmod -R u+w m
declare -A how=(
    [rtn]="--scheme W4A16 --method rtn"
    [gptq]="--scheme W4A16 --method gptq --dataset m/data/calibration.jsonl --num-calibration-samples 4 --max-seq-length 48"
)
one() { # arguments: kind, output, flags
    "$ONESHOT" --model m ${how[$1]} --ignore lm_head --max-shard-size 1MB --progress none --threads 1 --output "$2" "${@:3}"
}
calls() { INJECT_COUNT=$PWD/n LD_PRELOAD=$OSH_TOOLS/inject.so one "$@" >/dev/null && cat n; }
sums() { (cd "$1" && sha256sum ./*.safetensors *.json | grep -vE 'oneshot-(report|manifest)'); }
same() { # arguments: output, wanted checksums, label
    sums "$1" >got.txt
    diff "$2" got.txt || { echo "$3: other bytes"; exit 1; }
}
fails() { # arguments: exit code, part of the message, label, command
    local want=$1 says=$2 what=$3 code=0
    shift 3
    "$@" >log 2>&1 || code=$?
    [ $code = "$want" ] && grep -qE -- "$says" log || { echo "$what: exit $code, wanted $want and '$says'"; cat log; exit 1; }
}
q0=model.layers.0.self_attn.q_proj.weight up3=model.layers.3.mlp.up_proj.weight
edit() { # changes a byte in the middle of a tensor, but not the file's time
    cp -p m/model.safetensors was
    "$OSH_TOOLS/st_edit" m "$@"
    cat m/model.safetensors >edited
    cp -p was back && cat edited >back && touch -r was back
    cp -p back m/model.safetensors
}
restore() { cp -p original m/model.safetensors; }
cp -p m/model.safetensors original
for name in rtn gptq; do
    count=$(calls $name plain.$name)
    sums plain.$name >want.$name
    leave() { # makes the partial directory of a killed run
        rm -rf out out.oneshot-partial
        INJECT_AT=$((count * 70 / 100)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so one $name out >/dev/null 2>&1 || true
        [ -e out.oneshot-partial/oneshot-journal ]
    }
    # The source changes between two runs.
    leave
    touch m/model.safetensors
    one $name out >log 2>&1 || { echo "$name: a touched source is not taken up"; cat log; exit 1; }
    same out want.$name "$name: a touched source"
    leave
    cp m/model.safetensors copy
    mv copy m/model.safetensors
    one $name out --log-level info >log 2>&1 && grep -q 'continuing from' log ||
        { echo "$name: a copied source is not taken up"; cat log; exit 1; }
    same out want.$name "$name: a copied source"
    leave
    edit noise $q0 77 1
    fails 2 "begun with another source: m/model.safetensors: $q0 has checksum [0-9a-f]{16}, had" "$name: an edited source" one $name out
    restore
    one $name out >/dev/null
    same out want.$name "$name: as it was again"

    # The source changes after the output is finished.
    touch m/model.safetensors
    one $name out >log
    grep -q 'is finished' log
    edit noise $up3 1001 1
    fails 2 "holds a finished checkpoint.*$up3 has checksum" "$name: edited behind the output" one $name out
    one $name out --overwrite >/dev/null
    if sums out | diff -q - want.$name >/dev/null; then echo "$name: the edit changes nothing" && exit 1; fi
    restore

    # The source changes at several moments of the run. Either its bytes are overwritten, or another
    # file is renamed to its name.
    moments=(3 $((count * 4 / 10)) $((count * 7 / 10)))
    [ -z "$SANITIZED" ] || moments=("${moments[2]}") # each moment runs the same checks
    for at in "${moments[@]}"; do
        for what in "dd if=edited of=m/model.safetensors conv=notrunc status=none" "cp edited new && mv new m/model.safetensors"; do
            rm -rf out out.oneshot-partial
            fails_or_new() {
                local code=0
                INJECT_AT=$at INJECT_WHAT=$what LD_PRELOAD=$OSH_TOOLS/inject.so one $name out >log 2>&1 || code=$?
                # if the run read no byte before the change, it must compress the new source
                if [ $code = 0 ]; then
                    "$ONESHOT" verify out --model m >log || { echo "$name: '$what' at $at: a mixture"; cat log; exit 1; }
                else
                    [ $code = 1 ] && grep -qE 'the source changed during the run|changed while it was read' log ||
                        { echo "$name: '$what' at $at: exit $code"; cat log; exit 1; }
                    [ ! -e out ] || { echo "$name: '$what' at $at: sealed"; exit 1; }
                    changed=$((${changed:-0} + 1))
                fi
            }
            fails_or_new
            restore
        done
    done
    [ "${changed:-0}" -ge 2 ] || { echo "$name: ${changed:-0} changes were found"; exit 1; }
    changed=0
    rm -rf out out.oneshot-partial
    INJECT_AT=$((count * 7 / 10)) INJECT_WHAT="touch m/model.safetensors" LD_PRELOAD=$OSH_TOOLS/inject.so one $name out >log 2>&1 ||
        { echo "$name: touched under the run"; cat log; exit 1; }
    same out want.$name "$name: touched under the run"
    # while this run works, time passes, so the time stamp of the source is in the past for later
    # runs
    one $name later >/dev/null
    cmp out/oneshot-manifest.json later/oneshot-manifest.json
    rm -rf later
    for file in config.json tokenizer_config.json; do
        cp -p m/$file keep && rm -rf out
        fails 1 "the source changed during the run: source $file is" "$name: $file" env INJECT_AT=$((count / 2)) \
            INJECT_WHAT="echo >>m/$file" LD_PRELOAD="$OSH_TOOLS/inject.so" "$ONESHOT" --model m ${how[$name]} --ignore lm_head \
            --progress none --output out
        cp -p keep m/$file && rm -rf out.oneshot-partial
    done
    rm -rf out
done

# Bytes that the run has not read yet may change. The output is then that of the changed source.
rm -rf out out.oneshot-partial
INJECT_STEP='"observe model.layers.1 Start"' INJECT_WHAT=TERM LD_PRELOAD=$OSH_TOOLS/inject.so \
    one gptq out --profile profile.yaml >log 2>&1 && { echo "observe model.layers.1: no signal"; exit 1; }
[ -e out.oneshot-partial/oneshot-journal ]
edit noise $up3 1001 1
one gptq fresh >/dev/null
sums fresh >want.new
if diff -q want.new want.gptq >/dev/null; then echo "the edit changes nothing" && exit 1; fi
one gptq out --log-level info >log 2>&1 && grep -q 'continuing from' log || { cat log; exit 1; }
same out want.new "edited before it was read"
restore

# verify compares the source with the checksums in the manifest.
rm -rf out && one rtn out >/dev/null
"$ONESHOT" verify out --model m >/dev/null
sum=$(sed -n "s/.*\"source\": \"$q0\".*\"source_xxh3\": \"\([0-9a-f]*\)\".*/\1/p" out/oneshot-manifest.json | head -1)
[ ${#sum} = 16 ] || { echo "no checksum of $q0 in the manifest"; exit 1; }
sed -i "s/\"source_xxh3\": \"$sum\"/\"source_xxh3\": \"0123456789abcdef\"/" out/oneshot-manifest.json
fails 1 "$q0: the tensor of the source has checksum $sum, wanted 0123456789abcdef" "another source in the manifest" "$ONESHOT" verify out --model m
