/* memory_rest.h - computes the memory that the run needs outside of visits. */
#ifndef OSH_MEMORY_REST_H
#define OSH_MEMORY_REST_H
#include "budget/budget.h"

/* Chooses how tensors outside of visits are read and written, and computes their memory. ever
 * [weights of the graph]: true if some visit loads the weight. *least: smallest memory, without
 * prefetch, with one band, and with no kept bands. */
osh_status osh_memory_rest(osh_ctx *cx, osh_budget *p, const bool *ever, const osh_peaks *b,
                           osh_peaks *least);
/* Returns the number of batches whose values stay as tensors in memory and are not copied to the
 * store. */
int64_t osh_memory_kept(const osh_budget *p, osh_tier tier);
#endif
