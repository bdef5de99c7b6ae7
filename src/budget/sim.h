/* sim.h - the state of a simulated run, which counts bytes and computes nothing else. simulate.c
 * executes the steps. Each file simulate_*.c works on a part of the state. */
#ifndef OSH_SIM_H
#define OSH_SIM_H
#include "budget/bytes.h"
#include "budget/layout.h"
#include "schedule/visit.h"

typedef struct osh_sim_weights {
    bool *loaded;   // own [weights]: true if the weight is in memory
    bool *ever;     // own [weights]: true if some visit loads the weight
    /* With a GPU: true if host memory has a copy of the weight. The copy exists until the weight is
     * written or solved. */
    bool *kept;     // own [weights]
    bool *want;     // own [weights]: true for weights that the current step loads
    int64_t bytes;  // bytes of the loaded weights
    int64_t copies; // bytes of the host copies for which `kept` is true
    bool began;     // true after the visit has loaded its first weights
} osh_sim_weights;

typedef struct osh_sim_values {
    bool *stored;   // own [values]: true if the activation store has the value
    bool *held; // own [values]: true if memory has the value for the first n_kept batches
    /* True if the current step reads the value of those batches without a copy. */
    bool *lent;     // own [values]
    int64_t n_kept; // number of batches whose values stay in memory (osh_memory.n_kept)
    int64_t bytes;  // bytes of values in the activation store
    int64_t kept;   // bytes of values of the first n_kept batches
    int64_t most;   // largest number in `bytes` so far
    /* Host bytes of values that are prefetched from the disk. With a GPU it is the largest number
     * so far, because the blocks are not freed but used again. */
    int64_t ahead;
} osh_sim_values;

typedef struct osh_sim_stats {
    bool *open[OSH_N_SUMS]; // own [values]: true if the sum of the value is being collected
    bool *counts;   // own [linears]: true if the histograms of the Linear exist
    size_t *hook;   // own [values]: bytes for updating the statistics of the value
    int64_t bytes;  // bytes of the statistics
    int64_t parts;  // bytes of partial sums (member `part` of osh_stat); included in `bytes`
    /* Bytes of the lists that statistics and solves need. They count as device bytes on the CPU,
     * and as host bytes with a GPU. */
    int64_t lists;
    int64_t ranges; // bytes of the visit's range observers; device or host like `lists`
} osh_sim_stats;

/* Values that are kept for the second pass of two-pass observers (schedule/looks.h) */
typedef struct osh_sim_looks {
    bool *of;          // own [values]: true if the value is kept for the second pass
    /* now: bytes of the kept values, in memory or on the disk.
     * next: bytes of kept values that the next pass adds. */
    int64_t now, next;
} osh_sim_looks;

typedef struct osh_sim {
    const osh_budget *p;
    osh_tier tier;
    osh_visit *to;   // view: the current visit, whose peaks are the results
    osh_peaks *peak; // view: the peaks that osh_sim_note raises
    int index;      // index of the current visit
    const osh_range *r; // view: range of the current visit
    osh_layout *gpu;    // own: blocks in the GPU's memory; NULL: the run computes on the host
    int n_threads;
    int64_t batch_tokens; // number of tokens of the largest batch
    /* Largest sizes of a batch: of those that run sample by sample (osh_exec_by_sample), and of
     * those that run as a whole. If n_tokens is 0, there are no such batches. */
    osh_exec_batch by_sample, whole;
    /* Host bytes for one sample of the widest value while it is compressed, or copied between GPU
     * and disk. */
    int64_t frame;
    bool *solved;   // own [linears]: true if the Linear is solved
    osh_exec_marks marks; // own
    /* Own. steps: the steps of the current visit. ahead: with a GPU, the steps of the next
     * visit. */
    osh_steps *steps, *ahead;
    osh_sim_weights weights;
    osh_sim_values values;
    osh_sim_stats stats;
    osh_sim_looks looks;
} osh_sim;

/* ---- simulate_bytes.c: sizes and peaks ---- */

/* Raises the peaks of the current visit.
 * device, host: bytes without the loaded weights, the copies of weights, the statistics and the
 * values of kept batches, which the function adds.
 * values: bytes of values in the activation store. */
void osh_sim_note(osh_sim *s, int64_t device, int64_t host, int64_t values);
/* Returns the bytes of value v of batch b in the activation store: on the disk, in host memory, or
 * in the GPU's arena. */
int64_t osh_sim_batch_rest(const osh_sim *s, int v, int64_t b);
/* With values of a GPU in host memory, returns the host bytes of the list of a value's blocks. */
int64_t osh_sim_list_rest(const osh_sim *s, int v);
/* osh_sim_value_rest returns the bytes of a value in the activation store: of the batches that
 * are not kept in memory. osh_sim_value_kept returns its bytes for the batches that are kept in
 * memory. */
int64_t osh_sim_value_rest(const osh_sim *s, int v);
int64_t osh_sim_value_kept(const osh_sim *s, int v);
/* Returns the bytes of value v for the largest batch. */
int64_t osh_sim_batch_bytes(const osh_sim *s, int v);
/* Returns the arena bytes of the rows that are copied together for the statistics of an expert's
 * value, or 0. */
size_t osh_sim_gathered_bytes(const osh_sim *s, int value);
size_t osh_sim_accum_scratch(const osh_sim *s, const osh_op *op, int64_t I);
/* Returns the bytes of a sum, plus the bytes of the data that a solve computes from the sum. */
int64_t osh_sim_sum_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
/* Returns the bytes of the partial sum (member `part` of osh_stat). It is as large as the sum.
 * Returns 0 if the sum has no partial sum. */
int64_t osh_sim_part_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
size_t *osh_sim_hook(const osh_sim *s, int value);
/* Returns the bytes of the values that the visit keeps for the second pass of two-pass observers
 * (schedule/looks.h). */
int64_t osh_sim_looked_bytes(const osh_sim *s);
/* Returns the bytes of the F16 copy of a batch, which exists while the batch is stored for two-pass
 * observers. Returns 0 if values are not stored as F16. */
size_t osh_sim_narrow_bytes(const osh_sim *s, const osh_q_args *a, int value);
/* Returns the bytes of the buffers of the threads that prefetch values. */
int64_t osh_sim_loaders_bytes(const osh_sim *s);
/* Simulates the second pass of two-pass observers. Before a Linear is solved, they read the kept
 * values again, sample by sample. Then marks the values as freed. */
void osh_sim_look(osh_sim *s);
/* Returns the bytes of the statistics for the factors of a fold. groups: the groups of samples
 * (ops/stat.h) while the statistics are collected; {0} after the groups are merged. */
int64_t osh_sim_fold_bytes(const osh_sim *s, const osh_fold *f, const osh_groups *groups);
/* Sets *bytes to the bytes of memory for computing the factors of a fold. */
osh_status osh_sim_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_sim *s, const osh_fold *f);

/* ---- simulate_weights.c: weights, and the host copies of a GPU's weights ---- */

int64_t osh_sim_weight_bytes(const osh_sim *s, int w);
void osh_sim_drop_copy(osh_sim *s, int weight);
/* Frees the host copies of weights, except the copies that a later solve needs. The run does the
 * same in osh_engine_drop_copies (run/loading.c). */
void osh_sim_drop_copies(osh_sim *s);
/* Counts the memory for reading a solved weight back from the output, as packed tensors and as
 * codes. */
void osh_sim_note_reload(osh_sim *s, const osh_linear *l);
osh_status osh_sim_load(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st);

/* ---- simulate_solve.c ---- */

/* Counts the bytes of osh_run_solve. One call solves the Linears that have the same input and
 * modifier, and packs their results one after the other. */
osh_status osh_sim_solve(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st);
#endif
