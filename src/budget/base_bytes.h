/* base_bytes.h - computes the host memory of the process outside of visits. (A visit is the work on
 * one subgraph.) */
#ifndef OSH_BASE_BYTES_H
#define OSH_BASE_BYTES_H
#include "budget/budget.h"

/* Sets p->memory.uncounted and p->memory.base_bytes. All ranks get the same numbers. */
osh_status osh_base_bytes(osh_ctx *cx, osh_budget *p);
/* True if all reads bypass the page cache. Each read then needs an aligned block. base_bytes
 * includes these blocks (osh_base_blocks bytes).
 * If false, only one kind of source may bypass the page cache: a large one that is rounded without
 * data. A stream then reads into its bands. The thread that reads whole tensors needs one aligned
 * block, which memory_rest.c counts. */
bool osh_base_has_blocks(const osh_budget *p);
int64_t osh_base_blocks(void);
size_t osh_base_lists(void); // returns an upper bound of the bytes that lists have in base_bytes
#endif
