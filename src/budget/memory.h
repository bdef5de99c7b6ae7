/* memory.h - computes the bytes of memory, disk and transfers that a plan needs, and chooses how
 * the plan keeps its budgets.
 *
 * Bytes are those of osh_mem_gross. Device bytes are those of weights, Hessians, the current batch
 * and scratch; on the CPU back end they are a part of the host bytes. Host bytes are all anonymous
 * memory of the process. docs/explanation/memory.md has the model. */
#ifndef OSH_MEMORY_H
#define OSH_MEMORY_H
#include "budget/budget.h"

/* Sets p->memory: simulates every visit and chooses tier, prefetch and phases. Fails with
 * OSH_E_USAGE and the smallest possible budget if the budgets of the options cannot be kept. */
osh_status osh_plan_memory(osh_ctx *cx, osh_budget *p);
/* Sets the smallest budgets for the visits in p->memory, without the base: values in the slowest
 * tier and work in small pieces. */
osh_status osh_memory_least(osh_ctx *cx, osh_budget *p);
/* Returns the arena size on a GPU: the budget, or without a budget the prediction and a reserve,
 * because a resumed run has other gaps between its blocks. */
int64_t osh_memory_arena(const osh_budget *p);
/* Returns the most bytes that are planned for a GPU that has free_bytes. */
int64_t osh_memory_of_card(int64_t free_bytes);
/* Returns the host peak as osh_mem_used counts it. */
size_t osh_memory_counted(const osh_budget *p);
#endif
