/* cache.c - kv_cache_scheme: one scale for the keys and one for the values of each attention, `k_scale` and `v_scale`
 * of the module around it. They are observed where attention reads them, behind rope, and come with the Linear that
 * reads what attention makes: it is solved when they are complete, and its record has them. */
#include "plan/plan.h"

#include <string.h>

static osh_linear *reader_of(osh_plan *p, int value)
{
    for (int i = 0; i < p->n_linears; i++)
        if (p->linears[i].node >= 0 && p->linears[i].input == value) return &p->linears[i];
    return NULL;
}

static osh_status attach(osh_ctx *cx, osh_plan *p, const osh_node *n)
{
    osh_status rc = OSH_OK;
    osh_linear *l = reader_of(p, n->out[0]);
    if (!l)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "kv_cache_scheme: what %s makes is read by no Linear that is quantized, whose "
                 "tensors its scales are kept with in this version: want it among the targets",
                 p->graph->modules[n->module].name);
    l->cache[0] = n->in[1], l->cache[1] = n->in[2];
    l->wants |= OSH_STAT_CACHE;
    if (l->wants & OSH_STAT_SHIFT)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "kv_cache_scheme together with target 'original' (quality best) is not made by "
                 "this version: want one of them");
done:
    return rc;
}

osh_status osh_plan_cache(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    int n = 0;
    for (int i = 0; i < p->n_linears; i++) p->linears[i].cache[0] = p->linears[i].cache[1] = -1;
    for (size_t m = 0; m < p->recipe->n; m++) {
        if (!p->recipe->modifiers[m].cache.present) continue;
        if (p->cache.present)
            OSH_FAIL(cx, OSH_E_USAGE, "two modifiers have a kv_cache_scheme: want one of them");
        p->cache = p->recipe->modifiers[m].cache;
    }
    if (!p->cache.present) goto done;
    if (!p->graph)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "kv_cache_scheme needs an architecture that is known, and data");
    for (int i = 0; i < p->graph->n_nodes; i++) {
        if (strcmp(p->graph->nodes[i].op->name, "attention")) continue;
        OSH_TRY(attach(cx, p, &p->graph->nodes[i]));
        n++;
    }
    if (!n) OSH_FAIL(cx, OSH_E_UNSUPPORTED, "kv_cache_scheme: the model has no attention with keys and values");
done:
    return rc;
}
