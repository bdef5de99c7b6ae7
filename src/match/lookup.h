/* lookup.h - finds Linears by their nodes, values or weights, without a search through all Linears.
 * A model with experts has tens of thousands of Linears, and a run looks Linears up for each range,
 * batch and value. */
#ifndef OSH_LOOKUP_H
#define OSH_LOOKUP_H
#include "match/matching.h"

/* The Linears with indices [first, end). */
typedef struct osh_span { int first, end; } osh_span;

/* Returns the Linears of the nodes [node, node + n_nodes). */
osh_span osh_linears_of_nodes(const osh_matching *p, int node, int n_nodes);

/* Two of the four functions below iterate over the Linears that read a value. The other two iterate
 * over the Linears that use a weight of the graph. The order is ascending. Start with
 * osh_first_..., and continue with osh_next_... while the result is >= 0. They never find a Linear
 * outside of the graph, because its value and weight are -1. */
static inline int osh_first_reader(const osh_matching *p, int value)
{
    return value < 0 ? -1 : p->readers[value];
}
static inline int osh_next_reader(const osh_matching *p, int linear)
{
    return p->linears[linear].next.reader;
}
static inline int osh_first_user(const osh_matching *p, int weight)
{
    return weight < 0 ? -1 : p->users[weight];
}
static inline int osh_next_user(const osh_matching *p, int linear)
{
    return p->linears[linear].next.user;
}
#endif
