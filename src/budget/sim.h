/* sim.h - declares the state of a simulated run, which counts bytes and computes nothing else.
 * simulate.c executes the steps of the run. Each of the files simulate_*.c works on a part of the
 * state. */
#ifndef OSH_SIM_H
#define OSH_SIM_H
#include "budget/bytes.h"
#include "budget/layout.h"
#include "schedule/visit.h"

typedef struct osh_sim_weights {
    bool *loaded;   // [weights] true if the weight is in memory
    /* With a GPU: true if host memory has a copy of the weight. The copy is freed when the weight
     * is solved or written. */
    bool *kept;     // [weights]
    bool *want;     // [weights] true if the current step loads the weight
    int64_t bytes;  // bytes of the loaded weights
    int64_t copies; // bytes of the copies in host memory (kept)
    bool began;     // true after the visit has loaded its first weights
} osh_sim_weights;

typedef struct osh_sim_values {
    bool *stored;   // [values] true if the activation store has the value
    bool *held;     // [values] true if the first n_kept batches have the value in memory
    /* True if the first n_kept batches pass the value to the current step without a copy. */
    bool *lent;     // [values]
    int64_t n_kept; // number of batches whose values stay in memory (osh_memory.n_kept)
    int64_t bytes;  // bytes of values in the activation store
    int64_t kept;   // bytes of the values that the first n_kept batches have in memory
    int64_t most;   // largest number that `bytes` has had
    /* Host bytes of values that are prefetched from the disk. With a GPU, this is the largest
     * number so far, because the blocks are not freed, but used again. */
    int64_t ahead;
} osh_sim_values;

typedef struct osh_sim_stats {
    bool *open[OSH_N_SUMS]; // [values] true while the sum of the value is collected
    bool *counts;   // [linears] true if the histograms of the Linear exist
    size_t *hook;   // own [values]: bytes that updating the statistics of the value needs
    int64_t bytes;  // bytes of all statistics
    int64_t parts;  // bytes of partial sums (member `part` of osh_stat); `bytes` includes them
    /* Bytes of the lists that statistics and solves need. They count as device bytes without a GPU,
     * and as host bytes with a GPU. */
    int64_t lists;
    int64_t ranges; // bytes of the visit's range observers; device or host bytes, as for `lists`
    /* With a GPU, for values that the host observes.
     * histograms: host bytes of their histograms.
     * copied: host bytes of a copied sample and of the observer's scratch. */
    int64_t histograms, copied;
} osh_sim_stats;

/* Values that are kept in memory or on the disk for the second pass of two-pass observers
 * (schedule/looks.h). */
typedef struct osh_sim_looks {
    bool *of;          // [values] true if the value is kept for the second pass
    /* now: bytes of the kept values.
     * next: bytes of kept values that the next pass adds. */
    int64_t now, next;
} osh_sim_looks;

typedef struct osh_sim {
    const osh_budget *p;
    osh_tier tier;
    osh_visit *to;   // view: the current visit; the simulation sets its peaks
    osh_peaks *peak; // view: the peaks that osh_sim_note raises now
    int index;      // index of the current visit
    const osh_range *r; // view: range of the current visit
    osh_layout *gpu;    // own: simulated blocks of GPU memory; NULL: the run computes on the host
    int n_threads;
    int64_t batch_tokens; // number of tokens of the largest batch
    int64_t counted_tokens; // largest number of tokens of a batch that count in statistics
    /* Largest sizes of the batches that run sample by sample (osh_exec_by_sample), and of the
     * batches that run as a whole. If n_tokens is 0, there are no such batches. */
    osh_exec_batch by_sample, whole;
    /* Host bytes for one sample of the widest value. They are in use while the sample is
     * compressed, and while it is copied between GPU and disk. */
    int64_t frame;
    bool *solved;   // [linears] true if the Linear is solved
    bool *flags;    // own: the arrays of bools of this struct and of its members, one after another
    osh_exec_marks marks; // own
    /* steps: own, the steps of the current visit. ahead: own, the steps of the next visit; NULL
     * without a GPU. */
    osh_steps *steps, *ahead;
    osh_sim_weights weights;
    osh_sim_values values;
    osh_sim_stats stats;
    osh_sim_looks looks;
} osh_sim;

/* ---- simulate_bytes.c: sizes and peaks ---- */

/* Raises the peaks of the current visit. device, host: bytes that only the caller knows. The
 * function itself adds the loaded weights, the copies of weights, the statistics and the values. */
void osh_sim_note(osh_sim *s, int64_t device, int64_t host);
/* Returns the number of bytes that value v of batch b has in the activation store. They may be on
 * the disk, in host memory, or in the GPU's arena. */
int64_t osh_sim_batch_rest(const osh_sim *s, int v, int64_t b);
/* If the run computes on a GPU and values are in host memory, each value has a list of its blocks.
 * Returns the host bytes of the list of value v. */
int64_t osh_sim_list_rest(const osh_sim *s, int v);
/* Each function returns a number of bytes of value v. osh_sim_value_rest counts the rows of v in
 * the activation store. osh_sim_value_kept counts the rows of v in the batches whose values stay in
 * memory. */
int64_t osh_sim_value_rest(const osh_sim *s, int v);
int64_t osh_sim_value_kept(const osh_sim *s, int v);
/* Returns the number of bytes that value v has in the largest batch. */
int64_t osh_sim_batch_bytes(const osh_sim *s, int v);
int64_t osh_sim_longest(const osh_sim *s); // number of tokens of the longest sample
/* True if a GPU copies only the rows of an expert for the statistics of the value. */
bool osh_sim_is_routed(const osh_sim *s, int value);
/* If only some rows of an expert count, returns the number of arena bytes of the lists of these
 * rows. If all rows count, returns 0. */
size_t osh_sim_listed_bytes(const osh_sim *s);
/* If only some rows count in the statistics of the value (the rows of an expert, or the tokens of
 * answers), these rows are copied. Returns the number of arena bytes of the copy and of its lists,
 * or 0 if there is no copy. */
size_t osh_sim_gathered_bytes(const osh_sim *s, int value);
/* Returns the number of bytes of scratch that `op` needs to add the largest batch to a statistic.
 * The statistic is of a value with I channels. With a GPU, the bytes are in the arena, otherwise in
 * host memory. */
size_t osh_sim_accum_scratch(const osh_sim *s, const osh_op *op, int64_t I);
/* Returns the number of bytes of the sum for the input of Linear l. Includes the data that a solve
 * computes from the sum. */
int64_t osh_sim_sum_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
/* Returns the number of bytes of the partial sum (member `part` of osh_stat), which is as large as
 * the sum. Returns 0 if there is no partial sum. */
int64_t osh_sim_part_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
/* Returns the number of bytes of the statistics that a measurement collects of `values` in range
 * r. */
int64_t osh_sim_measured_bytes(const osh_sim *s, const osh_range *r, const bool *values);
size_t *osh_sim_hook(const osh_sim *s, int value);
/* Returns the count to which the bytes of histograms of observers belong. */
int64_t *osh_sim_histograms(osh_sim *s);
/* Returns the number of bytes of the values that the visit keeps for the second pass of two-pass
 * observers (schedule/looks.h). */
int64_t osh_sim_looked_bytes(const osh_sim *s);
/* Returns the number of bytes of the F16 copy of n_tokens rows, which exists while the rows are
 * stored. Returns 0 if values for two-pass observers are not stored as F16. */
size_t osh_sim_narrow_bytes(const osh_sim *s, const osh_q_args *a, int value, int64_t n_tokens);
/* Returns the number of bytes of the buffers of the threads that prefetch values. */
int64_t osh_sim_loaders_bytes(const osh_sim *s);
/* Simulates the second pass of two-pass observers, in which the observers read the kept values
 * again, sample by sample. The pass takes place before a Linear is solved. Then counts the kept
 * values as freed. */
void osh_sim_look(osh_sim *s);
/* Returns the number of bytes of the statistics for the factors of fold f. groups: the groups of
 * samples (ops/stat.h) while statistics are collected, or {0} after the groups are merged. */
int64_t osh_sim_fold_bytes(const osh_sim *s, const osh_fold *f, const osh_groups *groups);
/* Sets *bytes to the bytes of scratch that a run needs to compute the factors of fold f. */
osh_status osh_sim_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_sim *s, const osh_fold *f);

/* ---- simulate_pass.c ---- */

/* Counts the bytes that are needed to run the step's nodes for all batches. Changes the values in
 * the activation store as the step does. */
osh_status osh_sim_pass(osh_ctx *cx, osh_sim *s, const osh_step *st);

/* ---- simulate_solve.c ---- */

/* Counts the host copy of a GPU's weight as freed. Does nothing if there is none. */
void osh_sim_drop_copy(osh_sim *s, int weight);
/* Counts the bytes of osh_run_solve. A call (schedule/windows.h) solves the Linears with the same
 * input and the same modifier together. The results are packed one after the other. */
osh_status osh_sim_solve(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st);
#endif
