/* base_bytes.h - computes the host memory of the process outside of visits. (A visit is the work on
 * one subgraph.) */
#ifndef OSH_BASE_BYTES_H
#define OSH_BASE_BYTES_H
#include "budget/budget.h"

/* Sets p->memory.uncounted and p->memory.base_bytes. All ranks get the same numbers. */
osh_status osh_base_bytes(osh_ctx *cx, osh_budget *p);
/* True if all reads bypass the page cache. Each read then needs an aligned block. base_bytes
 * includes these blocks (osh_base_blocks bytes).
 * If false, reads bypass the page cache only if the source is large and is rounded without data.
 * In this case, a stream reads into its bands, without an aligned block. Whole tensors are read by
 * one thread. It needs one aligned block, which memory_rest.c counts. */
bool osh_base_has_blocks(const osh_budget *p);
int64_t osh_base_blocks(void);
size_t osh_base_lists(void); // returns an upper bound of the bytes that lists have in base_bytes
#endif
