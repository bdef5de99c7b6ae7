/* schedule.h - the schedule of a run: its subgraphs, their passes and batches, and how each
 * subgraph is visited. */
#ifndef OSH_SCHEDULE_H
#define OSH_SCHEDULE_H
#include "graph/exec.h"
#include "match/lookup.h"
#include "rewrite/rewrites.h"
#include "solver/tune.h"

typedef enum { OSH_LOOK_RAM, OSH_LOOK_DISK, OSH_LOOK_AGAIN } osh_look; // looks.h

typedef struct osh_pass { // the steps that a subgraph needs
    bool observe;   // statistics are needed
    bool propagate; // the outputs are needed, because a later subgraph is observed
    bool merged;    // one pass observes and propagates, because no reader would get a changed value
    bool same;      // inputs and observed values are equal to those of the original model
    bool fold;      // factors are computed and folded into weights first
    bool block;     // some Linears learn from the output of the subgraph (blocks.h)
} osh_pass;

typedef struct osh_visit { // how a subgraph is run, and the memory that it needs
    bool segments;       // the subgraph is run for one group of Linears at a time
    bool prefetch;       // the first weights of the next visit are read at the same time
    bool prefetch_device; // the prefetched weights are also copied to the device
    bool apart; // small Linears are solved in parallel: one per thread, or several at once on a GPU
    bool values_ahead;   // while a batch is computed, the values of the next batch are copied to
                         // the device and those of the previous batch are copied back
    int64_t round_bytes; // bytes of Hessians of one observe pass; 0: all fit in one pass
    int n_rounds;        // number of observe passes
    int64_t weight_bytes, stats_bytes, live_bytes; // highest bytes at one time of: weights,
                                                   // statistics, live values
    int64_t first_load;  // bytes of the weights that the visit loads before its first pass
    int64_t device_peak, host_peak, scratch_peak; // bytes; host_peak: without the base, with
                                                  // prefetch
    int64_t apart_device, apart_host; // peaks if small Linears are solved in parallel; 0: they are
                                      // not solved in parallel
    int64_t read_bytes;  // bytes that are read from the source
} osh_visit;

typedef struct osh_schedule {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    osh_partition *parts;    // own; NULL if there is no graph
    osh_pass *passes;        // own [parts->n]
    int n_traversals; // 0: one traversal for all modifiers (plan/traversals.h)
    int traversal, modifier; // if there are traversals: number of the current traversal, and its
                             // modifier
    osh_visit *visits;       // own; one for each range of visit.h; budget/memory.c chooses them
    int n_visits;
    osh_look looks;          // how second looks are done (looks.h); budget/memory.c chooses it
    int64_t *batch_at;       // own [n_batches + 1]: first sample of each batch
    int64_t batch_size, n_batches, batch_tokens; // batch_size: most samples of a batch;
                                                 // batch_tokens: tokens of the largest batch
    int64_t looked_up;       // sum over all batches of the number of different tokens in the batch
    bool *seen;              // own [graph values]: true if a statistic may read the value
    bool looks_twice;        // some observer looks twice (looks.h)
    osh_tune_rule tune;      // tuning after all solves (tuning.h); steps 0: no tuning
    osh_graph *tune_graph;   // own: graph of the original model only, with the same weight numbers
                             // as graph; NULL: no tuning
    char *tune_not;          // own: reason why `quality best` does not tune; NULL: it does
} osh_schedule;

/* True if later Linears get inputs that are computed with the new weight of `l`. */
bool osh_linear_propagates(const osh_matching *p, const osh_linear *l);
/* Returns the OSH_STAT_* that the Linear needs in this traversal. */
static inline unsigned osh_wants(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal ? 0 : l->wants;
}
/* True if another traversal collects data for the Linear. */
static inline bool osh_wants_elsewhere(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal && l->wants;
}
/* True if this traversal computes the factors of `f`. */
static inline bool osh_fold_is_here(const osh_schedule *p, const osh_fold *f)
{
    return !p->n_traversals || f->modifier == p->modifier;
}
/* True if an earlier traversal has finished the Linear, and this traversal uses the new weight. */
static inline bool osh_is_done_before(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal >= 0 && l->traversal < p->traversal &&
           osh_linear_propagates(p->match, l);
}
/* True if this traversal computes the factors of `f` in one of these subgraphs. */
static inline bool osh_fold_in(const osh_schedule *p, const osh_fold *f, int subgraph,
                               int n_subgraphs)
{
    return osh_fold_is_here(p, f) && f->subgraph >= subgraph &&
           f->subgraph < subgraph + n_subgraphs;
}
/* True if all factors that this traversal computes in these subgraphs are known. */
bool osh_folds_known(const osh_schedule *p, int subgraph, int n_subgraphs);
/* looks.c: sets p->seen and p->looks_twice. */
osh_status osh_plan_seen(osh_ctx *cx, osh_schedule *p);
/* cut.c, before the cut: adds the original model's values to the graph if a modifier compares with
 * them, and updates the nodes of Linears. */
osh_status osh_plan_carry(osh_ctx *cx, const osh_schedule *p, osh_matching *match);
/* cut.c: cuts the graph into subgraphs at the targets (without targets at decoder layers), assigns
 * Linears and folds to them, and sets their passes. */
osh_status osh_plan_cut(osh_ctx *cx, osh_schedule *p, osh_matching *match, osh_rewrites *rewrites,
                        const osh_strs *targets, int64_t per_subgraph);
/* cut.c: sets the passes from the statistics that Linears and folds need. */
osh_status osh_plan_passes(osh_ctx *cx, osh_schedule *p);
osh_span osh_linears_of(const osh_schedule *p, int subgraph, int n_subgraphs);
int osh_subgraph_of(const osh_schedule *p, int node); // -1: none
/* batches.c: osh_plan_batches makes batches of `size` samples; for a GPU it ignores `size`, see
 * below. osh_plan_batch_size returns --batch-size, or without this flag a suitable size. */
osh_status osh_plan_batches(osh_ctx *cx, osh_schedule *p, int64_t size);
int64_t osh_plan_batch_size(osh_ctx *cx, const osh_schedule *p);
/* True if some batch runs sample by sample (osh_exec_by_sample). */
bool osh_plan_by_sample(const osh_schedule *p, int n_threads);

/* A GPU computes Hessians of whole batches. A batch ends when it has at least this number of
 * tokens, or with the last sample of a group. The number changes the bytes of the output. */
#ifndef OSH_DEVICE_BATCH_TOKENS // a tool of the tests defines a smaller value
#define OSH_DEVICE_BATCH_TOKENS 16384
#endif
/* Returns the end of the batch that begins with sample `first`, if no group ends before it. */
int64_t osh_batch_end_on_device(const osh_dataset *d, int64_t first);
#endif
