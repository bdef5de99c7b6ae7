/* looks.c - finds the values that two-pass observers read. A two-pass observer reads each value
 * twice (looks.h). */
#include "schedule/looks.h"

#include <string.h>

#include "match/cache.h"
#include "rewrite/passthrough.h"
#include "quant/observer.h"

const char *osh_look_name(osh_look l)
{
    static const char *const names[] = {"ram", "disk", "recompute"};
    return names[l];
}

void osh_looks_allowed(osh_look *first, osh_look *last, const char *calib_cache, bool on_device)
{
    *first = on_device ? OSH_LOOK_AGAIN : OSH_LOOK_RAM, *last = OSH_LOOK_AGAIN;
    for (osh_look l = OSH_LOOK_RAM; calib_cache && l <= OSH_LOOK_AGAIN; l++)
        if (!strcmp(calib_cache, osh_look_name(l))) *first = *last = l;
    if (calib_cache && !strcmp(calib_cache, "disk_f16")) *first = *last = OSH_LOOK_DISK;
}

static bool range_looks_twice(const osh_schedule *p, const osh_linear *l, int k)
{
    return l->ranged[k] >= 0 && osh_observer_twice(osh_ranged_args(p->match, l, k));
}

bool osh_looks_twice(const osh_schedule *p) { return p->looks_twice; }

/* True if the value is in the activation store when the statistics of the range are complete. This
 * is true for the inputs of the range. If the visit runs in segments, it is true for all values. */
static bool value_rests(const osh_schedule *p, const osh_range *r, int value)
{
    int visit = p->in->pipeline == OSH_PIPELINE_BASIC ? 0 : r->first_subgraph;
    int of = osh_observed(p->in->graph, r->same, value);
    return p->visits[visit].how.segments || p->in->graph->values[of].producer < r->first;
}

bool osh_looks_of(bool *kept, bool *again, const osh_schedule *p, const osh_range *r,
                  const bool *values)
{
    bool any = false;
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &p->match->linears[i];
        for (int k = 0; osh_wants(p, l) && (!values || values[l->input]) && k < OSH_RANGED; k++) {
            if (!range_looks_twice(p, l, k)) continue;
            bool *list =
                p->looks == OSH_LOOK_AGAIN || value_rests(p, r, l->ranged[k]) ? again : kept;
            if (list) any = list[l->ranged[k]] = true;
        }
    }
    return any;
}

osh_status osh_plan_seen(osh_ctx *cx, osh_schedule *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    OSH_NEW(cx, p->seen, g->n_values);
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (osh_wants(p, l) && l->input >= 0) p->seen[l->input] = true;
        for (int k = 0; k < OSH_RANGED; k++) {
            p->looks_twice |= range_looks_twice(p, l, k);
            if (osh_wants(p, l) && l->ranged[k] >= 0) p->seen[l->ranged[k]] = true;
        }
    }
    for (int i = 0; i < p->rewrites->n_inherits; i++) p->seen[p->rewrites->inherits[i].from] = true;
    for (int i = 0; i < p->rewrites->n_folds; i++) p->seen[p->rewrites->folds[i].value] = true;
    /* If a value has a counterpart in the original model, observers read the counterpart. So
     * p->seen must be true for the counterpart, too. */
    for (int v = 0; v < g->n_values; v++)
        if (p->seen[v] && g->values[v].original >= 0) p->seen[g->values[v].original] = true;
done:
    return rc;
}
