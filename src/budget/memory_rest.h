/* memory_rest.h - computes the memory outside of visits. */
#ifndef OSH_MEMORY_REST_H
#define OSH_MEMORY_REST_H
#include "budget/budget.h"

/* True if every reader bypasses the page cache from the beginning, so that the base has the blocks
 * for it. If it is false, and a large source is read past the page cache without data, a stream has
 * bands for it, and one thread reads each tensor that is rounded in one piece. */
bool osh_memory_blocks_in_base(const osh_budget *p);
/* Chooses how tensors outside of visits are read and written, and computes their memory. ever
 * [weights]: true if some visit loads it. *least: memory without reading ahead, with one band and
 * no kept bands. */
osh_status osh_memory_rest(osh_ctx *cx, osh_budget *p, const bool *ever, const osh_limits *b,
                           osh_limits *least);
/* Returns the number of batches whose values stay tensors in the memory in which the run
 * computes. */
int64_t osh_memory_kept(const osh_budget *p, osh_tier tier);
#endif
