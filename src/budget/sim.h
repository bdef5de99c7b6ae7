/* sim.h - the state of a simulated run. simulate.c runs the simulation; each file simulate_*.c
 * changes a part of the state. */
#ifndef OSH_SIM_H
#define OSH_SIM_H
#include "budget/bytes.h"
#include "budget/layout.h"
#include "schedule/visit.h"

typedef struct osh_sim {
    const osh_budget *p;
    osh_tier tier;
    osh_visit *to;  // view: the current visit, whose peaks are set
    const osh_range *r; // view: range of the current visit
    osh_layout *card; // own: blocks of the GPU's arena; NULL: the run computes on the host
    int n_threads;
    int64_t batch_tokens; // tokens of the largest batch
    osh_exec_batch by_sample, whole; // largest sizes of the batches that run sample by sample
                                     // (osh_exec_by_sample), and of the batches that run as a
                                     // whole; n_tokens 0: there are no such batches
    int64_t lists;  // device bytes of the lists, by Linear and by value, of statistics and of a
                    // solve
    int64_t ranges; // device bytes of the lists of the visit's ranges
    int64_t frame;  // host bytes of a compressed sample of the widest value between GPU and disk
    bool *loaded, *stored, *held; // own: [weights] true if loaded; [values] true if in the store;
                                  // [values] true if the store keeps the value in memory for the
                                  // first n_kept batches
    bool *open[OSH_N_SUMS]; // own [values]: true if the sum of the value is open
    int64_t parts;  // bytes of the blocks osh_stat.part; included in `stats`
    bool *counts;   // own [linears]: true if the histograms of the Linear exist
    size_t *hook;   // own [values]: bytes that statistics allocate while they are updated
    bool *ever;     // own [weights]: true if some visit loads the weight
    bool *kept; // own [weights]: with a GPU: true if host memory has a copy of the weight, which
                // stays until the weight is written or solved
    bool *solved;   // own [linears]
    int64_t copies; // bytes of the host copies that `kept` marks
    int64_t weights, stats, values, kept_values; // bytes that exist now; `values`: of values in the
                                                 // store, `kept_values`: of values of kept batches
    int64_t n_kept; // number of batches whose values stay in memory (osh_memory.n_kept)
    bool *looks;    // own [values]: true if the value is kept until an observer reads it a second
                    // time (schedule/looks.h)
    int64_t looked, to_look; // bytes, in memory or on the disk, of the values that `looks` marks:
                             // now, and added by the next pass
    int64_t most_values; // maximum of `values` so far
    int64_t ahead;  // host bytes for values that are read from the disk in advance; with a GPU the
                    // maximum so far, because the blocks are reused and not freed
    bool *lent;     // own [values]: true if the store lends the value to the current step
    bool began;     // true after the visit has loaded its first weights
    int index;      // index of the current visit
    bool *want;     // own [weights]: scratch: weights that a step loads
    osh_exec_marks marks; // own
} osh_sim;
#endif
