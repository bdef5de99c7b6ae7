/* refuse.h - refuses budgets that cannot be kept. */
#ifndef OSH_REFUSE_H
#define OSH_REFUSE_H
#include "budget/budget.h"

/* Returns OSH_E_USAGE with a message that names the smallest possible budget. outside: smallest
 * peaks outside of visits. */
osh_status osh_memory_refuse(osh_ctx *cx, const osh_budget *p, const osh_peaks *b,
                             const osh_peaks *outside);
/* True if --host-memory is enough for the passes before and after the run. o->others_host is the
 * number of bytes that the passes need, plus OSH_ISA_NOISE_BYTES. (Only messages need the added
 * bytes: they recommend o->others_host for another process, which may need more than this one.) */
bool osh_others_fit(const osh_options *o);
#endif
