/* simulate.h - simulates a run to count the bytes that its visits need. */
#ifndef OSH_SIMULATE_H
#define OSH_SIMULATE_H
#include "budget/budget.h"

/* Simulates all visits with the phases of the schedule (osh_phases) and with this tier of values.
 * Sets the peaks of the visits. ever [weights of the graph]: set to true for each weight that any
 * visit loads; may be NULL. */
osh_status osh_memory_simulate(osh_ctx *cx, osh_budget *p, osh_tier tier, bool *ever);
/* Simulates the final plan once more, and sets p->memory.places to the planned addresses of
 * blocks. */
osh_status osh_memory_place(osh_ctx *cx, osh_budget *p);
#endif
