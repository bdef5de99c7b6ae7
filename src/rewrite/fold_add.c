/* fold_add.c - checks a mapping of a smooth layer and balance layers, and adds its fold. */
#include "rewrite/fold_found.h"

static bool has_take(const osh_found *f, int module)
{
    for (int i = 0; i < f->n_takes; i++)
        if (f->takes[i] == module) return true;
    return false;
}
/* ---- checks ---- */

bool osh_found_reads(const osh_node *n, int value)
{
    bool any = false;
    for (int k = 0; k < n->op->n_in; k++) any |= n->in[k] == value;
    return any && !osh_node_is(n, OSH_OP_ZEROS);
}

bool osh_found_passes_on(const osh_node *n, int value)
{
    if (!n->op->passes_factors) return false;
    for (int k = 0; k < n->op->n_in; k++)
        if (n->in[k] == value && !n->op->passes_factors(n->attr, k)) return false;
    return true;
}

static osh_status refuse_reader(osh_ctx *cx, const osh_rewrites *p, const osh_found *f,
                                const osh_node *n)
{
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s: %s cannot give factors to other layers: %s (%s) also reads its output and "
                    "would get changed values: want it among the balance layers, or other mappings",
                    f->m->type->name, p->in->graph->modules[f->smooth].name,
                    p->in->graph->modules[n->module].name, n->op->name);
}

/* Checks the nodes that read the value. Each of them must be a balance layer, or pass factors on to
 * its output (osh_found_passes_on). In the second case, checks the readers of this output, too.
 * Sets reached[k] to true if the balance layer f->takes[k] gets the factors. */
static osh_status fold_follow(osh_ctx *cx, const osh_rewrites *p, const osh_found *f, int value,
                              bool *reached)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    const osh_value *v = &g->values[value];
    for (int i = v->first_use; i >= 0 && i <= v->last_use; i++) {
        const osh_node *n = &g->nodes[i];
        if (!osh_found_reads(n, value)) continue;
        if (osh_node_is(n, OSH_OP_LINEAR) && osh_found_is_op(g, n) && has_take(f, n->module)) {
            for (int k = 0; k < f->n_takes; k++) reached[k] |= f->takes[k] == n->module;
        } else if (osh_found_passes_on(n, value)) {
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
static osh_status fold_check_alone(osh_ctx *cx, const osh_rewrites *p, const osh_found *f,
                                   int weight)
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

static osh_status fold_check(osh_ctx *cx, const osh_rewrites *p, const osh_found *f)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    const osh_node *s = osh_found_node(p, f->smooth);
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
        OSH_TRY(fold_check_alone(cx, p, f, osh_found_node(p, f->takes[i])->w[0]));
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
static osh_status fold_check_order(osh_ctx *cx, const osh_rewrites *p, const osh_found *f)
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

static osh_status fold_mark(osh_ctx *cx, const osh_rewrites *p, const osh_found *f,
                            osh_fold_way way, int weight)
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
static void fold_join_nodes(osh_graph *g, const osh_found *f)
{
    int *end = &g->joined[g->modules[f->smooth].node];
    for (int k = 0; k < f->n_takes; k++)
        if (g->modules[f->takes[k]].node > *end) *end = g->modules[f->takes[k]].node;
}

/* Prepares a fold whose factors come from a search. Such a search needs the input of the balance
 * layers and not the output of the smooth layer, so o->value becomes this input. Fails if the
 * balance layers have different inputs, or if the search does not support one of their schemes. */
static osh_status fold_see_input(osh_ctx *cx, const osh_rewrites *p, const osh_found *f,
                                 osh_fold *o)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    o->value = osh_found_node(p, f->takes[0])->in[0];
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

static osh_status folds_add(osh_ctx *cx, osh_rewrites *p, const osh_found *f)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    const osh_node *s = osh_found_node(p, f->smooth);
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
    for (int k = 0; k < f->n_takes; k++)
        o->takes[o->n_takes++] = osh_found_node(p, f->takes[k])->w[0];
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
static osh_status fold_is_ignored(osh_ctx *cx, bool *all, const osh_rewrites *p, const osh_found *f)
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
 * quantized. The other reason is that several query heads share a value head, so that the smooth
 * layer's output and a balance layer's input have different widths. */
static bool is_passed_over(osh_ctx *cx, const osh_rewrites *p, const osh_found *f)
{
    const osh_graph *g = p->in->graph;
    const osh_module *s = &g->modules[f->smooth];
    bool any = false;
    if (!f->m->type->transform->search) return false;
    int64_t width = g->values[osh_found_node(p, f->smooth)->out[0]].width;
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

osh_status osh_found_take_up(osh_ctx *cx, osh_rewrites *p, const osh_found *f)
{
    osh_status rc = OSH_OK;
    bool ignored = false;
    OSH_TRY(fold_is_ignored(cx, &ignored, p, f));
    if (!ignored && !is_passed_over(cx, p, f)) OSH_TRY(folds_add(cx, p, f));
done:
    return rc;
}
