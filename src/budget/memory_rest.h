/* memory_rest.h - computes the memory outside of visits. */
#ifndef OSH_MEMORY_REST_H
#define OSH_MEMORY_REST_H
#include "budget/budget.h"

/* True if every reader bypasses the page cache from the beginning; the base then includes the
 * aligned blocks that such reads need. If false, a large source may still bypass the page cache
 * when it is rounded without data: a stream reads into its bands, and each tensor that is rounded
 * in one piece is read by one thread. */
bool osh_memory_blocks_in_base(const osh_budget *p);
/* Chooses how tensors outside of visits are read and written, and computes their memory. ever
 * [weights]: true if some visit loads the weight. *least: memory without reading in advance, with
 * one band and no kept bands. */
osh_status osh_memory_rest(osh_ctx *cx, osh_budget *p, const bool *ever, const osh_limits *b,
                           osh_limits *least);
/* Returns the number of batches whose values are kept as tensors in the memory in which the run
 * computes, instead of being copied to the store. */
int64_t osh_memory_kept(const osh_budget *p, osh_tier tier);
#endif
