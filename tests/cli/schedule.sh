# schedule.sh - tests scripts/schedule.sh. The simulation runs the chunks of a job one after the
# other, and the job must write the same bytes. The simulated time of three workers must be at least
# a third of the time of one worker. The simulated time of three workers must also be at least the
# time in which only the calling thread works. The test compares only times of the same run.
set -euo pipefail
[ -x "$OSH_TOOLS/schedule" ] || { echo "a sanitizer's build has no $OSH_TOOLS/schedule"; exit 77; }
"$OSH_TOOLS/make_model" tiny hidden=128 intermediate=256 heads=4 kv=2 vocab=256 layers=2 samples=6 tokens=48
job=(--model tiny --dataset tiny/calibration.jsonl --scheme W4A16 --method gptq --ignore lm_head --group-size 64
     --num-calibration-samples 6 --max-seq-length 48)
bash "$OSH_SOURCE_DIR/scripts/schedule.sh" --schedule "$OSH_TOOLS/schedule" --out out --threads "1 3" -- "${job[@]}" >table
cat table
[ "$(grep -Ec '^ +[13]( +[0-9.]+){6}$' table)" = 2 ]
grep -Eq '^(observe|propagate|solve) +[a-z_]+_chunk( +-?[0-9.]+){3}$' table
awk '$1 == "total" && $5 > 0 { seen = 1; if ($7 < $5 / 3 || $7 < $6 || $7 > $5 * 1.5) exit 1 } END { exit !seen }' out/3.txt
# a single worker is never idle
awk '$1 == "total" { if ($5 - $7 > 1e-4 || $7 - $5 > 1e-4) exit 1 }' out/1.txt
"$ONESHOT" "${job[@]}" --output plain --progress none --threads 2 >log
cmp out/compressed/model.safetensors plain/model.safetensors
