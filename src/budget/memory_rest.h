/* memory_rest.h - computes the memory for work outside of visits. (A visit is the work on one
 * subgraph.) */
#ifndef OSH_MEMORY_REST_H
#define OSH_MEMORY_REST_H
#include "budget/budget.h"

/* Chooses how tensors are read and written outside of visits, and computes the memory for this
 * work.
 * ever [weights of the graph]: true if any visit loads the weight.
 * b: the budgets.
 * least: set to the smallest possible peaks. They are for one thread, without prefetch, and without
 * bands that are kept in memory. */
osh_status osh_memory_rest(osh_ctx *cx, osh_budget *p, const bool *ever, const osh_peaks *b,
                           osh_peaks *least);
/* Returns the number of batches whose values stay in memory as tensors. The values of all other
 * batches are copied to the activation store. */
int64_t osh_memory_kept(const osh_budget *p, osh_tier tier);
#endif
