/* sim.h - the state of a simulated run. simulate.c runs the simulation. Each file simulate_*.c
 * updates a part of the state. */
#ifndef OSH_SIM_H
#define OSH_SIM_H
#include "budget/bytes.h"
#include "budget/layout.h"
#include "schedule/visit.h"

typedef struct osh_sim {
    const osh_budget *p;
    osh_tier tier;
    osh_visit *to;  // view: the current visit; its peaks are results
    const osh_range *r; // view: range of the current visit
    osh_layout *gpu;    // own: blocks in the GPU's memory; NULL: the run computes on the host
    int n_threads;
    int64_t batch_tokens; // number of tokens of the largest batch
    osh_exec_batch by_sample, whole; // largest sizes over the batches that run sample by sample
                                     // (osh_exec_by_sample), and over the batches that run as a
                                     // whole; n_tokens 0: no such batch
    int64_t lists;  // bytes of lists (by Linear, by value) that statistics and solves need: device
                    // bytes on the CPU, host bytes with a GPU
    int64_t ranges; // bytes of the lists for ranges of the visit; device or host like `lists`
    int64_t frame;  // host bytes for compressing a sample of the widest value, or for copying it
                    // between GPU and disk
    bool *loaded, *stored, *held; // own. loaded [weights]: true if in memory. stored [values]: true
                                  // if in the store. held [values]: true if the first n_kept
                                  // batches of the value are kept in memory
    bool *open[OSH_N_SUMS]; // own [values]: true if the sum of the value is being collected
    int64_t parts;  // bytes of partial sums (member `part` of osh_stat); included in `stats`
    bool *counts;   // own [linears]: true if the histograms of the Linear exist
    size_t *hook;   // own [values]: bytes that updating the statistics of the value needs
    bool *ever;     // own [weights]: true if some visit loads the weight
    bool *kept; // own [weights], with a GPU: true if host memory has a copy of the weight, until
                // the weight is written or solved
    bool *solved;   // own [linears]: true if the Linear is solved
    int64_t copies; // bytes of the host copies for which `kept` is true
    int64_t weights, stats, values, kept_values; // current bytes: of loaded weights; of statistics;
                                                 // of values in the store; of values kept in memory
    int64_t n_kept; // number of batches whose values are kept in memory (osh_memory.n_kept)
    bool *looks;    // own [values]: true if the value is kept for the second pass of two-pass
                    // observers (schedule/looks.h)
    int64_t looked, to_look; // bytes of the values for which `looks` is true, in memory or on the
                             // disk: now; that the next pass adds
    int64_t most_values; // largest number of bytes in `values` so far
    int64_t ahead;  // host bytes of values that are prefetched from the disk; with a GPU the
                    // largest number so far, because blocks are reused and not freed
    bool *lent;     // own [values]: true if the current step uses the store's tensor of the value
                    // without a copy
    bool began;     // true after the visit has loaded its first weights
    int index;      // index of the current visit
    bool *want;     // own [weights]: scratch, true for weights that a step loads
    osh_exec_marks marks; // own
} osh_sim;
#endif
