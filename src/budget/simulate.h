/* simulate.h - simulates a run to count the bytes that its visits need. */
#ifndef OSH_SIMULATE_H
#define OSH_SIMULATE_H
#include "budget/budget.h"

/* Simulates all visits with the phases of the schedule (osh_phases) and the tier of values in
 * p->memory. Sets the peaks of the visits, and the elements of p->memory.ever. *places (own): set
 * to the planned addresses of blocks; `places` may be NULL. */
osh_status osh_memory_simulate(osh_ctx *cx, osh_budget *p, osh_places **places);
/* Returns the number of bytes of the buffers for the packed tensors of Linear l. */
int64_t osh_memory_pack_bytes(const osh_budget *p, const osh_linear *l);
/* Returns the number of bytes that the modifier's function `compress` needs, including the pruner
 * that runs before it. Does not change the results in `jobs`. *device: on entry the limit for the
 * GPU's memory, on return the number of bytes in it. If `device` is NULL, all memory is host
 * memory. */
int64_t osh_memory_compress_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                                  const osh_linear *lead, int n_threads, size_t *device);
#endif
