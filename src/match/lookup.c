/* lookup.c - finds Linears by nodes, value or weight. Linears are in the order of their nodes, so a
 * binary search finds the Linears of consecutive nodes. The Linears that read a value form a linked
 * list. The Linears that use a weight form a linked list, too. Linears that are not in the graph
 * have node -1 and come first. */
#include "match/lookup.h"

osh_status osh_plan_index(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, p->readers, p->in->graph->n_values);
    OSH_NEW(cx, p->users, p->in->graph->n_weights);
    for (int v = 0; v < p->in->graph->n_values; v++) p->readers[v] = -1;
    for (int w = 0; w < p->in->graph->n_weights; w++) p->users[w] = -1;
    for (int i = p->n_linears; i-- > 0;) {
        osh_linear *l = &p->linears[i];
        if (i && l->node < l[-1].node)
            OSH_FAIL(cx, OSH_E_INTERNAL, "%s is planned after %s but runs before it", l->name,
                     l[-1].name);
        l->next.reader = l->next.user = -1;
        if (l->node < 0) continue;
        l->next.reader = p->readers[l->input], p->readers[l->input] = i;
        l->next.user = p->users[l->weight], p->users[l->weight] = i;
    }
done:
    return rc;
}

/* Returns the index of the first Linear whose node has at least the index `node`. */
static int first_linear_from(const osh_matching *p, int node)
{
    int low = 0, high = p->n_linears;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->linears[middle].node < node) low = middle + 1;
        else high = middle;
    }
    return low;
}

osh_span osh_linears_of_nodes(const osh_matching *p, int node, int n_nodes)
{
    return (osh_span){first_linear_from(p, node), first_linear_from(p, node + n_nodes)};
}
