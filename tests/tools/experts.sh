# experts.sh - sourced: model, two sparse layers of six experts behind a dense one, and recipe.yaml, in this folder.
"$OSH_TOOLS/make_model" model hidden=128 intermediate=64 heads=4 kv=2 layers=3 vocab=256 samples=12 tokens=48 experts=6 topk=2 \
    head_dim=32 dense=1
cat >recipe.yaml <<'YAML'
quant_stage:
  quant_modifiers:
    GPTQModifier:
      ignore: [lm_head]
      config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32}
YAML
