# bench.sh - runs oneshot bench on the emulated GPU, with text and with JSON output. Also runs
# scripts/bench-gpu.sh, in which the script `peer` replaces LLM Compressor and prints fixed times.
# Checks that bench-gpu.sh prints the ratio of the peer's solve times to ours, and the kind of the
# peer's code ("re-enacted").
set -euo pipefail
export OSH_PLAY=protect=0
fail() { echo "$*"; exit 1; }
"$PLAY" bench --seconds 0.01 --device cuda --side 64 --threads 1 >text
grep -q '^emulated GPU' text || fail "$(cat text)"
sed -n '/^emulated GPU/,$p' text >gpu
for what in 'f32 products' 'bf16 products' attention 'memory copy' 'host to GPU'; do
    grep -Eq "^$what +[0-9.]+ [TG](FLOP|B)/s" gpu || fail "no $what: $(cat gpu)"
done
if grep -q '^disk' text; then fail "a disk is measured without --dir: $(cat text)"; fi
# Runs once without cuFile, and once with an emulated cuFile.
for lib in "$LD_LIBRARY_PATH" "$LD_LIBRARY_PATH:$LD_LIBRARY_PATH/gds"; do
    LD_LIBRARY_PATH=$lib "$PLAY" bench --seconds 0.01 --device cuda --side 64 --threads 1 --dir . >text 2>err || fail "$(cat err)"
    grep -Eq '^disk to pinned +[0-9.]+ GB/s .*one reader; 1: [0-9.]+ GB/s$' text || fail "$(cat text)"
    grep -Eq '^disk to GPU +[0-9.]+ GB/s +through page-locked memory of the host$' text || fail "$(cat text)"
    by=$(grep -Ec '^disk to GPU +[0-9.]+ GB/s +by cuFile$' text || true)
    [ "$by" = 0 ] || [[ $lib == */gds ]] || fail "reads by cuFile are measured without cuFile: $(cat text)"
    [ "$by" = 1 ] || { [[ $lib != */gds ]] && grep -q 'not by cuFile: libcufile' err; } || fail "$(cat text err)"
done
if compgen -G 'oneshot-bench-*' >/dev/null; then fail "a file of the measurement remains"; fi

command -v python3 >/dev/null || exit 0
mkdir -p build/tests && cp "$OSH_TOOLS/make_model" build/tests
cat >peer <<'SH'
#!/bin/sh
[ "${1##*/}" = bench_gpu_peer.py ] && [ "$*" != "${*#*--hidden 128 --intermediate 256}" ] || exit 3
tr '\n' ' ' <<'JSON'
{"device": "a GPU", "torch": "2", "llmcompressor": null, "triton": "3", "samples": 2, "tokens": 32, "measured_samples": 2,
 "seconds_a_layer": {"observe": 1.5, "propagate": 0.5}, "left_out": {"package": "llmcompressor is not installed"},
 "solves_a_layer": [{"loop": "eager", "code": "re-enacted", "batched": false, "seconds": 900},
                    {"loop": "triton", "code": "re-enacted", "batched": true, "seconds": 90}]}
JSON
SH
chmod +x peer
ONESHOT=$PLAY bash "$OSH_SOURCE_DIR/scripts/bench-gpu.sh" --build build --out out --layers "1 3" --samples 2 --tokens 32 \
    --shape "hidden=128 intermediate=256 heads=4 kv=2 vocab=256" --targets LlamaDecoderLayer --seconds 0.01 --side 64 --whole 3 \
    --peer-python "$PWD/peer" >table
cat table
grep -Eq '^bf16 products .* attention [0-9.e-]+ TFLOP/s, copies' table
grep -Eq '^solve, eager, re-enacted +900.000 +2700.0  a weight at a time; [0-9.]+ times ours of LlamaDecoderLayer$' table
grep -Eq '^solve, triton, re-enacted +90.000 +270.0  weights of a shape together; [0-9.]+ times ours of LlamaDecoderLayer$' table
grep -qx 'without package: llmcompressor is not installed' table
# Runs a model with experts. Checks the class and the shapes of the experts, and the arguments with
# which the script runs the compared program (--peer-python). An unknown model after --like is
# refused.
sed -i 's/--hidden 128 --intermediate 256/--hidden 128 --intermediate 128 --heads 4 --kv 2 --head-dim 32 --experts 4 --topk 2 /' peer
ONESHOT=$PLAY bash "$OSH_SOURCE_DIR/scripts/bench-gpu.sh" --build build --out experts --layers "1 2" --samples 2 --tokens 32 \
    --like qwen3-30b-a3b --shape "hidden=128 intermediate=128 heads=4 kv=2 head_dim=32 experts=4 topk=2 vocab=256" \
    --seconds 0.01 --side 64 --whole 3 --peer-python "$PWD/peer" >experts.table
grep -q '^Qwen3MoeDecoderLayer: seconds of 1 and 2 layers, of a layer, of 3 layers$' experts.table || fail "$(cat experts.table)"
grep -q '^Linear: seconds of 1 and 2' experts.table || fail "the table has no times of Linears"
grep -Eq '^solve, triton, re-enacted .* times ours of Qwen3MoeDecoderLayer' experts.table || fail "the table has no times of the Triton loop: $(cat experts.table)"
if bash "$OSH_SOURCE_DIR/scripts/bench-gpu.sh" --build build --out o --like gpt 2>err; then fail "--like gpt"; fi
grep -q 'want llama-3-8b or qwen3-30b-a3b' err
awk '/^solve, eager/ { e = $(NF - 4) } /^solve, triton/ { t = $(NF - 4) } END { exit !(t > 0 && e / t > 9.9 && e / t < 10.1) }' table
