/* fusion.c - finds the fused layer of vLLM to which a Linear belongs, by module name and model
 * type. The rows of the table are packed_modules_mapping, stacked_params_mapping and
 * orig_to_new_stacked of the model classes of vLLM 0.32. The record of a model type may have more
 * rows ("fusions", docs/internals/adding-a-model.md), which are tried before the rows of this file.
 * The first row that fits decides. */
#include "quant/fusion.h"

#include <string.h>

#define MERGED "MergedColumnParallelLinear"
#define QKV "QKVParallelLinear"
static const osh_q_fusion fusions[] = {
    {"kv_proj", MERGED, "encoder_attn", 2, 2, {"k_proj", "v_proj"}},
    {NULL, NULL, "encoder_attn", 1, 1, {"q_proj"}},
    {"qkv", QKV, "attn", 3, 3, {"q", "k", "v"}},
    /* The checkpoint need only have q_proj and k_proj: models whose keys are also the values have
     * no v_proj. */
    {"qkv_proj", QKV, NULL, 2, 3, {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", MERGED, NULL, 2, 2, {"gate_proj", "up_proj"}},
    {"fused_qkv_a_proj", MERGED, NULL, 2, 2, {"q_a_proj", "kv_a_proj_with_mqa"}},
    {"in_proj_qkvz", MERGED, NULL, 2, 2, {"in_proj_qkv", "in_proj_z"}},
    {"in_proj_ba", MERGED, NULL, 2, 2, {"in_proj_b", "in_proj_a"}},
    {"w13", MERGED, NULL, 2, 2, {"w1", "w3"}},
};

osh_q_family osh_q_family_of(const osh_hf_config *config)
{
    return (osh_q_family){config->type, config->text_type};
}

/* True if the parent of `module` has a name that ends with the part `in`. The part of `module`
 * after its last dot begins at `leaf`. */
static bool stands_in(const char *module, const char *leaf, const char *in)
{
    size_t n = strlen(in), at = (size_t)(leaf - module);
    if (at < n + 1 || memcmp(leaf - 1 - n, in, n) != 0) return false;
    return at == n + 1 || leaf[-2 - (ptrdiff_t)n] == '.';
}

/* True if the fused layer `f` contains the module. */
static bool fusion_fits(const osh_q_fusion *f, const char *module)
{
    const char *dot = strrchr(module, '.'), *leaf = dot ? dot + 1 : module;
    int k = 0;
    while (k < f->n && strcmp(leaf, f->parts[k]) != 0) k++;
    return k < f->n && (!f->in || stands_in(module, leaf, f->in));
}

/* Returns the fused layer that an item of "fusions" describes. osh_model_types_check has accepted
 * the item. */
static osh_q_fusion fusion_of(const cJSON *row)
{
    const cJSON *part, *enough = cJSON_GetObjectItemCaseSensitive(row, "enough");
    const char *cls = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "class"));
    osh_q_fusion f = {cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "fused")),
                      cls ? cls : MERGED,
                      cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "in")), 0, 0, {0}};
    cJSON_ArrayForEach(part, cJSON_GetObjectItemCaseSensitive(row, "parts"))
        if (f.n < OSH_FUSION_PARTS) f.parts[f.n++] = part->valuestring;
    f.enough = enough ? enough->valueint : f.n;
    return f;
}

osh_q_fusion osh_q_fusion_find(osh_q_family family, const char *module)
{
    const cJSON *records[] = {family.whole, family.text}, *row;
    for (size_t i = 0; i < 2; i++) {
        cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(records[i], "fusions")) {
            const osh_q_fusion f = fusion_of(row);
            if (fusion_fits(&f, module)) return f;
        }
    }
    for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++)
        if (fusion_fits(&fusions[i], module)) return fusions[i];
    return (osh_q_fusion){0};
}

char *osh_q_fusion_name(osh_ctx *cx, const char *module, const char *leaf)
{
    const char *dot = strrchr(module, '.');
    return osh_sprintf(cx, "%.*s%s", dot ? (int)(dot + 1 - module) : 0, module, leaf);
}
