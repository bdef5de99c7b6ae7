# plan_time.sh - tests that a plan takes only seconds of processor time, even for models with many
# experts (18,624 and 36,472 Linears). A plan for a GPU takes only seconds, too, although it
# computes the addresses of blocks for each batch length. One model has the shapes of Qwen3-30B-A3B.
# Its samples have many lengths. Another model has the shapes of Llama-3-405B. For its budget the
# plan tries many settings.
set -euo pipefail
fail() { echo "$*"; exit 1; }
[ -z "$SANITIZED" ] || { echo "a sanitizer's time is not the program's"; exit 77; }
TIMEFORMAT=%U
check() { # arguments: layers, largest number of seconds, flags
    local layers=$1 most=$2 took
    shift 2
    took=$( { time "$ONESHOT" plan --verbose --model model --scheme W4A16 --group-size 32 --method gptq --ignore lm_head \
        --dataset model/calibration.jsonl "$@" >plan; } 2>&1)
    echo "$layers layers of 128 experts: $took s of $most: $*"
    grep -q " 388 quantized" plan || fail "no layers of 388 Linears"
    awk "BEGIN { exit !($took <= $most) }" || fail "the plan takes more than $most s"
}
shape="hidden=32 intermediate=32 heads=2 kv=2 head_dim=16 experts=128 topk=8 vocab=64 samples=4 tokens=32"
"$OSH_TOOLS/make_model" model $shape layers=48
check 48 3
rm -r model
"$OSH_TOOLS/make_model" model $shape layers=94
check 94 6
rm -r model
"$OSH_TOOLS/make_model" model hidden=2048 intermediate=768 heads=32 kv=4 head_dim=128 experts=128 topk=8 layers=48 \
    vocab=151936 samples=512 tokens=2048 ragged=1 holes=1
check 48 6 --device-model h200 --num-calibration-samples 512 --max-seq-length 2048
rm -r model
"$OSH_TOOLS/make_model" model hidden=16384 intermediate=53248 heads=128 kv=8 layers=126 vocab=128256 samples=512 \
    tokens=2048 ragged=1 holes=1
large="plan --model model --scheme W4A16 --method gptq --ignore lm_head --device-model h100 --dataset model/calibration.jsonl \
    --num-calibration-samples 512 --max-seq-length 2048 --device-memory 14GiB"
code=0
"$ONESHOT" $large --verbose >plan 2>err || code=$?
[ $code = 2 ] && grep -q 'want at least --device-memory 2.*MiB; --sum-groups 1 halves the bytes of Hessians' err ||
    fail "two Hessians of 11.3 GB in 14 GiB: $code, $(cat err)"
took=$( { time "$ONESHOT" $large --verbose --sum-groups 1 >plan; } 2>&1)
echo "126 layers of 16,384: $took s of 2"
grep -q "882 modules quantized" plan || fail "no plan of 882 Linears: $(head -3 plan)"
awk "BEGIN { exit !($took <= 2) }" || fail "the plan takes more than 2 s"
