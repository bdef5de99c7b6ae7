/* sim.h - the state of a simulated run. simulate.c runs the simulation. Each file simulate_*.c
 * updates a part of the state. */
#ifndef OSH_SIM_H
#define OSH_SIM_H
#include "budget/bytes.h"
#include "budget/layout.h"
#include "schedule/visit.h"

typedef struct osh_sim_weights {
    bool *loaded;   // own [weights]: true if in memory
    bool *ever;     // own [weights]: true if some visit loads the weight
    /* With a GPU: true if host memory has a copy of the weight, until the weight is written or
     * solved. */
    bool *kept;     // own [weights]
    bool *want;     // own [weights]: scratch, true for weights that a step loads
    int64_t bytes;  // bytes of the loaded weights
    int64_t copies; // bytes of the host copies for which `kept` is true
    bool began;     // true after the visit has loaded its first weights
} osh_sim_weights;

typedef struct osh_sim_values {
    bool *stored;   // own [values]: true if in the store
    bool *held; // own [values]: true if the first n_kept batches of the value are kept in memory
    /* True if the current step uses the store's tensor of the value without a copy. */
    bool *lent;     // own [values]
    int64_t n_kept; // number of batches whose values are kept in memory (osh_memory.n_kept)
    int64_t bytes;  // bytes of values in the store
    int64_t kept;   // bytes of values kept in memory
    int64_t most;   // largest number of bytes in `bytes` so far
    /* Host bytes of values that are prefetched from the disk; with a GPU the largest number so far,
     * because blocks are reused and not freed. */
    int64_t ahead;
} osh_sim_values;

typedef struct osh_sim_stats {
    bool *open[OSH_N_SUMS]; // own [values]: true if the sum of the value is being collected
    bool *counts;   // own [linears]: true if the histograms of the Linear exist
    size_t *hook;   // own [values]: bytes that updating the statistics of the value needs
    int64_t bytes;  // bytes of the statistics
    int64_t parts;  // bytes of partial sums (member `part` of osh_stat); included in `bytes`
    /* Bytes of lists (by Linear, by value) that statistics and solves need: device bytes on the
     * CPU, host bytes with a GPU. */
    int64_t lists;
    int64_t ranges; // bytes of the lists for ranges of the visit; device or host like `lists`
} osh_sim_stats;

/* Values that are kept for the second pass of two-pass observers (schedule/looks.h) */
typedef struct osh_sim_looks {
    bool *of;          // own [values]: true if the value is kept
    /* Bytes of these values, in memory or on the disk: now; that the next pass adds. */
    int64_t now, next;
} osh_sim_looks;

typedef struct osh_sim {
    const osh_budget *p;
    osh_tier tier;
    osh_visit *to;   // view: the current visit; its peaks are results
    osh_peaks *peak; // view: the peaks of `to` that osh_sim_note raises
    int index;      // index of the current visit
    const osh_range *r; // view: range of the current visit
    osh_layout *gpu;    // own: blocks in the GPU's memory; NULL: the run computes on the host
    int n_threads;
    int64_t batch_tokens; // number of tokens of the largest batch
    /* Largest sizes over the batches that run sample by sample (osh_exec_by_sample), and over the
     * batches that run as a whole; n_tokens 0: no such batch. */
    osh_exec_batch by_sample, whole;
    /* Host bytes for compressing a sample of the widest value, or for copying it between GPU and
     * disk. */
    int64_t frame;
    bool *solved;   // own [linears]: true if the Linear is solved
    osh_exec_marks marks; // own
    osh_sim_weights weights;
    osh_sim_values values;
    osh_sim_stats stats;
    osh_sim_looks looks;
} osh_sim;
#endif
