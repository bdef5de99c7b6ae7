/* lookup.c - finds Linears by nodes, subgraph, value or weight. Linears are in the order of their
 * nodes, and so are subgraphs: spans are found by binary search. Readers of a value and users of a
 * weight are chained. */
#include "plan/lookup.h"

osh_status osh_plan_index(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, p->readers, p->graph->n_values);
    OSH_NEW(cx, p->users, p->graph->n_weights);
    for (int v = 0; v < p->graph->n_values; v++) p->readers[v] = -1;
    for (int w = 0; w < p->graph->n_weights; w++) p->users[w] = -1;
    for (int i = p->n_linears; i-- > 0;) {
        osh_linear *l = &p->linears[i];
        if (i && l->node < l[-1].node)
            OSH_FAIL(cx, OSH_E_INTERNAL, "%s is planned after %s but runs before it", l->name,
                     l[-1].name);
        l->next_reader = p->readers[l->input], p->readers[l->input] = i;
        l->next_user = p->users[l->weight], p->users[l->weight] = i;
    }
done:
    return rc;
}

/* Returns the first Linear at or after the node. */
static int first_linear_from(const osh_plan *p, int node)
{
    int low = 0, high = p->n_linears;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->linears[middle].node < node) low = middle + 1;
        else high = middle;
    }
    return low;
}

osh_span osh_linears_of_nodes(const osh_plan *p, int node, int n_nodes)
{
    return (osh_span){first_linear_from(p, node), first_linear_from(p, node + n_nodes)};
}

osh_span osh_linears_of(const osh_plan *p, int subgraph, int n_subgraphs)
{
    const osh_subgraph *s = &p->parts->parts[subgraph], *last = s + n_subgraphs - 1;
    if (n_subgraphs <= 0) return (osh_span){0, 0};
    return osh_linears_of_nodes(p, s->first, last->first + last->n_nodes - s->first);
}

int osh_subgraph_of(const osh_plan *p, int node)
{
    const osh_subgraph *s = p->parts->parts;
    int low = 0, high = p->parts->n;
    while (low < high) { // the first subgraph that ends after the node
        int middle = low + (high - low) / 2;
        if (s[middle].first + s[middle].n_nodes <= node) low = middle + 1;
        else high = middle;
    }
    return low < p->parts->n && node >= s[low].first ? low : -1;
}
