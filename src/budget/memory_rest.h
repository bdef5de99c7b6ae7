/* memory_rest.h - computes the memory for work outside of visits. (A visit is the work on one
 * subgraph.) */
#ifndef OSH_MEMORY_REST_H
#define OSH_MEMORY_REST_H
#include "budget/budget.h"

/* Sets p->memory.uncounted and p->memory.base_bytes. All ranks get the same numbers. */
osh_status osh_base_bytes(osh_ctx *cx, osh_budget *p);
/* Returns by how many bytes a host budget increases base_bytes. These bytes are aligned blocks for
 * reading. */
int64_t osh_base_more(const osh_budget *p);
/* Sets *peak to the memory that tuning needs, without osh_memory.base_bytes. Sets it to 0 if the
 * run does not tune. */
osh_status osh_tuning_bytes(osh_ctx *cx, osh_peaks *peak, const osh_budget *p);
/* Chooses how tensors are read and written outside of visits, and computes the memory for this
 * work.
 * b: the budgets.
 * least: set to the smallest possible peaks: those of one thread, without prefetch, and without
 * bands that are kept in memory. */
osh_status osh_memory_rest(osh_ctx *cx, osh_budget *p, const osh_peaks *b, osh_peaks *least);
/* Returns the number of batches whose values stay in memory as tensors. The values of all other
 * batches are copied to the activation store. */
int64_t osh_memory_kept(const osh_budget *p, osh_tier tier);
#endif
