# early_check.sh - tests the early check, which reads large tensors of the output during the run and
# compares them with the written bytes. Checks that the run fails if a byte was changed on the disk,
# and that the next run writes the tensor again.
set -euo pipefail
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
fail() { echo "$*"; exit 1; }
"$OSH_TOOLS/make_model" m hidden=1024 intermediate=512 heads=8 kv=2 head_dim=128 vocab=20000 layers=1 samples=1 tokens=16
sleep 0.2 # if the file of a source was just written, the seal would read the source again
run() { "$ONESHOT" --model m --scheme W4A16 --method gptq --ignore lm_head --dataset m/calibration.jsonl --progress none \
    --profile profile --output out "$@"; }
checks() { sed -n 's/^- {phase: "check", .*scopes: \([0-9]*\), background: true.*/\1/p' profile; }
run >/dev/null
[ "$(checks)" -ge 1 ] || fail "nothing was read back during the run"
sum=$(sha256sum <out/model.safetensors) size=$(stat -c %s out/model.safetensors)
"$ONESHOT" verify out --model m >/dev/null || fail "verify reports findings"
read=$(sed -n 's/^ *"read_bytes": \([0-9]*\),*$/\1/p' out/oneshot-report.json)

# A byte of the embedding is changed just before the last 32 MB are written.
rm -rf out
flip="printf '\\001' | dd of=out.oneshot-partial/model.safetensors bs=1 seek=$((size * 6 / 10)) conv=notrunc status=none"
if INJECT_STEP='"copy Start"' INJECT_WHAT=$flip LD_PRELOAD=$OSH_TOOLS/inject.so run >log 2>&1; then fail "the changed byte is not found"; fi
grep -q 'model.embed_tokens.weight of .*the bytes on the disk differ from the written bytes' log || fail "$(cat log)"
run >/dev/null
[ "$(sha256sum <out/model.safetensors)" = "$sum" ] || fail "other bytes after it"

# A run with a memory budget has no memory for the early check, so each byte is read once.
least=$("$ONESHOT" plan --model m --scheme W4A16 --method gptq --ignore lm_head --dataset m/calibration.jsonl --json |
    sed -n 's/^ *"host_bytes": \([0-9]*\),*$/\1/p' | head -1)
rm -rf out
run --host-memory $((least + (64 << 20))) >/dev/null
[ -z "$(checks)" ] || fail "$(checks) tensors are read beside a run in a budget"
[ "$(sha256sum <out/model.safetensors)" = "$sum" ] || fail "other bytes in a budget"
more=$(($(sed -n 's/^ *"read_bytes": \([0-9]*\),*$/\1/p' out/oneshot-report.json) - read))
[ ${more#-} -lt 500000 ] || fail "$more bytes more are read where all wait for the seal"
