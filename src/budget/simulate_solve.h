/* simulate_solve.h - computes sizes of solves that also other files need. */
#ifndef OSH_SIMULATE_SOLVE_H
#define OSH_SIMULATE_SOLVE_H
#include "budget/budget.h"

/* Returns the bytes of the buffers for the packed tensors of a Linear. */
int64_t osh_memory_pack_bytes(const osh_budget *p, const osh_linear *l);
/* Returns the bytes for the modifier's function `compress`, and for the pruner that runs before it.
 * Does not change the results in jobs. *device: on entry, the limit; set to the bytes in the GPU's
 * memory. If device is NULL, all memory is host memory. */
int64_t osh_memory_compress_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                                  const osh_linear *lead, int n_threads, size_t *device);
#endif
