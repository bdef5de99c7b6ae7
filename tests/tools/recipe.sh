# recipe.sh - defines the function gptq_recipe for scripts that source it. The function prints a
# recipe for GPTQ.
gptq_recipe() { # arguments: bits, group size; writes a recipe to standard output
    cat <<YAML
quant_stage:
  quant_modifiers:
    GPTQModifier:
      ignore: [lm_head]
      config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: $1, type: int, symmetric: true, strategy: group, group_size: $2}
YAML
}
