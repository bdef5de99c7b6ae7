/* simulate_solve.h - solves of a simulated run. */
#ifndef OSH_SIMULATE_SOLVE_H
#define OSH_SIMULATE_SOLVE_H
#include "budget/sim.h"

/* Solves as osh_run_solve does: Linears with one input and one modifier in one call, packed one
 * after the other. */
osh_status osh_sim_solve(osh_ctx *cx, void *user, const osh_range *r, const bool *values,
                         bool keep);

/* Buffers that a Linear is packed into. */
int64_t osh_memory_pack_bytes(const osh_budget *p, const osh_linear *l);
/* Returns the memory of a modifier's compress, with that of the pruner before it; jobs are not
 * changed. *device: part in a GPU's arena; NULL: all is host memory. */
int64_t osh_memory_compress_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                                  const osh_linear *lead, int n_threads, size_t *device);
#endif
