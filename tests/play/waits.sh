# waits.sh - counts how often the host waits for the emulated GPU, and how many kernels it launches,
# in GPTQ jobs with 6 and with 12 batches. For each batch and pass, the host waits once: it reads
# the record of NaN and infinities. All other waits belong to subgraphs and solves. A loss mask adds
# no wait. A change that adds a wait or a launch for each batch must also change this test.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
[ -z "$SANITIZED" ] || exit 0 # sanitizers do not change the counts
fail() { echo "$*"; [ ! -e err ] || cat err; exit 1; }
"$OSH_TOOLS/make_model" model hidden=64 intermediate=128 heads=2 kv=1 layers=2 vocab=128 samples=12 tokens=100 seed=1
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
gptq_recipe 4 32 >recipe.yaml
python3 - <<'P'
import json
rows = [json.loads(line) for line in open("model/calibration.jsonl")]
with open("some.jsonl", "w") as f:
    f.writelines(json.dumps(r | {"loss_mask": [k // 3 % 2 for k in range(len(r["input_ids"]))]}) + "\n" for r in rows)
P
# each batch has one sample
job=(--model model --recipe recipe.yaml --sum-groups 1 --threads 2 --progress none --output out --overwrite --restart --device cuda)
budget() { # arguments: waits and launches for each batch; most waits with 6 batches; flags
    for n in 6 12; do
        OSH_PLAY="protect=0 counts=count.$n" last_wins "$PLAY_BATCHES" "${job[@]}" --num-calibration-samples $n "${@:4}" >/dev/null 2>err ||
            fail "${*:4}"
    done
    read -r waits launches <count.6
    read -r more_waits more_launches <count.12
    found="$(((more_waits - waits) / 6)) waits and $(((more_launches - launches) / 6)) launches for a batch, $waits waits with 6 batches"
    echo "${*:4}: $found"
    [ $((more_waits - waits)) -le $((6 * $1)) ] && [ $((more_launches - launches)) -le $((6 * $2)) ] && [ "$waits" -le "$3" ] ||
        fail "${*:4}: found $found, want at most $1, $2 and $3"
}
all=model/calibration.jsonl
budget 4 38 82 --dataset $all                               # 2 layers, 2 passes each
budget 16 34 172 --dataset $all --sequential-targets Linear # 8 subgraphs, 2 passes each
budget 4 46 82 --dataset some.jsonl --loss-mask answers     # a copy of rows for each of 8 inputs
