/* cut.c - subgraphs, which of them each Linear is in, and what they do. */
#include "plan/plan.h"

static int subgraph_of(const osh_partition *parts, int node)
{
    for (int s = 0; s < parts->n; s++)
        if (node >= parts->parts[s].first && node < parts->parts[s].first + parts->parts[s].n_nodes) return s;
    return -1;
}

osh_status osh_plan_cut(osh_ctx *cx, osh_plan *p, const char *const *targets, size_t n, int64_t per_subgraph)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_partition_new(cx, &p->parts, p->graph, targets, n, per_subgraph));
    OSH_NEW(cx, p->passes, p->parts->n);
    for (int i = 0; i < p->n_linears; i++) {
        osh_linear *l = &p->linears[i];
        l->subgraph = subgraph_of(p->parts, l->node);
        if (l->wants) p->passes[l->subgraph].observe = true;
    }
    int last = -1;
    for (int s = 0; s < p->parts->n; s++)
        if (p->passes[s].observe) last = s;
    for (int s = 0; s < last; s++) p->passes[s].propagate = true;
    for (int s = 0; s < p->parts->n; s++) {
        bool changes = false;
        for (int i = 0; i < p->n_linears; i++)
            changes |= p->linears[i].subgraph == s && p->recipe->modifiers[p->linears[i].modifier].type->propagates;
        p->passes[s].merged = p->passes[s].observe && p->passes[s].propagate && (!p->propagate_error || !changes);
    }
done:
    return rc;
}
