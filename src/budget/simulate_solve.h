/* simulate_solve.h - simulates the solves of a run. */
#ifndef OSH_SIMULATE_SOLVE_H
#define OSH_SIMULATE_SOLVE_H
#include "budget/sim.h"

/* Counts the bytes of osh_run_solve. Linears with the same input and modifier are solved in one
 * call, and their results are packed one after the other. */
osh_status osh_sim_solve(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st);

/* Returns the bytes of the buffers for the packed tensors of a Linear. */
int64_t osh_memory_pack_bytes(const osh_budget *p, const osh_linear *l);
/* Returns the memory for the modifier's function `compress`, and for the pruner before it. Does not
 * change the results in jobs. *device: set to the bytes in the GPU's memory; NULL: all memory is
 * host memory. */
int64_t osh_memory_compress_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                                  const osh_linear *lead, int n_threads, size_t *device);
#endif
