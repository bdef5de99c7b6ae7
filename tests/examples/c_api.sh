# c_api.sh - runs examples/c-api/compress.c. Its callbacks must be called. The profile must have the
# stages and checkpoints of the example and those of the library.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
"$OSH_EXAMPLES/c_api_compress" "$model" "$model/data/calibration.jsonl" out profile.yaml >log
grep -q '^3 of 6: model.layers.1$' log
grep -q '^6 of 6: the output$' log
grep -q '^out: 28 modules, ' log
want='Start
choose arguments Start
choose arguments End
plan Start
plan End
two steps are done
compressed
End'
got=$(sed -n 's/^- step: "\(.*\)"$/\1/p' profile.yaml | grep -E '^(Start|End|choose|plan|two|compressed)')
[ "$got" = "$want" ] || { echo "$got"; exit 1; }
grep -q '^peak_memory_mb: ' profile.yaml
"$ONESHOT" --model "$model" --dataset "$model/data/calibration.jsonl" --scheme W4A16 --method gptq --ignore lm_head \
    --num-calibration-samples 16 --max-seq-length 128 --output cli --overwrite --progress none >/dev/null
cmp out/model.safetensors cli/model.safetensors
if "$OSH_EXAMPLES/c_api_compress" nowhere "$model/data/calibration.jsonl" out2 p2.yaml 2>err; then exit 1; fi
grep -q 'nowhere' err
grep -q '^- step: "End"$' p2.yaml
