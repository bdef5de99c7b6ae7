# memory_resume.sh - kills a run with values on the disk. The next run continues after the last
# finished subgraph, without a pass over earlier subgraphs. If the stored values are damaged, the
# next run starts from the tokens. The output bytes are the same.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
job=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 5 --max-seq-length 64 --progress none --threads 1)
fail() { echo "$*"; exit 1; }
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
"$ONESHOT" "${job[@]}" --output plain >/dev/null
want=$(sha256sum <plain/model.safetensors)
INJECT_COUNT=$PWD/calls LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" --mem-opt-level 2 --output all >/dev/null
for kind in whole damaged; do
    for dir in inside outside; do
        flags=(--mem-opt-level 2)
        [ $dir = inside ] || flags+=(--scratch-dir scratch)
        if INJECT_AT=$(($(cat calls) * 3 / 5)) INJECT_WHAT=kill LD_PRELOAD=$OSH_TOOLS/inject.so "$ONESHOT" "${job[@]}" \
            "${flags[@]}" --output out >/dev/null 2>&1; then fail "the run was not killed"; fi
        values=$(find out.oneshot-partial scratch -name '*.values' 2>/dev/null || true)
        [ -n "$values" ] || fail "$dir: no values are left on the disk"
        if [ $kind = damaged ]; then for f in $values; do printf '\x55' | dd of="$f" bs=1 seek=40 conv=notrunc 2>/dev/null; done; fi
        "$ONESHOT" "${job[@]}" "${flags[@]}" --output out --log-level info >/dev/null 2>log
        if [ $kind = whole ]; then grep -q 'values after .* are read from the disk' log || fail "$dir: $(cat log)"
        else grep -q 'are incomplete on the disk' log || fail "$dir: $(cat log)"; fi
        [ "$(sha256sum <out/model.safetensors)" = "$want" ] || fail "$kind, $dir: the output has other bytes"
        [ -z "$(find out scratch -name '*.values' 2>/dev/null || true)" ] || fail "$kind, $dir: values are left"
        rm -rf out scratch
    done
done
