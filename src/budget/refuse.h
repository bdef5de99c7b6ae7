/* refuse.h - refuses budgets that cannot be kept, and limits the allocations of the context to the
 * budgets. */
#ifndef OSH_REFUSE_H
#define OSH_REFUSE_H
#include "budget/budget.h"

/* Returns OSH_E_USAGE with a message that names the smallest possible budget. outside: smallest
 * peaks outside of visits. */
osh_status osh_memory_refuse(osh_ctx *cx, const osh_budget *p, const osh_peaks *b,
                             const osh_peaks *outside);
/* True if --host-memory is enough for the evaluations before and after the run. They need
 * o->others_host bytes without the addition of OSH_ISA_NOISE_BYTES. (o->others_host has this
 * addition for messages that recommend it for another process.) */
bool osh_others_fit(const osh_options *o);
/* Limits the allocations of the context to the budgets of the plan. */
void osh_memory_enforce(osh_ctx *cx, const osh_budget *p);
/* True if the host memory of values is page-locked, which makes copies to a GPU fast. */
bool osh_memory_pins(const osh_options *o);
#endif
