/* folds.c - finds the folds of a recipe. A mapping of the recipe names a smooth layer and balance
 * layers. The weights of the smooth layer are divided by factors, and the weights of the balance
 * layers are multiplied by the same factors. If the recipe has no mappings, this file infers them
 * from the graph. (fold_add.c checks and adds a fold, and fold_rules.c registers the factors.) */
#include "rewrite/fold_found.h"

#include <string.h>

static bool module_inside(const osh_graph *g, int module, int outer)
{
    while (module >= 0 && module != outer) module = g->modules[module].parent;
    return module == outer;
}

static osh_span fold_scope(const osh_found *f, const osh_graph *g, int scope)
{
    return scope < 0 ? (osh_span){0, g->n_modules} : f->inside[scope];
}

/* ---- mappings that the recipe gives ---- */

typedef struct balance { // matchers of names, one for each balance layer of a mapping
    osh_matcher **of; // own
    size_t n;
} balance;

/* Sets f->hits to true for the modules inside of module `scope` that match a balance layer of the
 * mapping. If scope is -1, searches all modules. Sets *all to true if each balance layer matches a
 * module. */
static osh_status match_inside(osh_ctx *cx, bool *all, const osh_found *f, const osh_rewrites *p,
                               const balance *b, int scope)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    osh_span in = fold_scope(f, g, scope);
    memset(f->hits + in.first, 0, (size_t)(in.end - in.first) * sizeof *f->hits);
    *all = true;
    for (size_t t = 0; t < b->n; t++) {
        bool any = false;
        for (int m = in.first; m < in.end; m++) {
            int64_t which = -1;
            if (g->modules[m].node < 0 || (scope >= 0 && !module_inside(g, m, scope))) continue;
            OSH_TRY(osh_matcher_find(cx, &which, b->of[t], g->modules[m].name, g->modules[m].cls));
            if (which >= 0) any = f->hits[m] = true;
        }
        *all &= any;
    }
done:
    return rc;
}

/* Finds the balance layers of the smooth layer f->smooth. Searches the smallest module that
 * contains the smooth layer and at least one match for each balance layer. Fails if this module
 * also contains another smooth layer. */
static osh_status find_takes(osh_ctx *cx, const osh_rewrites *p, osh_found *f,
                             const osh_mapping *map, const balance *b, osh_matcher *smooth)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    bool all = false;
    int scope = g->modules[f->smooth].parent;
    for (;; scope = g->modules[scope].parent) {
        OSH_TRY(match_inside(cx, &all, f, p, b, scope));
        if (all || scope < 0) break;
    }
    osh_span in = fold_scope(f, g, scope);
    for (int m = in.first; m < in.end && all; m++) {
        int64_t which = -1;
        if (m == f->smooth || g->modules[m].node < 0 || (scope >= 0 && !module_inside(g, m, scope)))
            continue;
        OSH_TRY(osh_matcher_find(cx, &which, smooth, g->modules[m].name, g->modules[m].cls));
        if (which >= 0) all = false;
    }
    if (!all)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: mapping %s: no modules next to %s match all of its balance layers (%s ...)",
                 f->m->type->name, map->smooth, g->modules[f->smooth].name, map->balance.items[0]);
    for (int m = in.first; m < in.end; m++) {
        if (!f->hits[m]) continue;
        if (!osh_node_is(&g->nodes[g->modules[m].node], OSH_OP_LINEAR))
            OSH_FAIL(cx, OSH_E_USAGE, "%s: balance layer %s is a %s: want a Linear",
                     f->m->type->name, g->modules[m].name, g->modules[m].cls);
        f->takes[f->n_takes++] = m;
    }
done:
    return rc;
}

static osh_status use_mapping(osh_ctx *cx, osh_rewrites *p, osh_found *f, const osh_mapping *map)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    balance b = {.n = map->balance.n};
    osh_matcher *smooth = NULL; // own
    int n = 0;
    OSH_NEW(cx, b.of, b.n);
    for (size_t t = 0; t < b.n; t++)
        OSH_TRY(osh_matcher_new(cx, &b.of[t], (const char *const *)&map->balance.items[t], 1));
    OSH_TRY(osh_matcher_new(cx, &smooth, (const char *const *)&map->smooth, 1));
    for (int m = 0; m < g->n_modules; m++) {
        int64_t which = -1;
        if (g->modules[m].node < 0) continue;
        OSH_TRY(osh_matcher_find(cx, &which, smooth, g->modules[m].name, g->modules[m].cls));
        if (which < 0) continue;
        OSH_TRY(osh_check_interrupt(cx));
        n++, f->smooth = m, f->n_takes = 0;
        OSH_TRY(find_takes(cx, p, f, map, &b, smooth));
        OSH_TRY(osh_found_take_up(cx, p, f));
    }
    if (!n)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: smooth layer %s matches no module", f->m->type->name,
                 map->smooth);
done:
    for (size_t t = 0; b.of && t < b.n; t++) osh_matcher_free(cx, b.of[t]);
    osh_free(cx, b.of);
    osh_matcher_free(cx, smooth);
    return rc;
}

/* ---- mappings that are inferred from the graph ---- */

static const char *fold_leaf(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool module_in_layer(const osh_graph *g, int module)
{
    while (module >= 0 && (!g->layer_class || strcmp(g->modules[module].cls, g->layer_class)))
        module = g->modules[module].parent;
    return module >= 0;
}

/* True if the module is a norm of the residual stream in a decoder layer. */
static bool is_layer_norm(const osh_rewrites *p, int module)
{
    const osh_graph *g = p->in->graph;
    if (g->modules[module].node < 0 || !module_in_layer(g, module)) return false;
    const osh_node *n = osh_found_node(p, module);
    return osh_node_is(n, OSH_OP_NORM) && n->w[0] >= 0 &&
           g->weights[n->w[0]].shape[0] == g->values[g->hidden].width &&
           g->values[n->out[0]].width == g->values[g->hidden].width;
}

/* Returns true if all readers of the module's output are Linears, and none is a router. Sets
 * f->takes to these Linears. */
static bool only_linears(const osh_rewrites *p, osh_found *f, int module)
{
    const osh_graph *g = p->in->graph;
    const osh_node *s = osh_found_node(p, module);
    const osh_value *v = &g->values[s->out[0]];
    f->smooth = module, f->n_takes = 0;
    for (int i = v->first_use; i >= 0 && i <= v->last_use; i++) {
        const osh_node *n = &g->nodes[i];
        if (!osh_found_reads(n, s->out[0])) continue;
        if (!osh_node_is(n, OSH_OP_LINEAR) || !osh_found_is_op(g, n) ||
            osh_found_is_router(g->modules[n->module].cls))
            return false;
        f->takes[f->n_takes++] = n->module;
    }
    return f->n_takes > 0;
}

/* Returns true if the module is a Linear of a decoder layer, and its output goes to exactly one
 * other Linear. The nodes between both Linears must pass factors on. Sets f->takes to the other
 * Linear. */
static bool passes_to_one(const osh_rewrites *p, osh_found *f, int module)
{
    const osh_graph *g = p->in->graph;
    if (g->modules[module].node < 0 || !module_in_layer(g, module) ||
        !osh_node_is(osh_found_node(p, module), OSH_OP_LINEAR))
        return false;
    int value = osh_found_node(p, module)->out[0];
    f->smooth = module, f->n_takes = 0;
    for (bool passed = false;; passed = true) {
        const osh_node *reader = NULL;
        const osh_value *v = &g->values[value];
        for (int i = v->first_use; i >= 0 && i <= v->last_use; i++) {
            if (!osh_found_reads(&g->nodes[i], value)) continue;
            if (reader) return false;
            reader = &g->nodes[i];
        }
        if (!reader) return false;
        if (passed && osh_node_is(reader, OSH_OP_LINEAR) && osh_found_is_op(g, reader) &&
            !osh_found_is_router(g->modules[reader->module].cls)) {
            f->takes[f->n_takes++] = reader->module;
            return true;
        }
        if (!osh_found_passes_on(reader, value)) return false;
        value = reader->out[0];
    }
}

/* Infers mappings. A norm is a smooth layer if only Linears read its output. This must be true for
 * all norms with the same last part of the name, in all layers. For example, a router reads the
 * output of a norm before experts, so norms with this name are not used in any layer. LLM
 * Compressor does the same, because one factor for all experts does more harm than good. */
static osh_status folds_infer(osh_ctx *cx, osh_rewrites *p, osh_found *f)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    int n = 0;
    for (int m = 0; m < g->n_modules; m++) {
        if (f->m->type->transform->search && passes_to_one(p, f, m)) {
            OSH_TRY(osh_found_take_up(cx, p, f));
            n++;
        }
        bool everywhere = is_layer_norm(p, m);
        for (int k = 0; k < g->n_modules && everywhere; k++)
            if (is_layer_norm(p, k) &&
                !strcmp(fold_leaf(g->modules[k].name), fold_leaf(g->modules[m].name)))
                everywhere = only_linears(p, f, k);
        if (!everywhere) continue;
        only_linears(p, f, m);
        OSH_TRY(osh_found_take_up(cx, p, f));
        n++;
    }
    if (!n)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s finds no norm before Linears in this model: want mappings", f->m->type->name);
done:
    return rc;
}

/* Makes the lists that serve all mappings. */
static osh_status folds_make_lists(osh_ctx *cx, osh_found *f, const osh_rewrites *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    OSH_NEW(cx, f->takes, g->n_modules);
    OSH_NEW(cx, f->hits, g->n_modules);
    OSH_NEW(cx, f->inside, g->n_modules);
    OSH_NEW(cx, f->n_users, p->in->ck->n_tensors);
    for (int m = 0; m < g->n_modules; m++) f->inside[m] = (osh_span){m, m + 1};
    for (int m = 0; m < g->n_modules; m++)
        for (int at = m; at >= 0; at = g->modules[at].parent) {
            if (m < f->inside[at].first) f->inside[at].first = m;
            if (m >= f->inside[at].end) f->inside[at].end = m + 1;
        }
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++)
            if (g->nodes[i].w[k] >= 0 && g->weights[g->nodes[i].w[k]].tensor >= 0)
                f->n_users[g->weights[g->nodes[i].w[k]].tensor]++;
done:
    return rc;
}

static osh_status folds_of_modifier(osh_ctx *cx, osh_rewrites *p, int modifier)
{
    osh_status rc = OSH_OK;
    osh_found f = {.m = &p->in->recipe->modifiers[modifier], .modifier = modifier};
    size_t n = 0;
    const osh_mapping *maps = f.m->type->transform->mappings(f.m, &n);
    OSH_TRY(folds_make_lists(cx, &f, p));
    if (!maps) OSH_TRY(folds_infer(cx, p, &f));
    for (size_t i = 0; maps && i < n; i++) OSH_TRY(use_mapping(cx, p, &f, &maps[i]));
    for (size_t t = 0; t < f.m->ignore.n; t++)
        if (!osh_matcher_hits(f.m->ignored, t))
            osh_log(cx, OSH_LOG_WARN, "ignore %s of %s matches none of the layers of its mappings",
                    f.m->ignore.items[t], f.m->type->name);
done:
    osh_free(cx, f.takes);
    osh_free(cx, f.hits);
    osh_free(cx, f.inside);
    osh_free(cx, f.n_users);
    return rc;
}

osh_status osh_plan_folds(osh_ctx *cx, osh_rewrites *p)
{
    osh_status rc = OSH_OK;
    bool any = false;
    for (size_t m = 0; m < p->in->recipe->n; m++)
        any |= p->in->recipe->modifiers[m].type->transform != NULL;
    if (!any) goto done;
    if (!p->in->graph)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "the architecture of %s is not known: a recipe that changes its layers needs it",
                 p->in->ck->dir);
    if (!p->folded) OSH_NEW(cx, p->folded, p->in->ck->n_tensors);
    OSH_NEW(cx, p->in->graph->joined, p->in->graph->n_nodes);
    OSH_TRY(osh_checkpoint_expect_changes(cx, p->in->ck));
    for (size_t m = 0; m < p->in->recipe->n; m++)
        if (p->in->recipe->modifiers[m].type->transform)
            OSH_TRY(folds_of_modifier(cx, p, (int)m));
done:
    return rc;
}

void osh_plan_folds_free(osh_ctx *cx, osh_rewrites *p)
{
    for (int i = 0; i < p->n_folds; i++) {
        osh_free(cx, p->folds[i].s);
        osh_free(cx, p->folds[i].takes);
    }
    osh_free(cx, p->folds);
    osh_free(cx, p->folded);
}
