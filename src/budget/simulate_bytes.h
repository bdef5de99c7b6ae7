/* simulate_bytes.h - computes sizes and peaks of a simulated run. */
#ifndef OSH_SIMULATE_BYTES_H
#define OSH_SIMULATE_BYTES_H
#include "budget/sim.h"

/* Updates the peaks. device, host: bytes in addition to those of weights, their copies, statistics
 * and stored values. */
void osh_sim_note(osh_sim *s, int64_t device, int64_t host, int64_t values);
int64_t osh_sim_batch_tokens(const osh_sim *s, int64_t b);
/* Returns the bytes that value v of batch b needs in the store of values: on the disk, in host
 * memory, or in the GPU's arena. */
int64_t osh_sim_batch_rest(const osh_sim *s, int v, int64_t b);
/* With a GPU: returns the host bytes of the blocks of a value. */
int64_t osh_sim_list_rest(const osh_sim *s, int v);
/* Return the bytes of a value in the batches that are not kept in memory, and in the batches that
 * are kept. */
int64_t osh_sim_value_rest(const osh_sim *s, int v);
int64_t osh_sim_value_kept(const osh_sim *s, int v);
/* Returns the bytes of the value in the largest batch. */
int64_t osh_sim_batch_bytes(const osh_sim *s, int v);
size_t osh_sim_accum_scratch(const osh_sim *s, const char *name, int64_t I);
/* Returns the bytes of a sum, including those of the data that a solve computes from it. */
int64_t osh_sim_sum_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
/* Returns the bytes of osh_stat.part of a sum. 0: the sum has no such block. */
int64_t osh_sim_part_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
size_t *osh_sim_hook(const osh_sim *s, int value);
void osh_sim_enter(const osh_sim *s, int visit, osh_way way);
/* Returns the bytes of the values that are kept until an observer reads them a second time
 * (schedule/looks.h). */
int64_t osh_sim_looked_bytes(const osh_sim *s);
/* Returns the bytes of the F16 copy of a batch, which exists while the batch is written to the disk
 * or kept for a second look. */
size_t osh_sim_narrow_bytes(const osh_sim *s, const osh_q_args *a, int value);
/* Returns the bytes of the buffers of the threads that read values in advance. */
int64_t osh_sim_loaders_bytes(const osh_sim *s);
/* Simulates the second look: observers read the kept values again, sample by sample, before a
 * Linear is solved. Then drops the kept values. */
void osh_sim_look(osh_sim *s);
#endif
