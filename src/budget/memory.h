/* memory.h - computes the bytes of memory, disk and transfers that a plan needs, and chooses how
 * the plan keeps its budgets.
 *
 * All bytes include the overhead of the allocator (osh_mem_gross). Device bytes belong to weights,
 * Hessians, the current batch and scratch; on the CPU back end they are a part of the host bytes.
 * Host bytes are all anonymous memory of the process. docs/explanation/memory.md has the model. */
#ifndef OSH_MEMORY_H
#define OSH_MEMORY_H
#include "budget/budget.h"

/* Sets p->memory: simulates every visit and chooses the tier (the memory for values: GPU, host or
 * disk), prefetch and phases. Fails with OSH_E_USAGE and the smallest possible budget if the
 * budgets of the options cannot be kept. */
osh_status osh_plan_memory(osh_ctx *cx, osh_budget *p);
/* Sets the smallest budgets for the visits in p->memory, without the base: they assume values in
 * the slowest tier and work in small pieces. */
osh_status osh_memory_least(osh_ctx *cx, osh_budget *p);
/* Returns the size of the arena on a GPU: the budget, or without a budget the prediction and a
 * reserve. A resumed run needs the reserve, because the gaps between its blocks are different. */
int64_t osh_memory_arena(const osh_budget *p);
/* Returns how many of the free_bytes of a GPU a plan may use. */
int64_t osh_memory_of_card(int64_t free_bytes);
/* Returns the host peak as osh_mem_used counts it. */
size_t osh_memory_counted(const osh_budget *p);
#endif
