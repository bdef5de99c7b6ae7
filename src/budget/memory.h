/* memory.h - how many bytes of memory, disk and transfer a plan takes, and how the plan is fitted
 * into budgets.
 *
 * Bytes are those of osh_mem_gross. Device: weights, Hessians, the current batch, scratch; on the
 * CPU back end it is a part of the host memory. Host: all anonymous memory of the process.
 * docs/explanation/memory.md has the model. */
#ifndef OSH_MEMORY_H
#define OSH_MEMORY_H
#include "budget/budget.h"

/* Fills p->memory: simulates every visit and chooses tier, prefetch and phases. Fails with
 * OSH_E_USAGE and the smallest sufficient budget if the budgets of the options cannot be kept. */
osh_status osh_plan_memory(osh_ctx *cx, osh_budget *p);
/* Fills in the smallest budgets in p->memory for the visits, without the base: everything cold and
 * in small pieces. */
osh_status osh_memory_least(osh_ctx *cx, osh_budget *p);
/* Returns the arena size on a GPU: the budget, or without one the prediction and a reserve, since a
 * resumed run has other gaps between its blocks. */
int64_t osh_memory_arena(const osh_budget *p);
/* Most bytes that are planned for a GPU with free_bytes. */
int64_t osh_memory_of_card(int64_t free_bytes);
/* Returns the host peak as osh_mem_used counts it. */
size_t osh_memory_counted(const osh_budget *p);
#endif
