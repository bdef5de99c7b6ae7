/* memory.h - computes the bytes of memory, disk and transfers that a plan needs, and chooses how
 * the plan keeps its budgets.
 *
 * All bytes include the overhead of the allocator (osh_mem_gross). Device bytes belong to weights,
 * Hessians, the current batch and scratch; on the CPU back end they are a part of the host bytes.
 * Host bytes are all anonymous memory of the process. docs/explanation/memory.md has the model. */
#ifndef OSH_MEMORY_H
#define OSH_MEMORY_H
#include "budget/budget.h"

/* Sets p->memory. Simulates every visit, and chooses the tier (memory of values: GPU, host or
 * disk), prefetch and phases. Fails with OSH_E_USAGE and the smallest possible budget if the
 * options' budgets cannot be kept. */
osh_status osh_plan_memory(osh_ctx *cx, osh_budget *p);
/* Sets p->memory.least to the smallest budgets for the visits, without base_bytes: values are in
 * the slowest tier, and Linears are solved in small groups. */
osh_status osh_memory_least(osh_ctx *cx, osh_budget *p);
/* Sets *host to the host peak of the visits of a schedule, without base_bytes, if the host runs
 * them and all values stay in memory. */
osh_status osh_memory_of_passes(osh_ctx *cx, int64_t *host, osh_budget *p);
/* Returns the bytes of a GPU's arena: the device budget, or without a budget the predicted bytes
 * plus a reserve. (The arena is the one block of GPU memory from which the program allocates.) The
 * reserve is for a resumed run, which has other gaps between its blocks. */
int64_t osh_memory_arena(const osh_budget *p);
/* Returns the bytes that a plan may use if free_bytes are free on a GPU. */
int64_t osh_memory_of_gpu(int64_t free_bytes);
/* Returns the host peak without the bytes that osh_mem_used does not count. */
size_t osh_memory_counted(const osh_budget *p);
#endif
