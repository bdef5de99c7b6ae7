/* folds.c - finds the folds of a recipe. A mapping of the recipe names a smooth layer and balance
 * layers. The weights of the smooth layer are divided by factors, and the weights of the balance
 * layers are multiplied by the same factors. If the recipe has no mappings, this file infers them
 * from the graph. (fold_rules.c registers the factors.) */
#include "rewrite/folds.h"
#include "match/lookup.h"

#include <string.h>

typedef struct found { // a mapping for one smooth layer
    const osh_modifier *m;
    /* modifier: index of the modifier in the recipe.
     * smooth: index in the graph of the smooth layer's module. */
    int modifier, smooth;
    int *takes, n_takes;   // own [n_takes]: modules of the balance layers
    /* The lists below are made once and serve all mappings. */
    /* own [modules]: for each module, a span of indices that contains all modules inside of it */
    osh_span *inside;
    int *n_users;          // own [source tensors]: number of nodes whose weight is the tensor
    bool *hits;            // own [modules]: true if the module matches a target of the mapping
} found;

static const osh_node *fold_node(const osh_rewrites *p, int module)
{
    return &p->in->graph->nodes[p->in->graph->modules[module].node];
}

/* True if the node is the op of its module. Other nodes only read a parameter of the module. They
 * cannot be balance layers, because balance layers are modules. */
static bool is_op_of_module(const osh_graph *g, const osh_node *n)
{
    return g->modules[n->module].node == n - g->nodes;
}

static bool is_router_class(const char *cls) { return strstr(cls, "Router") != NULL; }

static bool module_inside(const osh_graph *g, int module, int outer)
{
    while (module >= 0 && module != outer) module = g->modules[module].parent;
    return module == outer;
}

static osh_span fold_scope(const found *f, const osh_graph *g, int scope)
{
    return scope < 0 ? (osh_span){0, g->n_modules} : f->inside[scope];
}

static bool has_take(const found *f, int module)
{
    for (int i = 0; i < f->n_takes; i++)
        if (f->takes[i] == module) return true;
    return false;
}

/* ---- checks ---- */

static osh_status refuse_reader(osh_ctx *cx, const osh_rewrites *p, const found *f,
                                const osh_node *n)
{
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s: %s cannot give factors to other layers: %s (%s) also reads its output and "
                    "would get changed values: want it among the balance layers, or other mappings",
                    f->m->type->name, p->in->graph->modules[f->smooth].name,
                    p->in->graph->modules[n->module].name, n->op->name);
}

/* True if the node reads the elements of the value. The op `zeros` does not: it reads only the
 * shape. */
static bool node_reads(const osh_node *n, int value)
{
    bool any = false;
    for (int k = 0; k < n->op->n_in; k++) any |= n->in[k] == value;
    return any && !osh_node_is(n, OSH_OP_ZEROS);
}

/* True if the node passes factors on. Then, if channels of its input `value` are multiplied by
 * factors, the channels of its output are multiplied by the same factors. */
static bool passes_on(const osh_node *n, int value)
{
    if (!n->op->passes_factors) return false;
    for (int k = 0; k < n->op->n_in; k++)
        if (n->in[k] == value && !n->op->passes_factors(n->attr, k)) return false;
    return true;
}

/* Checks the nodes that read the value. Each of them must be a balance layer, or pass factors on to
 * its output (passes_on). In the second case, checks the readers of this output, too. Sets
 * reached[k] to true if the balance layer f->takes[k] gets the factors. */
static osh_status fold_follow(osh_ctx *cx, const osh_rewrites *p, const found *f, int value,
                              bool *reached)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    const osh_value *v = &g->values[value];
    for (int i = v->first_use; i >= 0 && i <= v->last_use; i++) {
        const osh_node *n = &g->nodes[i];
        if (!node_reads(n, value)) continue;
        if (osh_node_is(n, OSH_OP_LINEAR) && is_op_of_module(g, n) && has_take(f, n->module)) {
            for (int k = 0; k < f->n_takes; k++) reached[k] |= f->takes[k] == n->module;
        } else if (passes_on(n, value)) {
            OSH_TRY(fold_follow(cx, p, f, n->out[0], reached));
        } else {
            OSH_TRY(refuse_reader(cx, p, f, n));
        }
    }
done:
    return rc;
}

/* Fails if several nodes use the weight, as with a tied embedding. A fold would change the weight
 * for all these nodes. */
static osh_status fold_check_alone(osh_ctx *cx, const osh_rewrites *p, const found *f, int weight)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    int64_t tensor = g->weights[weight].tensor;
    int n = tensor < 0 ? 1 : f->n_users[tensor];
    if (n > 1)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s cannot change %s, which is the weight of %d modules",
                 f->m->type->name, g->weights[weight].name, n);
done:
    return rc;
}

static osh_status fold_check(osh_ctx *cx, const osh_rewrites *p, const found *f)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    const osh_node *s = fold_node(p, f->smooth);
    bool *reached = NULL; // own [n_takes]: true for balance layers that get the factors
    const char *name = g->modules[f->smooth].name, *who = f->m->type->name;
    OSH_NEW(cx, reached, f->n_takes);
    const osh_weight *w = s->w[0] < 0 ? NULL : &g->weights[s->w[0]];
    if (!w ||
        !osh_node_is(s, OSH_OP_NORM | OSH_OP_LINEAR) || w->shape[0] != g->values[s->out[0]].width)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: smooth layer %s is a %s (%s): want a norm of whole rows, or a Linear", who,
                 name, g->modules[f->smooth].cls, s->op->name);
    OSH_TRY(fold_follow(cx, p, f, s->out[0], reached));
    for (int i = 0; i < f->n_takes; i++) {
        if (!reached[i])
            OSH_FAIL(cx, OSH_E_USAGE, "%s: balance layer %s does not read the output of %s", who,
                     g->modules[f->takes[i]].name, name);
        OSH_TRY(fold_check_alone(cx, p, f, fold_node(p, f->takes[i])->w[0]));
    }
    OSH_TRY(fold_check_alone(cx, p, f, s->w[0]));
done:
    osh_free(cx, reached);
    return rc;
}

/* ---- adding a fold ---- */

/* Returns the scheme of the Linear at node `node`, or NULL if the Linear stays dense. */
static const osh_q_scheme *fold_scheme(const osh_rewrites *p, int node)
{
    osh_span own = osh_linears_of_nodes(p->match, node, 1);
    return own.first < own.end && p->match->linears[own.first].scheme_index >= 0
               ? p->match->linears[own.first].scheme
               : NULL;
}

/* Fails if an earlier modifier of the recipe quantizes a weight of the fold, because factors cannot
 * be folded into codes. */
static osh_status fold_check_order(osh_ctx *cx, const osh_rewrites *p, const found *f)
{
    osh_status rc = OSH_OK;
    for (int i = -1; i < f->n_takes; i++) {
        const osh_module *m = &p->in->graph->modules[i < 0 ? f->smooth : f->takes[i]];
        osh_span own = osh_linears_of_nodes(p->match, m->node, 1);
        const osh_linear *l = own.first < own.end ? &p->match->linears[own.first] : NULL;
        if (l && l->scheme_index >= 0 && l->modifier < f->modifier)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s comes after %s, which quantizes the weights of %s: want it before, or "
                     "mappings without these weights",
                     f->m->type->name, p->in->recipe->modifiers[l->modifier].type->name, m->name);
    }
done:
    return rc;
}

static osh_status fold_mark(osh_ctx *cx, const osh_rewrites *p, const found *f, osh_fold_way way,
                            int weight)
{
    osh_status rc = OSH_OK;
    const osh_weight *w = &p->in->graph->weights[weight];
    uint8_t bit = way == OSH_FOLD_ROWS ? 1 : 2;
    if (p->folded[w->tensor] & bit)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: two mappings change %s in the same way: want each layer in one of them",
                 f->m->type->name, w->name);
    p->folded[w->tensor] |= bit;
done:
    return rc;
}

/* Makes sure that the smooth layer and all its balance layers get into one subgraph. */
static void fold_join_nodes(osh_graph *g, const found *f)
{
    int *end = &g->joined[g->modules[f->smooth].node];
    for (int k = 0; k < f->n_takes; k++)
        if (g->modules[f->takes[k]].node > *end) *end = g->modules[f->takes[k]].node;
}

/* Prepares a fold whose factors come from a search. Such a search needs the input of the balance
 * layers and not the output of the smooth layer, so o->value becomes this input. Fails if the
 * balance layers have different inputs, or if the search does not support one of their schemes. */
static osh_status fold_see_input(osh_ctx *cx, const osh_rewrites *p, const found *f, osh_fold *o)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    o->value = fold_node(p, f->takes[0])->in[0];
    for (int k = 0; k < f->n_takes; k++) {
        const osh_module *t = &g->modules[f->takes[k]];
        const osh_node *n = &g->nodes[t->node];
        const osh_q_scheme *s = fold_scheme(p, t->node);
        if (n->in[0] != o->value)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: %s and the other balance layers of %s have different inputs",
                     f->m->type->name, t->name, g->modules[o->module].name);
        if (s) OSH_TRY(f->m->type->transform->takes(cx, f->m, t->name, s));
    }
done:
    return rc;
}

static osh_status folds_add(osh_ctx *cx, osh_rewrites *p, const found *f)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    const osh_node *s = fold_node(p, f->smooth);
    osh_fold *grown = NULL;
    OSH_TRY(fold_check(cx, p, f));
    OSH_TRY(fold_check_order(cx, p, f));
    if (!(grown = osh_realloc(cx, p->folds, (size_t)(p->n_folds + 1) * sizeof *grown)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for mappings");
    p->folds = grown;
    osh_fold *o = &p->folds[p->n_folds];
    *o = (osh_fold){.modifier = f->modifier, .module = f->smooth, .value = s->out[0],
                    .n = g->values[s->out[0]].width, .subgraph = -1};
    p->n_folds++;
    o->offset = (float)osh_node_norm(s).offset;
    OSH_NEW(cx, o->s, o->n);
    OSH_NEW(cx, o->takes, f->n_takes);
    for (int k = 0; k < 2 && k < s->op->n_weights; k++)
        if (s->w[k] >= 0) o->gives[o->n_gives++] = s->w[k];
    for (int k = 0; k < f->n_takes; k++) o->takes[o->n_takes++] = fold_node(p, f->takes[k])->w[0];
    if (osh_fold_searches(p, o)) OSH_TRY(fold_see_input(cx, p, f, o));
    fold_join_nodes(p->in->graph, f);
    for (int k = 0; k < o->n_gives; k++) OSH_TRY(fold_mark(cx, p, f, OSH_FOLD_ROWS, o->gives[k]));
    for (int k = 0; k < o->n_takes; k++)
        OSH_TRY(fold_mark(cx, p, f, OSH_FOLD_COLUMNS, o->takes[k]));
done:
    return rc;
}

/* Sets *all to true if the modifier's ignore list matches all layers of the mapping. If so, the
 * mapping is skipped, as in LLM Compressor. */
static osh_status fold_is_ignored(osh_ctx *cx, bool *all, const osh_rewrites *p, const found *f)
{
    osh_status rc = OSH_OK;
    *all = f->m->ignore.n > 0;
    for (int i = -1; i < f->n_takes && *all; i++) {
        const osh_module *m = &p->in->graph->modules[i < 0 ? f->smooth : f->takes[i]];
        int64_t hit = -1;
        OSH_TRY(osh_matcher_find(cx, &hit, f->m->ignored, m->name, m->cls));
        *all = hit >= 0;
    }
done:
    return rc;
}

/* True if AWQ skips the mapping, as in LLM Compressor. One reason is that no balance layer is
 * quantized. The other is that several query heads share a head of values: the smooth layer's
 * output and a balance layer's input then have different widths. */
static bool is_passed_over(osh_ctx *cx, const osh_rewrites *p, const found *f)
{
    const osh_graph *g = p->in->graph;
    const osh_module *s = &g->modules[f->smooth];
    bool any = false;
    if (!f->m->type->transform->search) return false;
    int64_t width = g->values[fold_node(p, f->smooth)->out[0]].width;
    for (int k = 0; k < f->n_takes; k++) {
        const osh_module *t = &g->modules[f->takes[k]];
        any |= fold_scheme(p, t->node) != NULL;
        if (g->values[g->nodes[t->node].in[0]].width == width) continue;
        osh_log(cx, OSH_LOG_INFO, "%s: %s and %s have different widths: skipped", f->m->type->name,
                s->name, t->name);
        return true;
    }
    if (!any)
        osh_log(cx, OSH_LOG_WARN, "%s: no reader of the output of %s is quantized: skipped",
                f->m->type->name, s->name);
    return !any;
}

static osh_status fold_take_up(osh_ctx *cx, osh_rewrites *p, const found *f)
{
    osh_status rc = OSH_OK;
    bool ignored = false;
    OSH_TRY(fold_is_ignored(cx, &ignored, p, f));
    if (!ignored && !is_passed_over(cx, p, f)) OSH_TRY(folds_add(cx, p, f));
done:
    return rc;
}

/* ---- mappings that the recipe gives ---- */

typedef struct balance { // matchers of names, one for each balance layer of a mapping
    osh_matcher **of; // own
    size_t n;
} balance;

/* Sets f->hits to true for the modules inside of module `scope` that match a balance layer of the
 * mapping. If scope is -1, searches all modules. Sets *all to true if each balance layer matches a
 * module. */
static osh_status match_inside(osh_ctx *cx, bool *all, const found *f, const osh_rewrites *p,
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
static osh_status find_takes(osh_ctx *cx, const osh_rewrites *p, found *f, const osh_mapping *map,
                             const balance *b, osh_matcher *smooth)
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

static osh_status use_mapping(osh_ctx *cx, osh_rewrites *p, found *f, const osh_mapping *map)
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
        OSH_TRY(fold_take_up(cx, p, f));
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
    const osh_node *n = fold_node(p, module);
    return osh_node_is(n, OSH_OP_NORM) && n->w[0] >= 0 &&
           g->weights[n->w[0]].shape[0] == g->values[g->hidden].width &&
           g->values[n->out[0]].width == g->values[g->hidden].width;
}

/* Returns true if all readers of the module's output are Linears, and none is a router. Sets
 * f->takes to these Linears. */
static bool only_linears(const osh_rewrites *p, found *f, int module)
{
    const osh_graph *g = p->in->graph;
    const osh_node *s = fold_node(p, module);
    const osh_value *v = &g->values[s->out[0]];
    f->smooth = module, f->n_takes = 0;
    for (int i = v->first_use; i >= 0 && i <= v->last_use; i++) {
        const osh_node *n = &g->nodes[i];
        if (!node_reads(n, s->out[0])) continue;
        if (!osh_node_is(n, OSH_OP_LINEAR) || !is_op_of_module(g, n) ||
            is_router_class(g->modules[n->module].cls))
            return false;
        f->takes[f->n_takes++] = n->module;
    }
    return f->n_takes > 0;
}

/* Returns true if the module is a Linear of a decoder layer, and its output goes to exactly one
 * other Linear. The nodes between both Linears must pass factors on. Sets f->takes to the other
 * Linear. */
static bool passes_to_one(const osh_rewrites *p, found *f, int module)
{
    const osh_graph *g = p->in->graph;
    if (g->modules[module].node < 0 || !module_in_layer(g, module) ||
        !osh_node_is(fold_node(p, module), OSH_OP_LINEAR))
        return false;
    int value = fold_node(p, module)->out[0];
    f->smooth = module, f->n_takes = 0;
    for (bool passed = false;; passed = true) {
        const osh_node *reader = NULL;
        const osh_value *v = &g->values[value];
        for (int i = v->first_use; i >= 0 && i <= v->last_use; i++) {
            if (!node_reads(&g->nodes[i], value)) continue;
            if (reader) return false;
            reader = &g->nodes[i];
        }
        if (!reader) return false;
        if (passed && osh_node_is(reader, OSH_OP_LINEAR) && is_op_of_module(g, reader) &&
            !is_router_class(g->modules[reader->module].cls)) {
            f->takes[f->n_takes++] = reader->module;
            return true;
        }
        if (!passes_on(reader, value)) return false;
        value = reader->out[0];
    }
}

/* Infers mappings. A norm is a smooth layer if only Linears read its output. This must be true for
 * all norms with the same last part of the name, in all layers. For example, a router reads the
 * output of a norm before experts, so norms with this name are not used in any layer. LLM
 * Compressor does the same: one factor for all experts does more harm than good. */
static osh_status folds_infer(osh_ctx *cx, osh_rewrites *p, found *f)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    int n = 0;
    for (int m = 0; m < g->n_modules; m++) {
        if (f->m->type->transform->search && passes_to_one(p, f, m)) {
            OSH_TRY(fold_take_up(cx, p, f));
            n++;
        }
        bool everywhere = is_layer_norm(p, m);
        for (int k = 0; k < g->n_modules && everywhere; k++)
            if (is_layer_norm(p, k) &&
                !strcmp(fold_leaf(g->modules[k].name), fold_leaf(g->modules[m].name)))
                everywhere = only_linears(p, f, k);
        if (!everywhere) continue;
        only_linears(p, f, m);
        OSH_TRY(fold_take_up(cx, p, f));
        n++;
    }
    if (!n)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s finds no norm before Linears in this model: want mappings", f->m->type->name);
done:
    return rc;
}

/* Makes the lists that serve all mappings. */
static osh_status folds_make_lists(osh_ctx *cx, found *f, const osh_rewrites *p)
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
    found f = {.m = &p->in->recipe->modifiers[modifier], .modifier = modifier};
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
