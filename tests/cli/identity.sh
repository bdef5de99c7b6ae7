# identity.sh - tests the identity of a run. Every input that has an effect on the bytes must be a
# field of the journal and of the manifest. If a field has another value, a run must not continue,
# and the message must name the field and both values. The message must also name changed files of
# the source, a changed recipe and a changed scheme.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
fail() { echo "$*"; exit 1; }
cp -r "$OSH_SOURCE_DIR/examples/docs-llama-3m" m && chmod -R u+w m
cp "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" recipe.yaml
one() {
    last_wins "$ONESHOT" --model m --recipe recipe.yaml --dataset m/data/calibration.jsonl --num-calibration-samples 2 \
        --max-seq-length 32 --progress none --output out "$@"
}
one >/dev/null
finished() { one "$@" >log 2>err && grep -q 'is finished' log; }
finished || fail "the same command does not find the finished output"
cp out/oneshot-manifest.json manifest
python3 -c 'import json; print("\n".join(json.load(open("manifest"))["made_of"]))' >fields
n=0
while read -r field; do
    FIELD=$field python3 - <<'P'
import json, os
m = json.load(open("manifest"))
m["made_of"][os.environ["FIELD"]] += " of old"
json.dump(m, open("out/oneshot-manifest.json", "w"))
P
    code=0
    one >/dev/null 2>err || code=$?
    [ $code = 2 ] && grep -qF "of this run $field is '" err && grep -qF " of old'" err || fail "$field: exit $code, $(cat err)"
    n=$((n + 1))
done <fields
python3 - <<'P'
import json
m = json.load(open("manifest")) # as a run on a GPU writes it
del m["made_of"]["isa"]
m["made_of"].update(back_end="cuda", device="NVIDIA H100", batches="of 2048 tokens and more")
json.dump(m, open("out/oneshot-manifest.json", "w"))
P
if one >/dev/null 2>err || ! grep -qF "of this run back_end is 'cpu', was 'cuda' (--device cuda)" err; then fail "$(cat err)"; fi
cp manifest out/oneshot-manifest.json
for field in program 'source config.json' 'source model.safetensors' 'source tokenizer.json' recipe schemes data sum_groups sequential_targets \
    pipeline propagate_error arithmetic max_shard_size layout back_end isa; do
    grep -qx "$field" fields || fail "no field '$field': $(tr '\n' ' ' <fields)"
done
if grep -qE '^(time|stamp) of' fields; then fail "an output depends on the time or the path of its source"; fi
changed() { # arguments: the field that shows the change, flags
    local field=$1 code=0
    one "${@:2}" >/dev/null 2>err || code=$?
    [ $code = 2 ] && grep -qF "of this run $field " err || fail "$field: exit $code, $(cat err)"
}
sed -i 's/"initializer_range"/ &/' m/config.json && changed 'source config.json'
cp "$OSH_SOURCE_DIR/examples/docs-llama-3m/config.json" m/
printf ' ' >>m/tokenizer_config.json && changed 'source tokenizer_config.json'
cp "$OSH_SOURCE_DIR/examples/docs-llama-3m/tokenizer_config.json" m/
"$OSH_TOOLS/st_edit" m flip model.norm.weight 30 3 && changed 'm/model.safetensors: model.norm.weight has checksum'
cp "$OSH_SOURCE_DIR/examples/docs-llama-3m/model.safetensors" m/ && touch m/model.safetensors
finished || fail "a shard with a new time of change is read as another one"
echo '# read again' >>recipe.yaml && changed recipe
cp "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" recipe.yaml
sed -n 2,12p m/data/calibration.jsonl >rows.jsonl && changed data --dataset rows.jsonl
changed sum_groups --sum-groups 1
finished --sum-groups 3 || fail "3 groups of 2 samples count as other groups than 2"
finished --threads 2 --batch-size 2 --mem-opt-level 2 --prefetch false || fail "a flag that changes no byte is refused"
echo "$n fields"
