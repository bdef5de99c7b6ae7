/* simulate.h - the inside of the simulation of a run (simulate.c), for its own files. */
#ifndef OSH_SIMULATE_H
#define OSH_SIMULATE_H
#include "plan/bytes.h"
#include "plan/layout.h"
#include "plan/memory.h"

typedef struct osh_sim {
    const osh_plan *p;
    osh_tier tier;
    osh_visit *to;  // view: where the peaks of the present visit go
    const osh_range *r; // view: the present visit's
    osh_layout *card; // own: the device is one: its bytes are not the host's; NULL: it is the host's memory
    int n_threads;
    int64_t batch_tokens; // of the largest batch
    osh_exec_batch by_sample, whole; // of batches that run sample by sample, and of others; n_tokens 0: there is none
    int64_t lists;  // device: what statistics and a solve keep for each Linear and value
    int64_t ranges; // the same: of the ranges of the visit
    int64_t frame;  // host: a sample of the widest value, compressed; on its way from the card
    bool *loaded, *stored, *held; // own: weights, values in the tier, values that are kept
    bool *open[OSH_N_SUMS]; // own: sums by value
    bool *counts;   // own [linears]: whose histograms are there
    size_t *hook;   // own: [values] bytes that statistics take while they are fed
    bool *ever;     // own: weights that some visit loads
    bool *kept;     // own: weights with a copy in host memory, with a card: until written or solved
    bool *solved;   // own [linears]
    int64_t copies; // live bytes of those copies
    int64_t weights, stats, values, kept_values; // live bytes; values: in the tier
    int64_t n_kept; // batches
    bool *looks;    // own: [values] kept for a second look
    int64_t looked, to_look; // bytes of these, in memory or on the disk: now, and what the next pass adds
    int64_t most_values; // so far
    int64_t ahead;  // host: values that are read ahead from the disk; with a card the most so far, whose blocks stay
    bool *lent;     // own: [values] of a step
    bool began;     // the visit has loaded
    int index;      // of the visit
    bool *want;     // own [weights]
    osh_exec_marks marks; // own
} osh_sim;

/* simulate_bytes.c: what things take, and the peaks. */
/* device, host: what is there beside weights, their copies, statistics and resting values. */
void osh_sim_note(osh_sim *s, int64_t device, int64_t host, int64_t values);
int64_t osh_sim_batch_tokens(const osh_sim *s, int64_t b);
/* With a card, of a batch: in its arena, or in host memory. */
int64_t osh_sim_batch_rest(const osh_sim *s, int v, int64_t b);
int64_t osh_sim_list_rest(const osh_sim *s, int v); // with a card, of host memory: the blocks of a value
/* Of the batches that are not kept. */
int64_t osh_sim_value_rest(const osh_sim *s, int v);
int64_t osh_sim_value_kept(const osh_sim *s, int v);
/* Of the largest batch. */
int64_t osh_sim_batch_bytes(const osh_sim *s, int v);
size_t osh_sim_accum_scratch(const osh_sim *s, const char *name, int64_t I);
/* And what a solve makes of it. */
int64_t osh_sim_sum_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l);
size_t *osh_sim_hook(const osh_sim *s, int value);
void osh_sim_enter(const osh_sim *s, int visit, osh_way way);
/* Kept for a second look. */
int64_t osh_sim_looked_bytes(const osh_sim *s);
/* Of a batch as F16, on its way to the disk, or to a second look. */
size_t osh_sim_narrow_bytes(const osh_sim *s, const osh_q_args *a, int value);
int64_t osh_sim_loaders_bytes(const osh_sim *s); // of the threads that read values ahead
/* The second look at what is kept, sample by sample, before anything is solved; then it goes. */
void osh_sim_look(osh_sim *s);

/* simulate_weights.c: the callback load, and the copies that a card's weights have in host memory. */
int64_t osh_sim_weight_bytes(const osh_sim *s, int w);
void osh_sim_drop_copy(osh_sim *s, int weight);
/* As drop_copies of sequential.c: copies stay of what is to be solved. */
void osh_sim_drop_copies(osh_sim *s);
void osh_sim_note_reload(osh_sim *s, const osh_linear *l); // a solved weight: its packed tensors and its codes
osh_status osh_sim_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st, const bool *values);

/* simulate_solve.c: the callback solve. */
/* As osh_run_solve: Linears with one input and one modifier in one call, packed behind each other. */
osh_status osh_sim_solve(osh_ctx *cx, void *user, const osh_range *r, const bool *values, bool keep);
#endif
