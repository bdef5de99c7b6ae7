/* memory.h - counts the bytes of memory, disk and transfers that a plan needs, and chooses how the
 * plan keeps its budgets.
 *
 * All numbers of bytes include the overhead of the allocator (osh_mem_gross). Device bytes count
 * weights, Hessians, the current batch and scratch. On the CPU back end, the device bytes are a
 * part of the host bytes. Host bytes count all anonymous memory of the process.
 * docs/explanation/memory.md describes how memory is counted. */
#ifndef OSH_MEMORY_H
#define OSH_MEMORY_H
#include "budget/budget.h"

/* Sets p->memory. Simulates every visit. Chooses the tier in which values are stored (GPU, host or
 * disk). Also chooses whether to prefetch, and the phases of each visit (osh_phases). Fails with
 * OSH_E_USAGE if the user's budgets cannot be kept. The message then names the smallest possible
 * budget. */
osh_status osh_plan_memory(osh_ctx *cx, osh_budget *p);
/* Sets p->memory.least to the smallest budgets with which the visits run. These numbers do not
 * include base_bytes. With these budgets, values are in the slowest tier, and Linears are solved in
 * small groups. */
osh_status osh_memory_least(osh_ctx *cx, osh_budget *p);
/* Sets *host to the highest number of host bytes that a visit of a schedule needs, without
 * base_bytes. Assumes that the visits run on the host, and that all values stay in memory. */
osh_status osh_memory_of_passes(osh_ctx *cx, int64_t *host, osh_budget *p);
/* Returns the number of bytes of a GPU's arena (the block of GPU memory from which the program
 * allocates). If there is a device budget, this number is the budget. If not, it is the predicted
 * bytes plus a reserve. A resumed run needs the reserve, because the gaps between its blocks are
 * not those of the plan. */
int64_t osh_memory_arena(const osh_budget *p);
/* Returns the number of bytes that a plan may use on a GPU with free_bytes bytes of free memory. */
int64_t osh_memory_of_gpu(int64_t free_bytes);
/* Returns the part of the predicted host peak that osh_mem_used counts. */
size_t osh_memory_counted(const osh_budget *p);
/* Limits the allocations of the context to the budgets of the plan. */
void osh_memory_enforce(osh_ctx *cx, const osh_budget *p);
#endif
