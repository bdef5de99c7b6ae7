/* build_names.c - what the checkpoint calls the modules of a template: a text model may stand inside another model,
 * under prefixes of which one is chosen by what the checkpoint has.
 *
 *   model.layers.3.mlp of the template is    model.language_model.layers.3.mlp    with inner "model.language_model."
 *   lm_head                                  language_model.lm_head               with outer "language_model." */
#include "graph/build.h"

#include <string.h>

char *osh_build_wrapped_name(osh_ctx *cx, const osh_builder *b, const char *name)
{
    size_t n = strlen(b->root), inner = strlen(b->inner);
    bool inside = !strncmp(name, b->root, n) && (!name[n] || name[n] == '.');
    if (!inside) return osh_sprintf(cx, "%s%s", b->outer, name);
    return name[n] ? osh_sprintf(cx, "%s%s", b->inner, name + n + 1)
                   : osh_sprintf(cx, "%.*s", (int)(inner - (inner > 0)), b->inner);
}

char *osh_build_full_name(osh_ctx *cx, const osh_builder *b, const char *name)
{
    return *b->prefix ? osh_sprintf(cx, "%s%s", b->prefix, name) : osh_build_wrapped_name(cx, b, name);
}

osh_status osh_build_prefixes(osh_ctx *cx, osh_builder *b)
{
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(b->scope.tpl->json, "names"),
                *around = cJSON_GetObjectItemCaseSensitive(b->scope.tpl->wrap, "names"), *pair,
                *pairs = around ? around : cJSON_GetObjectItemCaseSensitive(own, "pairs");
    const char *root = osh_build_text(own, "root"), *embedding = osh_build_text(own, "embedding");
    b->root = root ? root : "model";
    char *plain = osh_sprintf(cx, "%s.", b->root); // own: the graph's, or until another is found
    if (!plain) return OSH_E_NOMEM;
    b->g->inner = plain;
    b->inner = plain, b->outer = "";
    cJSON_ArrayForEach(pair, pairs)
    {
        const cJSON *inner = cJSON_GetArrayItem(pair, 0), *outer = cJSON_GetArrayItem(pair, 1);
        if (!cJSON_IsString(inner) || !cJSON_IsString(outer))
            return osh_fail(cx, OSH_E_FORMAT, "%s: \"names\" has no list of pairs", b->scope.tpl->name);
        char *name = osh_sprintf(cx, "%s%s.weight", inner->valuestring, embedding ? embedding : "embed_tokens"); // own
        if (!name) return OSH_E_NOMEM;
        bool there = osh_checkpoint_find(b->ck, name);
        osh_free(cx, name);
        if (!there) continue;
        b->inner = inner->valuestring, b->outer = outer->valuestring;
        break;
    }
    b->g->wrapped = around != NULL;
    b->g->renamed = around && !cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(b->scope.tpl->wrap, "renamed"));
    b->g->outer = osh_strdup(cx, b->outer);
    if (b->inner == plain) return b->g->outer ? OSH_OK : OSH_E_NOMEM;
    b->g->inner = osh_strdup(cx, b->inner);
    osh_free(cx, plain);
    return b->g->inner && b->g->outer ? OSH_OK : OSH_E_NOMEM;
}
