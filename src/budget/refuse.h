/* refuse.h - refuses budgets that cannot be kept, and makes the context enforce budgets. */
#ifndef OSH_REFUSE_H
#define OSH_REFUSE_H
#include "budget/budget.h"

/* Returns OSH_E_USAGE with a message that names the smallest possible budget. `outside`: memory
 * that is needed outside of visits. */
osh_status osh_memory_refuse(osh_ctx *cx, const osh_budget *p, const osh_peaks *b,
                             const osh_peaks *outside);
/* True if --host-memory is enough for evaluations before and after the run. o->others_host includes
 * OSH_ISA_NOISE_BYTES, which only a recommendation for another process needs. This function
 * subtracts these bytes. */
bool osh_others_fit(const osh_options *o);
/* Limits the allocations of the context to the budgets. */
void osh_memory_enforce(osh_ctx *cx, const osh_budget *p);
/* True if host memory of values is page-locked, so that copies to a GPU are fast. */
bool osh_memory_pins(const osh_options *o);
#endif
