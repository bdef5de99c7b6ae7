/* refuse.h - refuses budgets that cannot be kept, and enforces those that can. */
#ifndef OSH_REFUSE_H
#define OSH_REFUSE_H
#include "budget/budget.h"

/* Returns OSH_E_USAGE with the smallest possible budget. `outside` is the memory that is needed
 * outside of visits. */
osh_status osh_memory_refuse(osh_ctx *cx, const osh_budget *p, const osh_limits *b,
                             const osh_limits *outside);
/* True if --host-memory is enough for the passes before and after the run. o->others_host includes
 * OSH_ISA_NOISE_BYTES, because messages recommend it to another process; this process does not need
 * them. */
bool osh_others_fit(const osh_options *o);
/* Limits the context to the budgets from now on. */
void osh_memory_enforce(osh_ctx *cx, const osh_budget *p);
/* True if host memory of values is page-locked for copies to a GPU. */
bool osh_memory_pins(const osh_options *o);
#endif
