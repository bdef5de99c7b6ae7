/* looks.c - see looks.h. */
#include "plan/looks.h"
#include "plan/passthrough.h"
#include "quant/observer.h"

const char *osh_look_name(osh_look l)
{
    static const char *const names[] = {"ram", "disk", "recompute"};
    return names[l];
}

static bool input_looks(const osh_linear *l)
{
    return (l->wants & OSH_STAT_RANGE) && osh_observer_twice(&l->scheme->inputs);
}

static bool cache_looks(const osh_plan *p, const osh_linear *l)
{
    return l->cache[0] >= 0 && p->cache.present && osh_observer_twice(&p->cache);
}

bool osh_linear_looks(const osh_plan *p, const osh_linear *l, int value)
{
    if (l->ranged == value && input_looks(l)) return true;
    for (int k = 0; cache_looks(p, l) && k < OSH_CACHED && l->cache[k] >= 0; k++)
        if (l->cache[k] == value) return true;
    return false;
}

bool osh_looks_twice(const osh_plan *p) { return p->looks_twice; }

/* It is in the store when the statistics are made: it came into the range, or what is made in it rests there. */
static bool rests(const osh_plan *p, const osh_range *r, int value)
{
    int visit = p->pipeline == OSH_PIPELINE_BASIC ? 0 : r->first_subgraph;
    int of = osh_observed(p->graph, r->same, value);
    return p->memory.visits[visit].segments || p->graph->values[of].producer < r->first;
}

bool osh_looks_of(bool *kept, bool *again, const osh_plan *p, const osh_range *r, const bool *values)
{
    bool any = false;
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &p->linears[i];
        int seen[] = {l->ranged, l->cache[0], l->cache[1], l->cache[2]};
        for (int k = 0; l->wants && (!values || values[l->input]) && k <= OSH_CACHED && seen[k] >= 0; k++) {
            if (!osh_linear_looks(p, l, seen[k])) continue;
            bool *list = p->memory.looks == OSH_LOOK_AGAIN || rests(p, r, seen[k]) ? again : kept;
            if (list) any = list[seen[k]] = true;
        }
    }
    return any;
}

osh_status osh_plan_seen(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->graph;
    OSH_NEW(cx, p->seen, g->n_values);
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        p->looks_twice |= l->input >= 0 && (input_looks(l) || cache_looks(p, l));
        if (l->wants && l->input >= 0) p->seen[l->input] = true;
        if (l->wants && l->ranged >= 0) p->seen[l->ranged] = true;
        for (int k = 0; l->wants && k < OSH_BESIDE; k++)
            if (l->cache[k] >= 0) p->seen[l->cache[k]] = true;
    }
    for (int i = 0; i < p->n_inherits; i++) p->seen[p->inherits[i].from] = true;
    for (int i = 0; i < p->n_folds; i++) p->seen[p->folds[i].value] = true;
    for (int v = 0; v < g->n_values; v++) // one stands for the other where both are the same
        if (p->seen[v] && g->values[v].original >= 0) p->seen[g->values[v].original] = true;
done:
    return rc;
}
