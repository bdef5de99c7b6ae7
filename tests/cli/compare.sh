# compare.sh - tests --save-logits and `oneshot compare`. Tests that saved logits give exactly the
# same numbers as the model that made them, also with a bias, a divisor or a cap. Tests that
# `oneshot compare` prints the results that are in panels (files of eval --panel) and in outputs.
# Wrong tokens, directories and files must be refused, and refused files must not change.
set -euo pipefail
fail() { echo "$*"; exit 1; }
docs=$OSH_SOURCE_DIR/examples/docs-llama-3m
data=(--dataset "$docs/data/evaluation.txt" --max-seq-length 64 --progress none --max-windows 4)
for scheme in W4A16 W8A16; do
    "$ONESHOT" --model "$docs" --scheme $scheme --output $scheme --progress none >/dev/null 2>&1
done
"$ONESHOT" eval --model "$docs" "${data[@]}" --save-logits ref --panel dense.json >said
"$ONESHOT" eval --model "$docs" "${data[@]}" >want
cmp said want
for m in W4A16 W8A16; do
    "$ONESHOT" eval --model $m --reference "$docs" "${data[@]}" --json --per-token want.npy >want
    "$ONESHOT" eval --model $m --reference ref "${data[@]}" --json --batch-size 3 --panel $m.json --per-token got.npy >got
    cmp want got && cmp want.npy got.npy
done
WANT=$(cat got) python3 - <<'P'
import json, os
want, got = json.loads(os.environ["WANT"]), json.load(open("W8A16.json"))
assert got["oneshot_panel"] == 1 and got["model"] == "W8A16" and got["reference"] == "ref", got
assert got["model_bytes"] == os.path.getsize("W8A16/model.safetensors") and got["vocabulary"] == 4096, got
for a, b in {"samples": "samples", "scored_tokens": "scored_tokens", "nll": "nll", "perplexity": "perplexity",
             "kl_divergence": "kl_mean", "top1_agreement": "top1_agreement", "reference_perplexity": "reference_perplexity"}.items():
    assert want[a] == got[b], (a, want[a], got[b])
assert got["kl_mean"] < got["kl_p99"] < 100 * got["kl_mean"], got
dense = json.load(open("dense.json"))
assert "reference" not in dense and dense["tokens_xxh3"] == got["tokens_xxh3"] and dense["perplexity"] == got["reference_perplexity"], dense
P
"$ONESHOT" compare W4A16.json W8A16.json --output page.html >table
awk 'length($0) > 80 { exit 1 }' table || fail "a line is too long: $(cat table)"
[ "$(wc -l <table)" = 5 ] && grep -q '^reference  *[0-9]*\.[0-9]*$' table || fail "$(cat table)"
grep -Eq '^W8A16 +4\.5 MB +[0-9.]+ +0\.000[0-9]+ +0\.00[0-9]+ +9[0-9.]+ %$' table || fail "$(cat table)"
grep -q '<table id="compare">' page.html && [ "$(grep -c '<tr>' page.html)" = 4 ] || fail "$(cat page.html)"
"$ONESHOT" compare dense.json | grep -Eq '^examples/docs-llama-3m +6\.8 MB +[0-9.]+$' || fail "a panel without a reference is not printed"

# For an output, `compare` must print the size and the loss from its report, and the numbers that
# --eval measured. These numbers must equal those of eval --panel. The cells of an output without an
# evaluation must be empty.
head -c 2000 "$docs/data/evaluation.txt" >text.txt
"$ONESHOT" --model "$docs" --scheme W4A16 --quality gptq --dataset "$docs/data/calibration.jsonl" --num-calibration-samples 8 \
    --max-seq-length 64 --eval text.txt --output gptq --progress none >/dev/null
"$ONESHOT" eval --model gptq --reference "$docs" --dataset text.txt --max-seq-length 64 --progress none \
    --panel gptq.json >/dev/null
"$ONESHOT" compare gptq gptq.json W8A16 --output outputs.html >table
awk 'length($0) > 80 { exit 1 }' table || fail "a line is too long: $(cat table)"
figures=$(sed -n 's/^gptq  *3.3 MB  *[0-9.]* %  *\([0-9].*\)/\1/p' table)
[ -n "$figures" ] && grep -Eq "^gptq +3.3 MB +$figures\$" table && grep -Eq '^W8A16 +4\.5 MB$' table &&
    grep -q '^reference  *[0-9.]*$' table && grep -q '^[0-9]* tokens of text.txt, checksum ' table || fail "$(cat table)"
[ "$(grep -c '<tr>' outputs.html)" = 5 ] && grep -q '<th class="n">loss</th>' outputs.html || fail "$(cat outputs.html)"
"$ONESHOT" compare W4A16 W8A16 >table
[ "$(wc -l <table)" = 4 ] && grep -q '^no evaluation: want runs with --eval TEXT' table || fail "$(cat table)"

# Tests models whose logits have a bias (phi), a divisor (cohere) or a cap (gemma2).
for case in ../families/logits/phi ../families/logits/cohere gemma2; do
    name=${case##*/}
    "$OSH_TOOLS/tiny_model" "$case" "$name" bfloat16
    python3 -c "import json, random; random.seed(3); v = json.load(open('$name/config.json'))['vocab_size']
for n in (17, 30, 5): print(json.dumps({'input_ids': [random.randrange(v) for _ in range(n)]}))" >ids.jsonl
    rm -rf saved
    "$ONESHOT" eval --model "$name" --dataset ids.jsonl --progress none --save-logits saved >/dev/null
    "$ONESHOT" eval --model "$name" --reference saved --dataset ids.jsonl --progress none --json >got
    "$ONESHOT" eval --model "$name" --reference "$name" --dataset ids.jsonl --progress none --json >want
    cmp want got || fail "$name: $(cat want got)"
done

# The message names the smallest budget that would be enough. The job works with this budget.
if "$ONESHOT" eval --model W4A16 --reference ref "${data[@]}" --host-memory 1MiB 2>err; then fail "a budget of 1 MiB is not refused"; fi
least=$(sed -n 's/.*want at least --host-memory \([0-9]*MiB\).*/\1/p' err)
"$ONESHOT" eval --model W4A16 --reference ref "${data[@]}" --json --host-memory "$least" >got || fail "the command fails with the smallest budget, $least"
"$ONESHOT" eval --model W4A16 --reference ref "${data[@]}" --json >want
cmp want got

refused() { # exit code, message, arguments
    local code=$1 part=$2 rc=0
    shift 2
    "$ONESHOT" "$@" >out 2>err || rc=$?
    [ $rc = "$code" ] && grep -qF -- "$part" err || fail "$*: exit $rc, $(cat err)"
}
before=$(cat ref/* W8A16/* dense.json | sha256sum)
refused 2 'has the logits of 256 tokens' eval --model W4A16 --reference ref "${data[@]:0:7}" 3
refused 2 'has saved logits, not a model: want --reference ref' eval --model ref "${data[@]}"
refused 2 'which is not a file of saved logits' eval --model "$docs" "${data[@]}" --save-logits W8A16
refused 2 'and --reference reads' eval --model "$docs" --reference ref "${data[@]}" --save-logits ref
refused 2 'lies in' eval --model W8A16 "${data[@]}" --save-logits W8A16/logits
refused 2 'found a file, want a directory' eval --model W8A16 "${data[@]}" --save-logits dense.json
mkdir only && cp W8A16/config.json only
refused 2 'contains a model, not saved logits' eval --model W8A16 "${data[@]}" --save-logits only
refused 2 'only: is a directory without oneshot-report.json' compare W8A16 only
mkdir foreign
echo '{}' >foreign/oneshot-report.json
refused 1 'so it is not a report of oneshot' compare W8A16 foreign
refused 2 'the existing file is not a panel of oneshot eval' eval --model W8A16 "${data[@]}" --panel page.html
refused 2 '--panel none/p.json: there is no directory none' eval --model W8A16 "${data[@]}" --panel none/p.json
refused 2 '--per-token none/n.npy: there is no directory none' eval --model W8A16 "${data[@]}" --per-token none/n.npy
refused 1 'cannot make directory /proc/logits' eval --model W8A16 "${data[@]}" --save-logits /proc/logits
refused 2 '--output none/page.html: there is no directory none' compare dense.json --output none/page.html
refused 2 'compare wants outputs' compare
refused 2 'have different references' compare W4A16.json dense.json
refused 1 'is not a file of eval --panel' compare W8A16/config.json
refused 2 'the existing file is not a page of oneshot' compare dense.json --output W8A16.json
sed 's/"tokens_xxh3": "[^"]*"/"tokens_xxh3": "0"/' W8A16.json >other.json
refused 2 'have different tokens: checksums' compare W4A16.json other.json
refused 2 'have different tokens: checksums' compare gptq W8A16 W4A16.json
sed -i 's/"kl_p99"/"kl_p98"/' gptq/oneshot-report.json
refused 1 'gptq/oneshot-report.json: the evaluation has no number "kl_p99"' compare gptq
sed 's/"kl_p99": [0-9.e-]*/"kl_p99": "x"/' W8A16.json >other.json
refused 1 '"kl_p99" is not a number' compare W4A16.json other.json
[ "$(cat ref/* W8A16/* dense.json | sha256sum)" = "$before" ] || fail "a refused call changed a file"
sed -i 's/"n_tokens": 256/"n_tokens": 255/' ref/config.json
refused 2 'has the logits of 255 tokens' eval --model W4A16 --reference ref "${data[@]}"
sed -i 's/"n_tokens": 255/"n_tokens": 256/; s/"hidden_size": 256/"hidden_size": 128/' ref/config.json
refused 1 'hidden.weight' eval --model W4A16 --reference ref "${data[@]}"

# An unfinished directory has no config.json. If the command is repeated, it finishes the directory.
rm ref/config.json
: >ref/model.safetensors
"$ONESHOT" eval --model "$docs" "${data[@]}" --save-logits ref >/dev/null
"$ONESHOT" eval --model W4A16 --reference ref "${data[@]}" --json >got
cmp want got
