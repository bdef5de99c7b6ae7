# output.sh - checks the files of an output directory: shards and index, config.json with one
# changed key, unchanged side files, and the recipe. Also tests that wrong names of outputs are
# refused.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
cp -r "$model" src
chmod -R u+w src
echo stale >src/recipe.yaml
echo weights >src/pytorch_model.bin
printf 'a\0b' >src/extra.dat
one() { "$ONESHOT" --model src --recipe "$OSH_SOURCE_DIR/examples/w4a16-rtn.yaml" --progress none "$@"; }
one --output out --max-shard-size 1MB >/dev/null
cmp src/extra.dat out/extra.dat
cmp src/tokenizer.json out/tokenizer.json

# If a file of a finished output is missing or changed, the program does not report the output as
# finished.
damaged() { # argument: part of the message
    if one --output out --max-shard-size 1MB >log 2>err; then echo "finished, but $1"; exit 1; fi
    grep -q "out is finished, but $1" err || { cat err; exit 1; }
}
for file in config.json tokenizer.json README.md; do
    mv out/$file kept
    damaged "$file is missing: want --overwrite"
    mv kept out/$file
done
cp out/recipe.yaml kept
echo >>out/recipe.yaml
damaged "recipe.yaml was changed later"
mv kept out/recipe.yaml
one --output out --max-shard-size 1MB | grep -q 'is finished and was made by this command'

# The README.md of the output repeats only the licence of the source's README.md. verify checks the
# file.
readme() { # argument: the source's README.md, or nothing; the output's front matter goes to `matter`
    if [ -n "$1" ]; then printf -- "$1" >src/README.md; else rm -f src/README.md; fi
    one --output described --overwrite >/dev/null
    sed '/^---$/,/^---$/!d' described/README.md >matter
}
wanted() { cmp matter <(printf '%s\n' --- "$@" tags: '- compressed-tensors' ---) || { cat matter; exit 1; }; }
readme '---\nlicense: apache-2.0\nlanguage: [en]\nbase_model: a/b\n---\n# Mine\nlicense: mit\n'
wanted 'license: apache-2.0'
grep -q '^| Scheme | W4A16: weights 4-bit integer, a scale for each group of 128; 28 modules |$' described/README.md
grep -q '^    vllm serve \.$' described/README.md
if grep -q Mine described/README.md; then echo "the source's README.md was copied"; exit 1; fi
"$ONESHOT" verify described --model src >/dev/null
echo more >>described/README.md
if "$ONESHOT" verify described >log; then echo "a changed README.md is not found"; exit 1; fi
grep -q 'README.md' log
readme '---\r\nlicense: other\r\nlicense_name: "my: own"\r\nlicense_link: LICENSE\r\n---\r\n'
wanted 'license: other' "license_name: 'my: own'" 'license_link: LICENSE'
readme '\xef\xbb\xbf---  \nlicense:\n- mit\n- apache-2.0\n--- \n'
wanted license: '- mit' '- apache-2.0'
for none in '' '# no matter\n' '---\nlicense: x\n' '---\nlicense: {x: y}\n---\n' '---\nlicense: [x, [y]]\n---\n' '---\nlicense: "x\n---\n' '---\n---\n' '\n---\nlicense: x\n---\n'; do
    readme "$none"
    wanted
done
# _name_or_path often names the model before fine-tuning
sed -i 's/^{/{"_name_or_path": "org\/name",/' src/config.json
readme ''
wanted
grep -qx '# LlamaForCausalLM, quantized' described/README.md
mkdir -p hub/models--an--other/snapshots
ln -s "$PWD/src" hub/models--an--other/snapshots/0123456789abcdef0123456789abcdef01234567
"$ONESHOT" hub/models--an--other/snapshots/0123456789abcdef0123456789abcdef01234567 --scheme W8A16 --progress none >/dev/null
grep -qx 'base_model: an/other' other-W8A16/README.md
grep -q '^The source is .an/other.(https://huggingface.co/an/other)\.' other-W8A16/README.md
cp "$model/config.json" "$model/README.md" src
cmp "$OSH_SOURCE_DIR/examples/w4a16-rtn.yaml" out/recipe.yaml
[ ! -e out/pytorch_model.bin ] || { echo "weights of another format were copied"; exit 1; }
[ ! -e out.oneshot-partial ] || { echo "the partial directory is still there"; exit 1; }
ls out/model-00001-of-0000?.safetensors >/dev/null
python3 - <<'P'
import json, os, struct
src, out = json.load(open("src/config.json")), json.load(open("out/config.json"))
q = out.pop("quantization_config")
assert src == out, "config.json changed elsewhere"
assert q["format"] == "pack-quantized" and q["ignore"] == ["lm_head"], q
index = json.load(open("out/model.safetensors.index.json"))
seen, total = {}, 0
for f in sorted(x for x in os.listdir("out") if x.endswith(".safetensors")):
    with open("out/" + f, "rb") as h:
        head = json.loads(h.read(struct.unpack("<Q", h.read(8))[0]))
    head.pop("__metadata__")
    size = sum(t["data_offsets"][1] - t["data_offsets"][0] for t in head.values())
    assert size <= 1000000 or len({n.rsplit(".", 1)[0] for n in head}) == 1, (f, size)
    total += size
    seen.update({n: f for n in head})
assert seen == index["weight_map"], "index and shards differ"
assert total == index["metadata"]["total_size"]
P
if one --output out 2>err; then echo "a finished output was overwritten"; exit 1; fi
grep -q -- --overwrite err
one --output out --overwrite >/dev/null
[ -e out/model.safetensors ] && [ ! -e out/model.safetensors.index.json ] || { echo "not replaced as a whole"; exit 1; }
mkdir foreign && echo mine >foreign/file
if one --output foreign 2>err; then echo "a foreign directory was overwritten"; exit 1; fi
grep -q 'not empty and was not made by oneshot' err
[ "$(cat foreign/file)" = mine ]
mkdir empty && one --output empty >/dev/null && [ -e empty/config.json ]

# If a tied head is quantized, the output unties it. eval reads the untied head.
"$ONESHOT" --model src --scheme W8A16 --targets Linear --targets 're:lm_head$' --output head --progress none >/dev/null
grep -q '"tie_word_embeddings": false' head/config.json
"$ONESHOT" inspect head >list
grep -q 'lm_head.weight_packed' list
grep -q 'model.embed_tokens.weight ' list
ppl() { "$ONESHOT" eval --model "$1" --dataset src/data/evaluation.txt --max-seq-length 256 --max-windows 8 --progress none | tail -n 1 | cut -d' ' -f2; }
python3 -c "import sys; a, b = map(float, sys.argv[1:]); assert a > 1 and abs(b / a - 1) < 0.02, (a, b)" "$(ppl src)" "$(ppl head)"

# The names of shards in the index may have any ending. Shards are not copied.
"$OSH_TOOLS/make_model" named hidden=32 intermediate=32 heads=2 kv=2 layers=1 vocab=32 samples=1 tokens=8 >/dev/null
for name in noext .hidden x.safetensors.tmp X.SAFETENSORS x.json README.md config.jsonx; do
    last=$(sed -n 's/.*": "\(.*\)".*/\1/p' named/model.safetensors.index.json | tail -n 1)
    mv "named/$last" "named/$name"
    sed -i "s/\"$last\"/\"$name\"/" named/model.safetensors.index.json
    "$ONESHOT" --model named --scheme W8A16 --group-size 32 --output any --overwrite --progress none >/dev/null
    [ $name = README.md ] || [ ! -e any/$name ] || { echo "the shard $name was copied"; exit 1; }
    "$ONESHOT" verify any --model named >/dev/null
done

mkdir disk disk/real
ln -s disk/real link
ln -s disk/later dangling
one --output link/ >/dev/null
one --output dangling >/dev/null
for l in link dangling; do
    [ -L $l ] && [ -e $l/model.safetensors ] || { echo "the link $l was replaced, or leads nowhere"; exit 1; }
done
mkdir here && (cd here && "$ONESHOT" --model ../src --recipe "$OSH_SOURCE_DIR/examples/w4a16-rtn.yaml" \
    --progress none --output . >/dev/null)
[ -e here/model.safetensors ] || { echo "--output . wrote elsewhere"; exit 1; }
if one --output /proc 2>err; then echo "a mount point was taken"; exit 1; fi
grep -q "mount point" err
