# families.sh - tests families with special ops and attributes on the emulated GPU. The perplexity
# is that of the host except for rounding. An output that is made on the GPU passes `oneshot
# verify`. The host evaluates this output, too: its perplexity is at most 2 % above that of its
# source.
set -euo pipefail
export OSH_PLAY=protect=0
fail() { echo "$*"; exit 1; }
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
gptq_recipe 8 8 | sed 's/lm_head/"re:.*lm_head"/' >recipe.yaml
perplexity() { # arguments: device, model
    "$PLAY" eval --model "$2" --dataset "$case/calibration.jsonl" --device "$1" --threads 1 --progress none |
        sed -n 's/^perplexity \([0-9.]*\).*/\1/p'
}
failed=
compare() { # compares the perplexities of a family
    "$OSH_TOOLS/tiny_model" $case $case float32
    "$PLAY" --model $case --recipe recipe.yaml --dataset $case/calibration.jsonl --device cuda --threads 1 --progress none \
        --output $case.out >log 2>&1 || { echo "$case does not run: $(tail -3 log)"; return 1; }
    "$PLAY" verify $case.out --model $case >log 2>&1 || { echo "$case: $(cat log)"; return 1; }
    awk -v host="$(perplexity cpu $case)" -v gpu="$(perplexity cuda $case)" -v out="$(perplexity cpu $case.out)" -v name=$case \
        'BEGIN { print name, host, gpu, out; exit !(gpu > host * 0.9999 && gpu < host * 1.0001 && out < host * 1.02) }'
}
for case in gemma2 phi3_longrope glm4 ministral3 gpt_neox granite opt qwen2_moe deepseek_v3 \
    gpt_oss qwen3_next mamba2 granite_hybrid_moe llama4 llama4_two gemma4 gemma4_moe; do
    compare || failed+=" $case"
done
[ -z "$failed" ] || fail "failed:$failed"
