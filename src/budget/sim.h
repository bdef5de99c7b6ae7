/* sim.h - the state of a simulated run. simulate.c runs the simulation; each of its files changes a
 * part of the state. */
#ifndef OSH_SIM_H
#define OSH_SIM_H
#include "budget/bytes.h"
#include "budget/layout.h"
#include "schedule/visit.h"

typedef struct osh_sim {
    const osh_budget *p;
    osh_tier tier;
    osh_visit *to;  // view: gets the peaks of the current visit
    const osh_range *r; // view: range of the current visit
    osh_layout *card; // own: the arena if the device is a GPU, whose bytes are not the host's;
                      // NULL: host memory
    int n_threads;
    int64_t batch_tokens; // tokens of the largest batch
    osh_exec_batch by_sample, whole; // sizes of batches that run sample by sample, and of the
                                     // others; n_tokens 0: no such batches
    int64_t lists;  // device bytes of the lists of statistics and of a solve, by Linear and value
    int64_t ranges; // device bytes of the lists of the visit's ranges
    int64_t frame;  // host bytes of a compressed sample of the widest value between GPU and disk
    bool *loaded, *stored, *held; // own: weights that are loaded; values in the tier; values that
                                  // are kept
    bool *open[OSH_N_SUMS]; // own: sums that are open, by value
    int64_t parts;  // bytes of the blocks osh_stat.part; included in stats
    bool *counts;   // own [linears]: true if its histograms exist
    size_t *hook;   // own [values]: bytes that statistics allocate while they are updated
    bool *ever;     // own [weights]: true if some visit loads it
    bool *kept; // own [weights]: with a GPU: true if host memory has a copy until the weight is
                // written or solved
    bool *solved;   // own [linears]
    int64_t copies; // bytes of these copies now
    int64_t weights, stats, values, kept_values; // bytes now; values: those in the tier
    int64_t n_kept; // number of kept batches
    bool *looks;    // own [values]: true for values kept for a second look
    int64_t looked, to_look; // bytes of these values in memory or on the disk: now, and those that
                             // the next pass adds
    int64_t most_values; // highest bytes of values so far
    int64_t ahead;  // host bytes of values read in advance from the disk; with a GPU the maximum so
                    // far, because blocks stay
    bool *lent;     // own [values]: values that are lent in a step
    bool began;     // the visit has loaded weights
    int index;      // index of the current visit
    bool *want;     // own [weights]
    osh_exec_marks marks; // own
} osh_sim;
#endif
