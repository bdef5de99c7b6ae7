/* build_names.c - maps module names of a template to names of the checkpoint. A text model may be
 * inside of another model, whose checkpoint has prefixes before the names. This file finds the
 * prefixes by looking for tensors in the checkpoint.
 *
 *   model.layers.3.mlp  model.language_model.layers.3.mlp  with inner "model.language_model."
 *   lm_head             language_model.lm_head             with outer "language_model." */
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

osh_status osh_build_filled(osh_ctx *cx, const osh_builder *b, char **out, const char *text)
{
    osh_status rc = OSH_OK;
    char *done_text = osh_strdup(cx, text), *next = NULL, *hole = NULL; // own
    if (!done_text) OSH_TRY(OSH_E_NOMEM);
    for (char *open; (open = strchr(done_text, '{'));) {
        const char *end = strchr(open, '}');
        int64_t value = 0;
        if (!end) OSH_FAIL(cx, OSH_E_FORMAT, "%s: no } in \"%s\"", b->scope.tpl->name, text);
        osh_free(cx, hole);
        hole = osh_sprintf(cx, "%.*s", (int)(end - open - 1), open + 1);
        if (!hole) OSH_TRY(OSH_E_NOMEM);
        OSH_TRY(osh_scope_int(cx, &value, &b->scope, &(cJSON){.type = cJSON_String,
                                                              .valuestring = hole}, 0));
        next = osh_sprintf(cx, "%.*s%lld%s", (int)(open - done_text), done_text, (long long)value,
                           end + 1);
        if (!next) OSH_TRY(OSH_E_NOMEM);
        osh_free(cx, done_text), done_text = next, next = NULL;
    }
    *out = done_text, done_text = NULL; // give
done:
    osh_free(cx, hole);
    osh_free(cx, done_text);
    return rc;
}

char *osh_build_full_name(osh_ctx *cx, const osh_builder *b, const char *name)
{
    return *b->prefix ? osh_sprintf(cx, "%s%s", b->prefix, name)
                      : osh_build_wrapped_name(cx, b, name);
}

/* Sets *there to true if the checkpoint has the embedding table with the prefix `inner` before its
 * name. */
static osh_status prefix_try(osh_ctx *cx, bool *there, const osh_builder *b, const char *inner)
{
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(b->scope.tpl->json, "names");
    const char *embedding = osh_build_text(own, "embedding");
    char *name =
        osh_sprintf(cx, "%s%s.weight", inner, embedding ? embedding : "embed_tokens"); // own
    if (!name) return OSH_E_NOMEM;
    *there = osh_checkpoint_find(b->ck, name) != NULL;
    osh_free(cx, name);
    return OSH_OK;
}

/* Finds the first pair of prefixes whose inner prefix the embedding table of the checkpoint has.
 * Sets b->inner and b->outer to this pair. Ignores pairs whose inner prefix does not begin with
 * `without`, and removes `without` from the other inner prefixes. (In the checkpoint of a model
 * that was saved without its head, names do not begin with `without`.) */
static osh_status pair_find(osh_ctx *cx, bool *found, osh_builder *b, const cJSON *pairs,
                            const char *without)
{
    osh_status rc = OSH_OK;
    const cJSON *pair;
    size_t n = strlen(without);
    cJSON_ArrayForEach(pair, pairs)
    {
        const cJSON *inner = cJSON_GetArrayItem(pair, 0), *outer = cJSON_GetArrayItem(pair, 1);
        if (!cJSON_IsString(inner) || !cJSON_IsString(outer))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"names\" has no list of pairs", b->scope.tpl->name);
        if (strncmp(inner->valuestring, without, n) != 0) continue;
        OSH_TRY(prefix_try(cx, found, b, inner->valuestring + n));
        if (!*found) continue;
        b->inner = inner->valuestring + n, b->outer = outer->valuestring;
        break;
    }
done:
    return rc;
}

osh_status osh_build_prefixes(osh_ctx *cx, osh_builder *b)
{
    osh_status rc = OSH_OK;
    static const char of_text[] = "model.language_model.";
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(b->scope.tpl->json, "names"),
                *around = cJSON_GetObjectItemCaseSensitive(b->scope.tpl->wrap, "names"),
                *pairs = around ? around : cJSON_GetObjectItemCaseSensitive(own, "pairs");
    const char *root = osh_build_text(own, "root");
    bool found = false, flat = false;
    osh_graph *g = b->g;
    b->root = root ? root : "model";
    if (!(b->plain = osh_sprintf(cx, "%s.", b->root))) OSH_TRY(OSH_E_NOMEM);
    b->inner = b->plain, b->outer = "";
    OSH_TRY(pair_find(cx, &found, b, pairs, ""));
    if (!found) OSH_TRY(prefix_try(cx, &found, b, b->plain));
    if (!found) OSH_TRY(pair_find(cx, &flat, b, pairs, b->plain));
    if (!found && !flat && !around) OSH_TRY(prefix_try(cx, &flat, b, ""));
    if (flat && !around) b->inner = "";
    bool renamed =
        around && !cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(b->scope.tpl->wrap, "renamed"));
    g->wrapped = around != NULL;
    g->inner = osh_strdup(cx, b->inner), g->outer = osh_strdup(cx, b->outer);
    if (renamed)
        g->loaded = osh_strdup(cx, of_text);
    else if (!around && !*b->inner)
        g->loaded = osh_strdup(cx, b->plain);
    if (!g->inner || !g->outer || ((renamed || (!around && !*b->inner)) && !g->loaded))
        OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}
