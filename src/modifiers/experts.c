/* experts.c - implements REAPPruningModifier: Lasby et al., "REAP the Experts: Why Pruning Prevails
 * for One-Shot MoE Compression" (arXiv 2510.13999), as in llmcompressor/modifiers/pruning/reap. In
 * each layer with E experts, int(sparsity E) experts are removed. These are the experts j with the
 * smallest mean of g_j |f_j(x)| over the tokens x that the router sends to j. g_j is the routing
 * weight of expert j, and f_j(x) is its output. eval/experts.c measures the means. The result is
 * written to the recipe as the key `retained`. */
#include "modifiers/experts.h"

#include <string.h>

#include "modifiers/recipe_quant.h"

static const osh_rewriter removal = {.first = true};

static const osh_field reap_fields[] = {
    {.name = "sparsity", .type = OSH_F_FLOAT, .offset = offsetof(osh_reap, sparsity), .dflt = "0",
     .min = 0, .max = 1,
     .doc = "share of the experts that is removed from each layer, above 0 and below 1"},
    {.name = "report_path", .type = OSH_F_STR, .offset = offsetof(osh_reap, report_path),
     .path = OSH_PATH_IN_OUTPUT,
     .doc = "name of a .json file in the output that lists the kept experts of each layer"},
    {0},
};

const osh_reap *osh_reap_of(const osh_modifier *m)
{
    return m->type->rewriter == &removal ? m->args : NULL;
}

static osh_status read_kept_experts(osh_ctx *cx, osh_kept_experts *k, const osh_yaml *name,
                                    const osh_yaml *list, const char *what)
{
    osh_status rc = OSH_OK;
    if (!name->text || list->kind != OSH_Y_SEQ || !list->n)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s:%d:%d: retained: want lists of experts by layer, as a run writes them", what,
                 list->line, list->column);
    if (!(k->layer = osh_strdup(cx, name->text)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a layer's name");
    OSH_NEW(cx, k->which, list->n);
    for (; k->n < (int)list->n; k->n++) {
        const osh_yaml *v = list->items[k->n];
        int64_t least = k->n ? k->which[k->n - 1] + 1 : 0;
        if (v->kind != OSH_Y_INT || v->i < least || v->i > INT32_MAX)
            OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: retained: %s: '%s': want whole numbers that rise",
                     what, v->line, v->column, k->layer, v->text ? v->text : "");
        k->which[k->n] = (int)v->i;
    }
done:
    return rc;
}

static osh_status reap_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                           bool *known, const char *what)
{
    osh_status rc = OSH_OK;
    osh_reap *a = m->args;
    osh_strs ignore = {0}; // own
    *known = true;
    if (!strcmp(key, "ignore")) {
        OSH_TRY(osh_recipe_strs(cx, &ignore, v, key, what));
        if (ignore.n)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s:%d:%d: ignore: config.json has one number of experts for all layers, so "
                     "that none can keep more: want no ignore",
                     what, v->line, v->column);
    } else if (!strcmp(key, "retained")) {
        if (v->kind != OSH_Y_MAP || !v->n || a->n_kept)
            OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: retained: want a map of lists, once", what,
                     v->line, v->column);
        OSH_NEW(cx, a->kept, v->n);
        for (; a->n_kept < v->n;) {
            // The layer is counted before its list is read, so that reap_end frees the list even if
            // reading it fails.
            a->n_kept++;
            OSH_TRY(read_kept_experts(cx, &a->kept[a->n_kept - 1], v->keys[a->n_kept - 1],
                                      v->items[a->n_kept - 1], what));
        }
    } else {
        *known = !strcmp(key, "report_path") && v->kind == OSH_Y_NULL;
    }
done:
    osh_strs_deinit(cx, &ignore);
    return rc;
}

static osh_status reap_resolve(osh_ctx *cx, osh_modifier *m)
{
    const osh_reap *a = m->args;
    if (!(a->sparsity > 0 && a->sparsity < 1))
        return osh_fail(cx, OSH_E_USAGE,
                        "%s: sparsity is %g: want a share of the experts above 0 and below 1",
                        m->type->name, a->sparsity);
    return OSH_OK;
}

static void reap_end(osh_ctx *cx, osh_modifier *m)
{
    osh_reap *a = m->args;
    for (size_t i = 0; i < a->n_kept; i++)
        osh_free(cx, a->kept[i].layer), osh_free(cx, a->kept[i].which);
    osh_free(cx, a->kept);
}

static osh_asks reap_asks(const osh_modifier *m)
{
    const osh_reap *a = m->args;
    return (osh_asks){"retained", a->n_kept > 0};
}

const osh_modifier_type osh_modifier_reap = {
    .name = "REAPPruningModifier", .fields = reap_fields, .bytes = sizeof(osh_reap),
    .key = reap_key, .keys = "retained, ignore", .resolve = reap_resolve, .end = reap_end,
    .asks = reap_asks, .rewriter = &removal,
};
