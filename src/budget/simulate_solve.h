/* simulate_solve.h - declares functions that compute the bytes of solves. Other files call them. */
#ifndef OSH_SIMULATE_SOLVE_H
#define OSH_SIMULATE_SOLVE_H
#include "budget/budget.h"

/* Returns the number of bytes of the buffers for the packed tensors of Linear l. */
int64_t osh_memory_pack_bytes(const osh_budget *p, const osh_linear *l);
/* Returns the number of bytes that the modifier's function `compress` needs, including the pruner
 * that runs before it. Does not change the results in `jobs`. *device: on entry the limit for the
 * GPU's memory, on return the needed bytes of GPU memory. If `device` is NULL, all memory is host
 * memory. */
int64_t osh_memory_compress_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                                  const osh_linear *lead, int n_threads, size_t *device);
#endif
