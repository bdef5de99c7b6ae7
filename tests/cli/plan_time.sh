# The plan of a model of many experts is there within seconds of a processor: 18,624 and 36,472 Linears.
set -euo pipefail
fail() { echo "$*"; exit 1; }
[ -z "$SANITIZED" ] || { echo "a sanitizer's time is not the program's"; exit 77; }
TIMEFORMAT=%U
check() { # layers, seconds at most, flags
    local layers=$1 most=$2 took
    shift 2
    took=$( { time "$ONESHOT" plan --model model --scheme W4A16 --group-size 32 --method gptq --ignore lm_head \
        --dataset model/calibration.jsonl "$@" >plan; } 2>&1)
    echo "$layers layers of 128 experts: $took s of $most: $*"
    grep -q " 388 quantized" plan || fail "no layers of 388 Linears"
    awk "BEGIN { exit !($took <= $most) }" || fail "more than $most s"
}
shape="hidden=32 intermediate=32 heads=2 kv=2 head_dim=16 experts=128 topk=8 vocab=64 samples=4 tokens=32"
"$OSH_TOOLS/make_model" model $shape layers=48
check 48 3
rm -r model
"$OSH_TOOLS/make_model" model $shape layers=94
check 94 6
