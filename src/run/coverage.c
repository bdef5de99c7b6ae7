/* coverage.c - counts the tokens that routers send to each expert. A router's output is [tokens,
 * experts]. The count of an expert is the number of elements of its column that are not 0. */
#include "run/coverage.h"

#include "ops/device_ops.h"
#include "ops/kernel.h"
#include "plan/exchange.h"

osh_status osh_coverage_new(osh_ctx *cx, osh_coverage **out, const osh_budget *p)
{
    osh_status rc = OSH_OK;
    osh_coverage *c = NULL; // own
    const osh_graph *g = p->in->graph;
    int n = 0;
    *out = NULL;
    for (int i = 0; i < g->n_nodes; i++)
        n += osh_node_routes(&g->nodes[i]) && !g->nodes[i].original;
    if (!n) goto done;
    OSH_NEW(cx, c, 1);
    OSH_NEW(cx, c->routers, n);
    OSH_NEW(cx, c->router, g->n_values);
    for (int v = 0; v < g->n_values; v++) c->router[v] = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *node = &g->nodes[i];
        if (!osh_node_routes(node) || node->original) continue;
        osh_router_tokens *r = &c->routers[c->n];
        *r = (osh_router_tokens){
            .node = i, .value = node->out[0], .n_experts = g->values[node->out[0]].width};
        c->router[r->value] = c->n++;
        OSH_TRY(osh_stat_new(cx, &r->count, &osh_stat_routes, p->in->groups, r->n_experts,
                             (osh_where){NULL, OSH_LIFE_LONG}));
        r->tokens = r->count->all->data;
    }
    *out = c, c = NULL; // passes ownership
done:
    osh_coverage_free(cx, c);
    return rc;
}

void osh_coverage_free(osh_ctx *cx, osh_coverage *c)
{
    if (!c) return;
    for (int i = 0; i < c->n; i++) osh_stat_free(cx, c->routers[i].count);
    osh_free(cx, c->routers);
    osh_free(cx, c->router);
    osh_free(cx, c);
}

/* Adds the counts of a router's output `route`, which is in GPU memory. The GPU counts, and only 4
 * bytes for each expert are copied to the host. */
static osh_status coverage_add_from_device(osh_ctx *cx, osh_tensor *count, const osh_tensor *route)
{
    osh_status rc = OSH_OK;
    int64_t *sum = count->data, E = osh_width(route);
    int32_t n[OSH_MOE_MAX_EXPERTS];
    OSH_TRY(osh_device_ops_of(route->device)->count_routes(cx, n, route));
    for (int64_t e = 0; e < E; e++) sum[e] += n[e];
done:
    return rc;
}

osh_status osh_coverage_feed(osh_ctx *cx, osh_coverage *c, int value, const osh_tensor *x,
                             const osh_batch *b)
{
    osh_status rc = OSH_OK;
    osh_router_tokens *r = c && c->router[value] >= 0 ? &c->routers[c->router[value]] : NULL;
    if (!r || b->first_sample < r->n_samples) return OSH_OK;
    osh_op_args a = {.in = {x}, .out = {r->count->all}};
    if (!x->device) OSH_TRY(osh_op_run(cx, r->count->type->feed, &a));
    else OSH_TRY(coverage_add_from_device(cx, r->count->all, x));
    r->n_samples = b->first_sample + b->seqs.n, r->n_tokens += b->n_tokens;
done:
    return rc;
}

osh_status osh_coverage_merge(osh_ctx *cx, osh_coverage *c, osh_ranks *ranks)
{
    osh_status rc = OSH_OK;
    for (int i = 0; ranks && c && i < c->n; i++) {
        osh_router_tokens *r = &c->routers[i];
        OSH_TRY(osh_exchange_exact(cx, ranks, r->count->type, r->count->all));
        OSH_TRY(osh_exchange_count(cx, ranks, &r->n_tokens));
    }
done:
    return rc;
}
