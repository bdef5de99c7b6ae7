/* fusion.c - finds the fused layer of vLLM to which a Linear belongs, by module name and model
 * type. */
#include "quant/fusion.h"

#include <string.h>

#define MERGED "MergedColumnParallelLinear"
#define QKV "QKVParallelLinear"
#define COLUMN "ColumnParallelLinear"
#define OSH_FUSION(fused, cls, around, types, enough, ...)                                         \
    {fused, cls, around, types, enough, {__VA_ARGS__}},
static const osh_q_fusion fusions[] = {
#include "quant/fusions.def"
};
#undef OSH_FUSION
#undef MERGED
#undef QKV
#undef COLUMN

osh_q_family osh_q_family_of(const osh_hf_config *config)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(config->model, "model_type");
    return (osh_q_family){osh_hf_config_str(config, "model_type"),
                          cJSON_IsString(type) ? type->valuestring : NULL};
}

/* True if one of the words of `types` is `type`, or `type` without the ending "_text". */
static bool types_have(const char *types, const char *type)
{
    static const char tail[] = "_text";
    size_t n = type ? strlen(type) : 0;
    if (n > sizeof tail - 1 && !strcmp(type + n - (sizeof tail - 1), tail)) n -= sizeof tail - 1;
    for (const char *s = types; n && *s;) {
        size_t len = strcspn(s, " ");
        if (len == n && !memcmp(s, type, n)) return true;
        s += len + (s[len] == ' ');
    }
    return false;
}

/* True if the parent of `module` has the name `around`. `leaf` points to the name after the last
 * dot of `module`. */
static bool stands_in(const char *module, const char *leaf, const char *around)
{
    size_t n = strlen(around), at = (size_t)(leaf - module);
    if (at < n + 1 || memcmp(leaf - 1 - n, around, n) != 0) return false;
    return at == n + 1 || leaf[-2 - (ptrdiff_t)n] == '.';
}

const osh_q_fusion *osh_q_fusion_find(osh_q_family family, const char *module)
{
    const char *dot = strrchr(module, '.'), *leaf = dot ? dot + 1 : module;
    for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++) {
        const osh_q_fusion *f = &fusions[i];
        bool part = false;
        for (int k = 0; f->parts[k]; k++) part |= !strcmp(leaf, f->parts[k]);
        if (!part || (f->around && !stands_in(module, leaf, f->around))) continue;
        if (f->types && !types_have(f->types, family.whole) && !types_have(f->types, family.text))
            continue;
        return f->parts[1] ? f : NULL;
    }
    return NULL;
}

int osh_q_fusion_parts(const osh_q_fusion *f)
{
    int n = 0;
    while (f->parts[n]) n++;
    return n;
}

char *osh_q_fusion_name(osh_ctx *cx, const char *module, const char *leaf)
{
    const char *dot = strrchr(module, '.');
    return osh_sprintf(cx, "%.*s%s", dot ? (int)(dot + 1 - module) : 0, module, leaf);
}
