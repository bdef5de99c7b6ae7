/* base_bytes.h - computes the host memory of the process outside of visits. */
#ifndef OSH_BASE_BYTES_H
#define OSH_BASE_BYTES_H
#include "budget/budget.h"

/* Sets uncounted and base_bytes of p->memory, the same on all ranks. */
osh_status osh_base_bytes(osh_ctx *cx, osh_budget *p);
/* True if all reads bypass the page cache; base_bytes then includes osh_base_blocks, the aligned
 * blocks that the reads need. If false, only a large source that is rounded without data may bypass
 * the page cache. A stream then reads into its bands, and memory_rest.c counts the block of the
 * thread that reads whole tensors. */
bool osh_base_has_blocks(const osh_budget *p);
int64_t osh_base_blocks(void);
size_t osh_base_lists(void); // upper bound of the bytes of lists in base_bytes
#endif
