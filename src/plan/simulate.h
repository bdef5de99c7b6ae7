/* simulate.h - state and parts of the simulation of a run (simulate.c), for its own files. */
#ifndef OSH_SIMULATE_H
#define OSH_SIMULATE_H
#include "plan/bytes.h"
#include "plan/layout.h"
#include "plan/memory.h"

typedef struct osh_sim {
    const osh_plan *p;
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
    int64_t parts;          // bytes of their blocks of groups (osh_stat.part), a part of stats
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

/* simulate_bytes.c: sizes and peaks. */
/* Updates the peaks. device, host: bytes beside weights, their copies, statistics and resting
 * values. */
void osh_sim_note(osh_sim *s, int64_t device, int64_t host, int64_t values);
int64_t osh_sim_batch_tokens(const osh_sim *s, int64_t b);
/* Returns the bytes of a batch at rest; with a GPU in its arena or in host memory. */
int64_t osh_sim_batch_rest(const osh_sim *s, int v, int64_t b);
/* With a GPU: host bytes of the blocks of a value. */
int64_t osh_sim_list_rest(const osh_sim *s, int v);
/* Bytes of the batches that are not kept, and of those that are. */
int64_t osh_sim_value_rest(const osh_sim *s, int v);
int64_t osh_sim_value_kept(const osh_sim *s, int v);
/* Returns the bytes of the value in the largest batch. */
int64_t osh_sim_batch_bytes(const osh_sim *s, int v);
size_t osh_sim_accum_scratch(const osh_sim *s, const char *name, int64_t I);
/* Returns the bytes of a sum, with those that a solve derives from it. */
int64_t osh_sim_sum_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
/* Returns the bytes of osh_stat.part of a sum; 0: it has none. */
int64_t osh_sim_part_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
size_t *osh_sim_hook(const osh_sim *s, int value);
void osh_sim_enter(const osh_sim *s, int visit, osh_way way);
/* Returns the bytes of values kept for a second look. */
int64_t osh_sim_looked_bytes(const osh_sim *s);
/* Returns the bytes of a batch as F16, on its way to the disk or to a second look. */
size_t osh_sim_narrow_bytes(const osh_sim *s, const osh_q_args *a, int value);
/* Buffers of the threads that read values in advance. */
int64_t osh_sim_loaders_bytes(const osh_sim *s);
/* Simulates the second look at the kept values, sample by sample, before anything is solved; then
 * drops them. */
void osh_sim_look(osh_sim *s);

/* simulate_weights.c: the callback load, and the host copies of a GPU's weights. */
int64_t osh_sim_weight_bytes(const osh_sim *s, int w);
void osh_sim_drop_copy(osh_sim *s, int weight);
/* Does what drop_copies of sequential.c does: keeps the copies of weights that are still to be
 * solved. */
void osh_sim_drop_copies(osh_sim *s);
/* A solved weight: its packed tensors and its codes. */
void osh_sim_note_reload(osh_sim *s, const osh_linear *l);
osh_status osh_sim_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st,
                        const bool *values);

/* simulate_solve.c: the callback solve. */
/* Solves as osh_run_solve does: Linears with one input and one modifier in one call, packed one
 * after the other. */
osh_status osh_sim_solve(osh_ctx *cx, void *user, const osh_range *r, const bool *values,
                         bool keep);
#endif
