/* lookup.h - finds the Linears of a part of the model without searching all of them: a model with
 * experts has tens of thousands of Linears, and each range, batch or value needs lookups. */
#ifndef OSH_LOOKUP_H
#define OSH_LOOKUP_H
#include "match/matching.h"

/* A span: the Linears with indices [first, end) */
typedef struct osh_span { int first, end; } osh_span;

osh_span osh_linears_of_nodes(const osh_matching *p, int node, int n_nodes);

/* Iterate over the Linears that read a value, or that use a graph weight, in ascending order: start
 * with osh_first_..., continue with osh_next_... while the result is >= 0. A Linear outside of the
 * graph has value and weight -1, and is never found. */
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
