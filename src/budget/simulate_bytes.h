/* simulate_bytes.h - computes sizes and peaks of a simulated run. */
#ifndef OSH_SIMULATE_BYTES_H
#define OSH_SIMULATE_BYTES_H
#include "budget/sim.h"

/* Raises the peaks of the current visit. device, host: bytes of everything except the
 * loaded weights, the copies of weights, the statistics and the kept values, which the function
 * adds. values: bytes in the store. */
void osh_sim_note(osh_sim *s, int64_t device, int64_t host, int64_t values);
int64_t osh_sim_batch_tokens(const osh_sim *s, int64_t b);
/* Returns the bytes of value v of batch b in the store: on the disk, in host memory, or in the
 * GPU's arena. */
int64_t osh_sim_batch_rest(const osh_sim *s, int v, int64_t b);
/* Returns the host bytes of the list of a value's blocks if a GPU keeps values in host memory. */
int64_t osh_sim_list_rest(const osh_sim *s, int v);
/* osh_sim_value_rest returns the bytes of a value in the store, for the batches that are not kept
 * in memory. osh_sim_value_kept returns the bytes for the kept batches. */
int64_t osh_sim_value_rest(const osh_sim *s, int v);
int64_t osh_sim_value_kept(const osh_sim *s, int v);
/* Returns the bytes of the value in the largest batch. */
int64_t osh_sim_batch_bytes(const osh_sim *s, int v);
size_t osh_sim_accum_scratch(const osh_sim *s, const osh_op *op, int64_t I);
/* Returns the bytes of a sum and of the data that a solve computes from the sum. */
int64_t osh_sim_sum_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
/* Returns the bytes of the partial sum (member `part` of osh_stat), which is as large as the sum; 0
 * if the sum has none. */
int64_t osh_sim_part_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
size_t *osh_sim_hook(const osh_sim *s, int value);
/* Returns the bytes of the values that the visit keeps for the second pass of two-pass observers
 * (schedule/looks.h). */
int64_t osh_sim_looked_bytes(const osh_sim *s);
/* Returns the bytes of the F16 copy of a batch, which exists while the batch is stored for two-pass
 * observers; 0 if values are not stored as F16. */
size_t osh_sim_narrow_bytes(const osh_sim *s, const osh_q_args *a, int value);
/* Returns the bytes of the buffers of the threads that prefetch values. */
int64_t osh_sim_loaders_bytes(const osh_sim *s);
/* Simulates the second pass of two-pass observers: before a Linear is solved, they read the kept
 * values again, sample by sample. Marks the values as freed. */
void osh_sim_look(osh_sim *s);
#endif
