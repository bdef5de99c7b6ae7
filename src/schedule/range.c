/* range.c - describes the range of a visit (the work on one subgraph): the subgraph's nodes,
 * Linears, values and weights. */
#include "rewrite/folds.h"
#include "match/cache.h"
#include "schedule/range.h"

int osh_observed(const osh_graph *g, bool same, int value)
{
    int original = g->values[value].original;
    return same && original >= 0 ? original : value;
}

bool osh_folds_known(const osh_schedule *p, int subgraph, int n_subgraphs)
{
    for (int i = 0; i < p->rewrites->n_folds; i++)
        if (osh_fold_in(p, &p->rewrites->folds[i], subgraph, n_subgraphs) &&
            !p->rewrites->folds[i].known)
            return false;
    return true;
}

bool osh_fold_inside(const osh_schedule *p, const osh_range *r, const osh_fold *f)
{
    return osh_fold_in(p, f, r->first_subgraph, r->n_subgraphs);
}

int osh_n_ranges(const osh_schedule *p)
{
    return !p->parts ? 0 : p->in->pipeline == OSH_PIPELINE_BASIC ? 1 : p->parts->n;
}

static void range_widen(int *first, int *end, int i)
{
    if (i < 0) return;
    if (*end == 0 || i < *first) *first = i;
    if (i >= *end) *end = i + 1;
}

/* Finds bounds of the indices of the range's Linears, values and weights. Loops over a range use
 * these bounds, because a model with experts has very many Linears, values and weights. */
static void range_find_ends(osh_range *r, const osh_schedule *p)
{
    osh_span own = osh_linears_of(p, r->first_subgraph, r->n_subgraphs);
    for (int i = own.first; i < own.end; i++) {
        const osh_linear *l = &p->match->linears[i];
        range_widen(&r->l0, &r->l1, i), range_widen(&r->v0, &r->v1, l->input),
            range_widen(&r->w0, &r->w1, l->weight);
    }
    for (int i = r->first; i < r->first + r->n_nodes; i++) {
        const osh_node *n = &p->in->graph->nodes[i];
        for (int k = 0; k < n->op->n_in; k++) range_widen(&r->v0, &r->v1, n->in[k]);
        for (int k = 0; k < n->op->n_out; k++) range_widen(&r->v0, &r->v1, n->out[k]);
        for (int k = 0; k < n->op->n_weights; k++) range_widen(&r->w0, &r->w1, n->w[k]);
    }
    for (int i = 0; i < r->n_live_in; i++) range_widen(&r->v0, &r->v1, r->live_in[i]);
    for (int i = 0; i < r->n_live_out; i++) range_widen(&r->v0, &r->v1, r->live_out[i]);
}

osh_range osh_range_at(const osh_schedule *p, int index)
{
    osh_range r = {.n_nodes = p->in->graph->n_nodes, .n_subgraphs = p->parts->n, .observe = true,
                   .name = "the whole model"};
    if (p->in->pipeline != OSH_PIPELINE_BASIC) {
        const osh_subgraph *s = &p->parts->parts[index];
        const osh_pass *ps = &p->passes[index];
        r = (osh_range){s->first, s->n_nodes, index, 1,
                        s->live_in, s->live_out, s->n_live_in, s->n_live_out,
                        ps->observe, ps->propagate, ps->merged, ps->same,
                        s->name, 0, 0, 0, 0, 0, 0, ps->fold, ps->block};
    }
    r.fold |= p->in->pipeline == OSH_PIPELINE_BASIC && p->rewrites->n_folds;
    range_find_ends(&r, p);
    return r;
}

size_t osh_ranged_lists(const osh_schedule *p, const osh_range *r)
{
    size_t n = 0, heads = 0;
    for (int i = r->l0; i < r->l1; i++)
        for (int k = 0; k < OSH_RANGED; k++) {
            const osh_linear *l = &p->match->linears[i];
            if (l->ranged[k] < 0) continue;
            n++, heads += osh_mem_gross((size_t)l->heads[k] * sizeof(osh_act_observer));
            bool here = !p->in->on_device || osh_range_is_copied(p->match, l, k);
            if (here && osh_leads_range(p->match, i, k))
                heads +=
                    osh_tensor_gross((size_t)(2 * p->in->data.n * l->heads[k]) * sizeof(float)) +
                    osh_mem_gross((size_t)l->heads[k] * 2 * sizeof(float));
        }
    return osh_mem_gross((size_t)(r->v1 - r->v0) * sizeof(int)) +
           osh_mem_gross(n * sizeof(osh_ranged)) + heads;
}

int64_t osh_hessian_bytes(const osh_schedule *p, int linear)
{
    const osh_linear *all = p->match->linears, *l = &all[linear];
    if (!(osh_wants(p, l) & OSH_STAT_HESSIAN)) return 0;
    for (int i = osh_first_reader(p->match, l->input); i >= 0 && i < linear;
         i = osh_next_reader(p->match, i))
        if (all[i].subgraph == l->subgraph && (osh_wants(p, &all[i]) & OSH_STAT_HESSIAN)) return 0;
    return osh_hessian_size(l);
}

int64_t osh_range_hessians(const osh_schedule *p, const osh_range *r, int64_t *largest)
{
    int64_t sum = 0;
    if (largest) *largest = 0;
    for (int i = r->l0; i < r->l1; i++) {
        int64_t one = osh_hessian_bytes(p, i);
        sum += one;
        if (largest && one > *largest) *largest = one;
    }
    return sum;
}
