/* sim.h - the state of a simulated run. simulate.c drives it; each file of the simulation changes a
 * part of it. */
#ifndef OSH_SIM_H
#define OSH_SIM_H
#include "budget/bytes.h"
#include "budget/layout.h"
#include "schedule/visit.h"

typedef struct osh_sim {
    const osh_budget *p;
    osh_tier tier;
    osh_visit *to;  // view: receives the peaks of the present visit
    const osh_range *r; // view: the present visit's range
    osh_layout *card; // own: set if the device is a GPU, whose bytes are not the host's; NULL: host
                      // memory
    int n_threads;
    int64_t batch_tokens; // tokens of the largest batch
    osh_exec_batch by_sample, whole; // batches that run sample by sample, and the others; n_tokens
                                     // 0: none
    int64_t lists;  // device: lists of statistics and of a solve, by Linear and value
    int64_t ranges; // device: lists of the visit's ranges
    int64_t frame;  // host: a sample of the widest value, compressed, on its way from the GPU
    bool *loaded, *stored, *held; // own: weights; values in the tier; values that are kept
    bool *open[OSH_N_SUMS]; // own: sums by value
    int64_t parts;  // bytes of their blocks of groups (osh_stat.part), a part of stats
    bool *counts;   // own [linears]: its histograms exist
    size_t *hook;   // own [values]: bytes that statistics take while they are fed
    bool *ever;     // own [weights]: some visit loads it
    bool *kept; // own [weights]: with a GPU: host memory has a copy until it is written or solved
    bool *solved;   // own [linears]
    int64_t copies; // bytes of those copies now
    int64_t weights, stats, values, kept_values; // bytes now; values: in the tier
    int64_t n_kept; // batches
    bool *looks;    // own [values]: kept for a second look
    int64_t looked, to_look; // bytes of these, in memory or on the disk: now, and added by the next
                             // pass
    int64_t most_values; // so far
    int64_t ahead;  // host: values read in advance from the disk; with a GPU the maximum so far,
                    // since blocks stay
    bool *lent;     // own [values]: of a step
    bool began;     // the visit has loaded
    int index;      // present visit
    bool *want;     // own [weights]
    osh_exec_marks marks; // own
} osh_sim;
#endif
