/* schedule.h - the schedule of a run: its subgraphs, their passes and batches, and the visit of
 * each subgraph (a visit is all work on one subgraph: its weights are loaded, its passes run, its
 * Linears are solved). */
#ifndef OSH_SCHEDULE_H
#define OSH_SCHEDULE_H
#include "graph/exec.h"
#include "match/lookup.h"
#include "rewrite/rewrites.h"
#include "solver/tune.h"

/* How values are kept for the second pass of two-pass observers (looks.h).
 * RAM, DISK: in memory or on the disk.
 * AGAIN: values are computed again. */
typedef enum { OSH_LOOK_RAM, OSH_LOOK_DISK, OSH_LOOK_AGAIN } osh_look;

typedef struct osh_pass { // passes over a subgraph
    bool observe;   // true if statistics of Linears are collected
    bool propagate; // true if the outputs are computed, because a later subgraph is observed
    /* True if one pass observes and propagates, because later subgraphs use no changed weights. */
    bool merged;
    bool same;      // true if inputs and observed values are the same as in the original model
    bool fold;      // true if factors are computed and folded into weights before all other passes
    bool block;     // true if some Linears learn from the output of a block of layers (blocks.h)
} osh_pass;

typedef struct osh_peaks { // peaks or budgets in bytes; a budget of INT64_MAX is unlimited
    int64_t device, host, scratch; // device memory, host memory, scratch files
} osh_peaks;

typedef struct osh_phases { // decisions about the steps of a visit
    bool segments; // true if the subgraph is run in segments, each with the Linears of one input
    bool prefetch;       // true if the first weights of the next visit are read during this visit
    bool prefetch_device; // true if the prefetched weights are also copied to the device
    /* True if small Linears are solved in parallel: one on each thread, or several together on a
     * GPU. */
    bool apart;
    /* True if copies run during computation: the values of the next batch are copied to the device,
     * and the values of the previous batch from the device. */
    bool values_ahead;
    int n_rounds;        // number of observe passes
    /* Bytes of the Hessians of one observe pass; 0: one pass collects all Hessians. */
    int64_t round_bytes;
} osh_phases;

/* A visit (the work on one subgraph): its phases, and the memory that they need. */
typedef struct osh_visit {
    osh_phases how;
    /* Peak bytes of weights, of statistics, of live values. */
    int64_t weight_bytes, stats_bytes, live_bytes;
    int64_t first_load;  // bytes of the weights that the visit loads before its first pass
    osh_peaks peak;      // peaks; host: without the base (osh_memory.base_bytes) but with prefetch
    /* Peaks while small Linears are solved in parallel; 0: Linears are not solved in parallel. */
    osh_peaks apart;
    int64_t read_bytes;  // bytes that the visit reads from the source
} osh_visit;

typedef struct osh_schedule {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    osh_partition *parts;    // own: the subgraphs; NULL: the model has no graph
    osh_pass *passes;        // own [parts->n]
    /* Number of passes through the whole model (plan/traversals.h); 0: one for all modifiers. */
    int n_traversals;
    /* If n_traversals > 0: index of the current traversal, and index of the modifier that it
     * serves. */
    int traversal, modifier;
    osh_visit *visits; // own [n_visits]; budget/memory.c chooses the phases of each
    int n_visits;
    osh_look looks; // how values are kept for two-pass observers; chosen by budget/memory.c
    int64_t *batch_at;       // own [n_batches + 1]: index of the first sample of each batch
    /* batch_size: largest number of samples in a batch.
     * batch_tokens: tokens of the largest batch. */
    int64_t batch_size, n_batches, batch_tokens;
    int64_t looked_up;       // number of different tokens in a batch, summed over all batches
    bool *seen;              // own [graph values]: true if statistics of the value may be collected
    bool looks_twice;        // true if the run has a two-pass observer (looks.h)
    bool apart;  // true if each Linear runs as its own kernel (osh_exec_span.joins)
    bool rounds; // true if Linears read rounded copies of their inputs while a model runs
    /* True if outputs of Linears are rounded, too: then experts run on all tokens. */
    bool all_rows;
    osh_tune_rule tune; // settings of the tuning after all solves (tuning.h); steps 0: no tuning
    /* Graph without the added nodes of the original model, with the same indices of weights as
     * in->graph; NULL: no tuning. */
    osh_graph *tune_graph;   // own
    /* Reason why `quality best` does not tune; NULL: the run tunes, or tuning was not asked for. */
    char *tune_not;          // own
} osh_schedule;

/* True if inputs of later Linears are computed with the new weight of `l`. */
bool osh_linear_propagates(const osh_matching *p, const osh_linear *l);
/* Returns the bits OSH_STAT_* of the statistics that the Linear needs in this traversal. */
static inline unsigned osh_wants(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal ? 0 : l->wants;
}
/* Returns the bytes of a Hessian and of a shift of the Linear's input. */
static inline int64_t osh_hessian_size(const osh_linear *l)
{
    return l->I * l->I * (int64_t)sizeof(float) * (1 + l->shift);
}
/* True if another traversal collects the statistics of the Linear. */
static inline bool osh_wants_elsewhere(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal && l->wants;
}
/* True if this traversal computes the factors of the fold. */
static inline bool osh_fold_is_here(const osh_schedule *p, const osh_fold *f)
{
    return !p->n_traversals || f->modifier == p->modifier;
}
/* True if an earlier traversal solved the Linear, and this traversal computes with its new
 * weight. */
static inline bool osh_is_done_before(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal >= 0 && l->traversal < p->traversal &&
           osh_linear_propagates(p->match, l);
}
/* True if this traversal computes the factors of the fold in one of the subgraphs [subgraph,
 * subgraph + n_subgraphs). */
static inline bool osh_fold_in(const osh_schedule *p, const osh_fold *f, int subgraph,
                               int n_subgraphs)
{
    return osh_fold_is_here(p, f) && f->subgraph >= subgraph &&
           f->subgraph < subgraph + n_subgraphs;
}
/* True if the factors of all folds that osh_fold_in finds are known. */
bool osh_folds_known(const osh_schedule *p, int subgraph, int n_subgraphs);
/* looks.c: sets the members `seen` and `looks_twice` of p. */
osh_status osh_plan_seen(osh_ctx *cx, osh_schedule *p);
/* cut.c, called before osh_plan_cut: if a modifier compares with the original model, adds the
 * original model's values to the graph, and updates the nodes of Linears. */
osh_status osh_plan_carry(osh_ctx *cx, const osh_schedule *p, osh_matching *match);
/* cut.c: cuts the graph into subgraphs at the targets (at decoder layers if there are no targets),
 * assigns Linears and folds to subgraphs, and sets p->passes. */
osh_status osh_plan_cut(osh_ctx *cx, osh_schedule *p, osh_matching *match, osh_rewrites *rewrites,
                        const osh_strs *targets, int64_t per_subgraph);
/* cut.c: sets p->passes from the statistics that Linears and folds need. */
osh_status osh_plan_passes(osh_ctx *cx, osh_schedule *p);
osh_span osh_linears_of(const osh_schedule *p, int subgraph, int n_subgraphs);
int osh_subgraph_of(const osh_schedule *p, int node); // returns -1 if no subgraph has the node
/* batches.c: osh_plan_batches makes batches of `size` samples; with a GPU it ignores `size` and
 * uses OSH_DEVICE_BATCH_TOKENS. osh_plan_batch_size returns --batch-size, or a suitable size if
 * this flag is not given. */
osh_status osh_plan_batches(osh_ctx *cx, osh_schedule *p, int64_t size);
int64_t osh_plan_batch_size(osh_ctx *cx, const osh_schedule *p);
static inline int64_t osh_batch_tokens(const osh_schedule *p, int64_t batch)
{
    const int64_t *at = p->batch_at + batch;
    return p->in->data.offsets[at[1]] - p->in->data.offsets[at[0]];
}
/* True if the samples of some batch run in parallel, each on one thread (osh_exec_by_sample). */
bool osh_plan_by_sample(const osh_schedule *p, int n_threads);

/* A GPU adds to a Hessian batch by batch. A batch ends with the sample that brings it to this
 * number of tokens, or with the last sample of a group. So this number influences the bytes of the
 * output. */
#ifndef OSH_DEVICE_BATCH_TOKENS // a tool of the tests defines a smaller value
#define OSH_DEVICE_BATCH_TOKENS 16384
#endif
/* Returns the end of the batch that begins with sample `first`, as if there were only one group. */
int64_t osh_batch_end_on_device(const osh_dataset *d, int64_t first);
#endif
