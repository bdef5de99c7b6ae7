/* mappings.c - reads the key "mappings" of SmoothQuant and AWQ from a recipe. */
#include "modifiers/mappings.h"
#include "modifiers/recipe_quant.h"

#include <string.h>

static osh_status mapping_bad(osh_ctx *cx, const osh_yaml *y, const char *what)
{
    return osh_fail(
        cx, OSH_E_USAGE,
        "%s:%d:%d: mappings: want a list of pairs [[balance layers], smooth layer], such as "
        "[[\"re:.*q_proj\", \"re:.*k_proj\", \"re:.*v_proj\"], \"re:.*input_layernorm\"], or of "
        "{smooth_layer: ..., balance_layers: [...]}",
        what, y->line, y->column);
}

/* Returns the string that names a layer: y itself, or the only item if y is a list of one string.
 * Returns NULL for all other values. */
static const osh_yaml *mapping_layer(const osh_yaml *y)
{
    if (y && y->kind == OSH_Y_SEQ && y->n == 1) y = y->items[0];
    return y && y->kind == OSH_Y_STR ? y : NULL;
}

static osh_status check_mapping_keys(osh_ctx *cx, const osh_yaml *y, const char *what)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < y->n; i++) {
        const osh_yaml *key = y->keys[i];
        if (!strcmp(key->text, "smooth_layer") || !strcmp(key->text, "balance_layers")) continue;
        if (strcmp(key->text, "activation_hook_target"))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s:%d:%d: mappings: unknown key '%s': want smooth_layer, balance_layers",
                     what, key->line, key->column, key->text);
        if (y->items[i]->kind != OSH_Y_NULL)
            osh_log(cx, OSH_LOG_WARN,
                    "%s:%d: activation_hook_target has no effect: the inputs of the balance layers "
                    "are observed",
                    what, key->line);
    }
done:
    return rc;
}

/* Sets *balance and *smooth (views) to the balance layers and the smooth layer in the mapping y.
 * Sets them to NULL if y does not have the right form. */
static osh_status take_apart(osh_ctx *cx, const osh_yaml **balance, const osh_yaml **smooth,
                             const osh_yaml *y, const char *what)
{
    osh_status rc = OSH_OK;
    *balance = *smooth = NULL;
    if (y->kind == OSH_Y_MAP) {
        OSH_TRY(check_mapping_keys(cx, y, what));
        *balance = osh_yaml_get(y, "balance_layers");
        *smooth = mapping_layer(osh_yaml_get(y, "smooth_layer"));
    } else if (y->kind == OSH_Y_SEQ && y->n == 2) {
        *balance = y->items[0], *smooth = mapping_layer(y->items[1]);
    }
done:
    return rc;
}

osh_status osh_mappings_read(osh_ctx *cx, osh_mapping **out, size_t *n, const osh_yaml *v,
                             const char *what)
{
    osh_status rc = OSH_OK;
    if (v->kind == OSH_Y_NULL) goto done;
    if (v->kind != OSH_Y_SEQ || !v->n) OSH_TRY(mapping_bad(cx, v, what));
    OSH_NEW(cx, *out, v->n);
    for (size_t i = 0; i < v->n; i++) {
        const osh_yaml *balance, *smooth;
        osh_mapping *m = &(*out)[*n];
        OSH_TRY(take_apart(cx, &balance, &smooth, v->items[i], what));
        if (!balance || !smooth) OSH_TRY(mapping_bad(cx, v->items[i], what));
        ++*n;
        OSH_TRY(osh_recipe_strs(cx, &m->balance, balance, "mappings", what));
        if (!m->balance.n) OSH_TRY(mapping_bad(cx, v->items[i], what));
        if (!(m->smooth = osh_strdup(cx, smooth->text)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for mappings");
    }
done:
    return rc;
}

void osh_mappings_free(osh_ctx *cx, osh_mapping *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        osh_strs_deinit(cx, &m[i].balance);
        osh_free(cx, m[i].smooth);
    }
    osh_free(cx, m);
}
