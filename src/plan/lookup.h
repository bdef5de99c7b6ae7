/* lookup.h - the Linears of a part of the model, without a look at all the others: a model of experts has tens of
 * thousands, and what is done for a range, a batch or a value is done that often. */
#ifndef OSH_LOOKUP_H
#define OSH_LOOKUP_H
#include "plan/plan.h"

typedef struct osh_span { int first, end; } osh_span; // linears [first, end)

osh_span osh_linears_of_nodes(const osh_plan *p, int node, int n_nodes);
osh_span osh_linears_of(const osh_plan *p, int subgraph, int n_subgraphs);
int osh_subgraph_of(const osh_plan *p, int node); // -1: none

/* Those that read a value, or use a weight of the graph, in ascending order: i = first, i >= 0, i = next. */
static inline int osh_first_reader(const osh_plan *p, int value) { return p->readers[value]; }
static inline int osh_next_reader(const osh_plan *p, int linear) { return p->linears[linear].next_reader; }
static inline int osh_first_user(const osh_plan *p, int weight) { return p->users[weight]; }
static inline int osh_next_user(const osh_plan *p, int linear) { return p->linears[linear].next_user; }
#endif
