/* schedule.h - declares the schedule of a run: its subgraphs, the batches of samples, and the visit
 * of each subgraph. A visit is all work on one subgraph: its weights are loaded, its passes run,
 * its Linears are solved. */
#ifndef OSH_SCHEDULE_H
#define OSH_SCHEDULE_H
#include "graph/exec.h"
#include "match/lookup.h"
#include "rewrite/rewrites.h"
#include "solver/tune.h"

/* Three ways in which two-pass observers get values for their second pass (looks.h).
 * RAM, DISK: the values are kept in memory or on the disk after the first pass.
 * AGAIN: the values are computed a second time. */
typedef enum { OSH_LOOK_RAM, OSH_LOOK_DISK, OSH_LOOK_AGAIN } osh_look;

typedef struct osh_pass { // decisions about the passes over one subgraph
    bool observe;   // true if statistics of the subgraph's Linears are collected
    /* true if a pass computes the outputs of the subgraph, because a later subgraph is observed */
    bool propagate;
    /* True if the pass that observes also computes the outputs of the subgraph. This is possible if
     * later subgraphs need no outputs that are computed with changed weights. */
    bool merged;
    bool same;      // true if the inputs and the observed values are the same in the original model
    bool fold;      // true if the first pass computes factors that are folded into weights
    /* true if Linears of the subgraph learn from the output of a block of layers (blocks.h) */
    bool block;
} osh_pass;

typedef struct osh_peaks { // peaks or budgets in bytes; INT64_MAX: no budget
    int64_t device, host, scratch; // device memory, host memory, scratch files
} osh_peaks;

typedef struct osh_phases { // decisions about the steps of a visit
    /* true if the subgraph runs in segments; all Linears of a segment read the same value */
    bool segments;
    bool prefetch; // true if this visit already reads weights for the first pass of the next visit
    bool prefetch_device; // true if these prefetched weights are also copied to the device
    /* True if small Linears are solved in parallel. On the host, each thread solves one. A GPU
     * solves several together. */
    bool apart;
    /* True if copies run during computation. While a batch runs, the values of the next batch are
     * copied to the GPU, and the values of the previous batch are copied back. */
    bool values_ahead;
    int n_rounds;        // number of passes that collect statistics
    /* Limit for the bytes of the Hessians that one pass collects; 0: one pass collects all
     * Hessians. */
    int64_t round_bytes;
} osh_phases;

/* Decisions about the steps of a visit (the work on one subgraph), and the visit's memory. */
typedef struct osh_visit {
    osh_phases how;
    /* Three separate peaks in bytes: of the weights, of the statistics, and of the live values
     * (which later subgraphs read). */
    int64_t weight_bytes, stats_bytes, live_bytes;
    int64_t first_load;  // bytes of the weights that the visit loads before its first pass
    osh_peaks peak;      // member host: counts prefetched weights, but not osh_memory.base_bytes
    /* Peaks while small Linears are solved in parallel; 0: they are not solved in parallel. */
    osh_peaks apart;
    int64_t read_bytes;  // bytes that the visit reads from the source
} osh_visit;

/* A statistic that a measurement collects at a node (eval/measure.h). */
typedef struct osh_measured {
    /* The statistic is collected of this value, which is an input or an output of the node; -1: the
     * node has no statistic. */
    int value;
    int64_t bytes; // bytes of the statistic; 0: another node has the same statistic
} osh_measured;

typedef struct osh_schedule {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    osh_partition *parts;    // own: the subgraphs; NULL: the model has no graph
    osh_pass *passes;        // own [parts->n]
    /* Number of traversals of `--pipeline independent` (plan/traversals.h). 0: one traversal serves
     * all modifiers. */
    int n_traversals;
    /* Only if n_traversals > 0: index of the current traversal, and index of the modifier that it
     * serves. */
    int traversal, modifier;
    osh_visit *visits; // own [n_visits]; budget/memory.c chooses the steps of each visit
    int n_visits;
    osh_look looks; // how two-pass observers get values a second time (set by budget/memory.c)
    int64_t *batch_at;       // own [n_batches + 1]: index of the first sample of each batch
    /* batch_size: largest number of samples in a batch.
     * batch_tokens: largest number of tokens in a batch. */
    int64_t batch_size, n_batches, batch_tokens;
    int64_t looked_up;       // number of different tokens in a batch, summed over all batches
    bool *seen;              // own [graph values]: true if statistics of the value may be collected
    bool looks_twice;        // true if the run has a two-pass observer (looks.h)
    /* True if the Linears `gate` and `up` never run in one kernel with their glu
     * (osh_exec_span.joins). */
    bool apart;
    bool rounds; // true if the model rounds the inputs of Linears when it runs
    /* Number of tokens of a sample that ran in earlier passes, when a generation runs a sample in
     * pieces; 0: a pass runs whole samples. */
    int64_t past;
    /* True if experts run on all tokens. This is needed if the model also rounds the outputs of
     * Linears, or if a measurement collects statistics. */
    bool all_rows;
    /* Statistics of a measurement before the run; NULL: the schedule belongs to no measurement. */
    osh_measured *measured;  // own [graph nodes]
    /* settings of the tuning after all solves (tuning.h); if `steps` is 0, there is no tuning */
    osh_tune_rule tune;
    /* The graph that tuning runs. Unlike in->graph, it does not have the nodes that compute the
     * original model. Weights have the same indices in both graphs. NULL: no tuning. */
    osh_graph *tune_graph;   // own
    /* Reason why `quality best` does not tune. NULL if the run tunes, or if tuning is not asked
     * for. */
    char *tune_not;          // own
} osh_schedule;

/* True if the inputs of later Linears are computed with the new weight of Linear l, after l is
 * solved. */
bool osh_linear_propagates(const osh_matching *p, const osh_linear *l);
/* Returns the bits OSH_STAT_* of the statistics that the Linear needs in the current traversal. */
static inline unsigned osh_wants(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal ? 0 : l->wants;
}
/* Returns the number of bytes of the Hessian of the Linear's input. If l->shift is true, adds the
 * bytes of the shift. */
static inline int64_t osh_hessian_size(const osh_linear *l)
{
    return l->I * l->I * (int64_t)sizeof(float) * (1 + l->shift);
}
/* True if the statistics of the Linear are collected, but not in the current traversal. */
static inline bool osh_wants_elsewhere(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal && l->wants;
}
/* True if the current traversal computes the factors of fold f. */
static inline bool osh_fold_is_here(const osh_schedule *p, const osh_fold *f)
{
    return !p->n_traversals || f->modifier == p->modifier;
}
/* True if an earlier traversal has solved the Linear, so that the current traversal computes with
 * its new weight. */
static inline bool osh_is_done_before(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal >= 0 && l->traversal < p->traversal &&
           osh_linear_propagates(p->match, l);
}
/* True if the current traversal computes the factors of fold f, and the fold is in one of the
 * subgraphs [subgraph, subgraph + n_subgraphs). */
static inline bool osh_fold_in(const osh_schedule *p, const osh_fold *f, int subgraph,
                               int n_subgraphs)
{
    return osh_fold_is_here(p, f) && f->subgraph >= subgraph &&
           f->subgraph < subgraph + n_subgraphs;
}
/* True if the factors of all folds in the subgraphs [subgraph, subgraph + n_subgraphs) are known.
 * Only folds of the current traversal count. */
bool osh_folds_known(const osh_schedule *p, int subgraph, int n_subgraphs);
/* Sets the members `seen` and `looks_twice` of p. (The function is in looks.c.) */
osh_status osh_plan_seen(osh_ctx *cx, osh_schedule *p);
/* If a modifier compares with the original model, adds the values of the original model to the
 * graph, and updates the nodes of the Linears. Must be called before osh_plan_cut. (The function is
 * in cut.c.) */
osh_status osh_plan_carry(osh_ctx *cx, const osh_schedule *p, osh_matching *match);
/* Cuts the graph into subgraphs at the targets, or at the decoder layers if `targets` is empty.
 * Assigns Linears and folds to subgraphs, and sets p->passes. (The function is in cut.c.) */
osh_status osh_plan_cut(osh_ctx *cx, osh_schedule *p, osh_matching *match, osh_rewrites *rewrites,
                        const osh_strs *targets, int64_t per_subgraph);
/* Sets p->passes from the statistics that Linears and folds need. (The function is in cut.c.) */
osh_status osh_plan_passes(osh_ctx *cx, osh_schedule *p);
/* Returns the Linears of the subgraphs [subgraph, subgraph + n_subgraphs). */
osh_span osh_linears_of(const osh_schedule *p, int subgraph, int n_subgraphs);
int osh_subgraph_of(const osh_schedule *p, int node); // returns -1 if no subgraph contains the node
/* osh_plan_batches makes batches of `size` samples. On a GPU, it ignores `size` and uses
 * OSH_DEVICE_BATCH_TOKENS. osh_plan_batch_size returns --batch-size, or a suitable size if the user
 * does not give this option. (The functions are in batches.c.) */
osh_status osh_plan_batches(osh_ctx *cx, osh_schedule *p, int64_t size);
int64_t osh_plan_batch_size(osh_ctx *cx, const osh_schedule *p);
static inline int64_t osh_batch_tokens(const osh_schedule *p, int64_t batch)
{
    const int64_t *at = p->batch_at + batch;
    return p->in->data.offsets[at[1]] - p->in->data.offsets[at[0]];
}
/* True if at least one batch runs its samples in parallel, one on each thread
 * (osh_exec_by_sample). */
bool osh_plan_by_sample(const osh_schedule *p, int n_threads);

/* A batch on a GPU ends when it has at least this number of tokens. It also ends with the last
 * sample of a group. A GPU adds to a Hessian batch by batch, so this number influences the bytes of
 * the output. */
#ifndef OSH_DEVICE_BATCH_TOKENS // a tool of the tests defines a smaller value
#define OSH_DEVICE_BATCH_TOKENS 16384
#endif
/* Returns the end of the batch that begins with sample `first`, if the groups of samples are
 * ignored. */
int64_t osh_batch_end_on_device(const osh_dataset *d, int64_t first);
#endif
