# experts.sh - makes recipe.yaml and the directory `model` in the working directory. Tests source
# this script. The model has a dense layer, and then two layers with six experts each.
"$OSH_TOOLS/make_model" model hidden=128 intermediate=64 heads=4 kv=2 layers=3 vocab=256 samples=12 tokens=48 experts=6 topk=2 \
    head_dim=32 dense=1
. "$OSH_SOURCE_DIR/tests/tools/recipe.sh"
gptq_recipe 4 32 >recipe.yaml
