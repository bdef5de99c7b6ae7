/* schedule.h - the schedule of a run: its subgraphs, the batches of samples, and the visit of each
 * subgraph. A visit is all work on one subgraph: its weights are loaded, its passes run, its
 * Linears are solved. */
#ifndef OSH_SCHEDULE_H
#define OSH_SCHEDULE_H
#include "graph/exec.h"
#include "match/lookup.h"
#include "rewrite/rewrites.h"
#include "solver/tune.h"

/* Three ways to give values to the second pass of two-pass observers (looks.h).
 * RAM, DISK: the values are kept in memory or on the disk.
 * AGAIN: the values are computed again. */
typedef enum { OSH_LOOK_RAM, OSH_LOOK_DISK, OSH_LOOK_AGAIN } osh_look;

typedef struct osh_pass { // decisions about the passes over one subgraph
    bool observe;   // true if statistics of Linears are collected
    bool propagate; // true if a pass computes the outputs, because a later subgraph is observed
    /* True if one pass both observes and computes the outputs, because later subgraphs use no
     * changed weights. */
    bool merged;
    bool same;      // true if inputs and observed values are equal to those of the original model
    bool fold;      // true if factors are computed and folded into weights before all other passes
    bool block;     // true if some Linears learn from the output of a block of layers (blocks.h)
} osh_pass;

typedef struct osh_peaks { // peaks or budgets in bytes; a budget of INT64_MAX is unlimited
    int64_t device, host, scratch; // device memory, host memory, scratch files
} osh_peaks;

typedef struct osh_phases { // decisions about the steps of a visit
    /* true if the subgraph runs in segments; the Linears of a segment read the same value */
    bool segments;
    bool prefetch;       // true if this visit reads the first weights of the next visit
    bool prefetch_device; // true if the prefetched weights are also copied to the device
    /* True if small Linears are solved in parallel: on the host one on each thread, on a GPU
     * several together. */
    bool apart;
    /* True if copies run during computation: the values of the next batch are copied to the GPU,
     * and the values of the previous batch are copied back. */
    bool values_ahead;
    int n_rounds;        // number of passes that observe
    /* Limit for the bytes of the Hessians that one pass collects; 0: one pass collects all
     * Hessians. */
    int64_t round_bytes;
} osh_phases;

/* A visit (the work on one subgraph): the decisions about its steps, and its memory. */
typedef struct osh_visit {
    osh_phases how;
    /* Peak bytes of the weights, of the statistics, and of the live values (which later subgraphs
     * read). */
    int64_t weight_bytes, stats_bytes, live_bytes;
    int64_t first_load;  // bytes of the weights that the visit loads before its first pass
    osh_peaks peak;      // host: includes prefetched weights, but not osh_memory.base_bytes
    /* Peaks while small Linears are solved in parallel; 0: no Linears are solved in parallel. */
    osh_peaks apart;
    int64_t read_bytes;  // bytes that the visit reads from the source
} osh_visit;

typedef struct osh_schedule {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    osh_partition *parts;    // own: the subgraphs; NULL: the model has no graph
    osh_pass *passes;        // own [parts->n]
    /* Number of traversals of --pipeline independent (plan/traversals.h). 0: one traversal serves
     * all modifiers. */
    int n_traversals;
    /* If n_traversals > 0: index of the current traversal, and index of the modifier that the
     * traversal serves. */
    int traversal, modifier;
    osh_visit *visits; // own [n_visits]; budget/memory.c chooses the steps of each visit
    int n_visits;
    osh_look looks; // how two-pass observers get values again; budget/memory.c chooses
    int64_t *batch_at;       // own [n_batches + 1]: index of the first sample of each batch
    /* batch_size: largest number of samples in a batch.
     * batch_tokens: tokens of the largest batch. */
    int64_t batch_size, n_batches, batch_tokens;
    int64_t looked_up;       // number of different tokens of each batch, summed over all batches
    bool *seen;              // own [graph values]: true if statistics of the value may be collected
    bool looks_twice;        // true if the run has a two-pass observer (looks.h)
    bool apart;  // true if no Linears run as one kernel with their glu (osh_exec_span.joins)
    bool rounds; // true if Linears read rounded copies of their inputs when the model runs
    /* True if the outputs of Linears are rounded, too. Experts then run on all tokens. */
    bool all_rows;
    /* settings of the tuning after all solves (tuning.h); no tuning if `steps` is 0 */
    osh_tune_rule tune;
    /* The graph that tuning runs: it has no added nodes of the original model. Its weights have the
     * same indices as in in->graph. NULL: no tuning. */
    osh_graph *tune_graph;   // own
    /* Reason why `quality best` does not tune; NULL if the run tunes or the user does not ask for
     * tuning. */
    char *tune_not;          // own
} osh_schedule;

/* True if inputs of later Linears are computed with the new weight of `l` after its solve. */
bool osh_linear_propagates(const osh_matching *p, const osh_linear *l);
/* Returns the bits OSH_STAT_* of the statistics that the Linear needs in this traversal. */
static inline unsigned osh_wants(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal ? 0 : l->wants;
}
/* Returns the bytes of the Hessian of the Linear's input, plus the bytes of its shift if l->shift
 * is set. */
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
/* True if the factors are known for all folds that this traversal computes in the subgraphs
 * [subgraph, subgraph + n_subgraphs). */
bool osh_folds_known(const osh_schedule *p, int subgraph, int n_subgraphs);
/* Sets the members `seen` and `looks_twice` of p. (In looks.c.) */
osh_status osh_plan_seen(osh_ctx *cx, osh_schedule *p);
/* Adds the original model's values to the graph if a modifier compares with the original model, and
 * updates the nodes of Linears. Must be called before osh_plan_cut. (In cut.c.) */
osh_status osh_plan_carry(osh_ctx *cx, const osh_schedule *p, osh_matching *match);
/* Cuts the graph into subgraphs at the targets, or at the decoder layers if `targets` is empty.
 * Assigns Linears and folds to subgraphs, and sets p->passes. (In cut.c.) */
osh_status osh_plan_cut(osh_ctx *cx, osh_schedule *p, osh_matching *match, osh_rewrites *rewrites,
                        const osh_strs *targets, int64_t per_subgraph);
/* Sets p->passes from the statistics that Linears and folds need. (In cut.c.) */
osh_status osh_plan_passes(osh_ctx *cx, osh_schedule *p);
osh_span osh_linears_of(const osh_schedule *p, int subgraph, int n_subgraphs);
int osh_subgraph_of(const osh_schedule *p, int node); // returns -1 if no subgraph has the node
/* osh_plan_batches makes batches of `size` samples. With a GPU, the function ignores `size` and
 * uses OSH_DEVICE_BATCH_TOKENS. osh_plan_batch_size returns --batch-size, or a suitable size if the
 * user does not give this option. (In batches.c.) */
osh_status osh_plan_batches(osh_ctx *cx, osh_schedule *p, int64_t size);
int64_t osh_plan_batch_size(osh_ctx *cx, const osh_schedule *p);
static inline int64_t osh_batch_tokens(const osh_schedule *p, int64_t batch)
{
    const int64_t *at = p->batch_at + batch;
    return p->in->data.offsets[at[1]] - p->in->data.offsets[at[0]];
}
/* True if the samples of some batch run in parallel, each on one thread (osh_exec_by_sample). */
bool osh_plan_by_sample(const osh_schedule *p, int n_threads);

/* Smallest number of tokens at which a batch on a GPU ends; a batch also ends with the last sample
 * of a group. A GPU adds to a Hessian batch by batch, so this number influences the bytes of the
 * output. */
#ifndef OSH_DEVICE_BATCH_TOKENS // a tool of the tests defines a smaller value
#define OSH_DEVICE_BATCH_TOKENS 16384
#endif
/* Returns the end of the batch that begins with sample `first`, without regard to groups. */
int64_t osh_batch_end_on_device(const osh_dataset *d, int64_t first);
#endif
