/* catalogue.c - recognizes Linears whose names the general rules (kind.c) do not recognize.
 * Examples are Linears of vision towers and projectors. The record of the model_type (models/)
 * lists these names in "towers". The lists come from the classes of transformers.
 * scripts/compare_families.py compares them with LLM Compressor. */
#include "base/name.h"
#include "graph/kind.h"

#include <string.h>

static bool name_is_inside(const char *name, size_t n, const char *part)
{
    const char *at = strstr(name, part);
    return at && (size_t)(at - name) + strlen(part) <= n;
}

bool osh_catalogue_has(const osh_hf_config *c, const char *name, size_t n)
{
    const cJSON *row, *tail;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(c->type, "towers")) {
        if (!name_is_inside(name, n, row->string)) continue;
        cJSON_ArrayForEach(tail, row)
            if (cJSON_IsString(tail) && osh_ends_with(name, n, tail->valuestring)) return true;
    }
    return false;
}
