/* schedule.h - the subgraphs of a run, their passes and batches, and how each is visited. */
#ifndef OSH_SCHEDULE_H
#define OSH_SCHEDULE_H
#include "graph/exec.h"
#include "match/lookup.h"
#include "rewrite/rewrites.h"
#include "solver/tune.h"

typedef enum { OSH_LOOK_RAM, OSH_LOOK_DISK, OSH_LOOK_AGAIN } osh_look; // looks.h

typedef struct osh_pass { // the steps of a subgraph
    bool observe;   // statistics are wanted
    bool propagate; // a later subgraph that observes wants its outputs
    bool merged;    // one pass observes and propagates: no reader would see a change
    bool same;      // its inputs and observed values are the same in the original model
    bool fold;      // factors are found and folded in first
    bool block;     // some of its Linears learn from its output (blocks.h)
} osh_pass;

typedef struct osh_visit { // how a subgraph is run, and what that takes
    bool segments;       // one group of Linears at a time
    bool prefetch;       // the first weights of the next visit are read meanwhile
    bool prefetch_device; // they are also copied to the device
    bool apart; // small Linears are solved in parallel, one on each thread, or together on a GPU
    bool values_ahead;   // the next batch's values are copied to the device during a batch, and the
                         // last one's are copied back
    int64_t round_bytes; // bytes of Hessians in one observe pass; 0: all of them
    int n_rounds;        // observe passes
    int64_t weight_bytes, stats_bytes, live_bytes; // the largest of each at one time
    int64_t first_load;  // bytes of the weights that it loads first
    int64_t device_peak, host_peak, scratch_peak; // bytes; host: without the base, with prefetch
    int64_t apart_device, apart_host; // peaks if small Linears are solved in parallel; 0: none is
    int64_t read_bytes;  // bytes of the source
} osh_visit;

typedef struct osh_schedule {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    osh_partition *parts;    // own; NULL with graph
    osh_pass *passes;        // own [parts->n]
    int n_traversals; // 0: one for all modifiers (plan/traversals.h)
    int traversal, modifier; // with traversals: its number, and the modifier that it is for
    osh_visit *visits;       // own; one for each range of visit.h; chosen by budget/memory.c
    int n_visits;
    osh_look looks;          // how second looks are made (looks.h); chosen by budget/memory.c
    int64_t *batch_at;       // own [n_batches + 1]: first sample of each batch
    int64_t batch_size, n_batches, batch_tokens; // batch_size: most samples of a batch;
                                                 // batch_tokens: tokens of the largest
    int64_t looked_up;       // sum over batches of the different tokens in each
    bool *seen;              // own [graph values]: some statistic may read it
    bool looks_twice;        // some observer looks twice (looks.h)
    osh_tune_rule tune;      // tuning after all solves (tuning.h); steps 0: none
    osh_graph *tune_graph;   // own: graph of the original model alone, with the weight numbers of
                             // graph; NULL: nothing is tuned
    char *tune_not;          // own: why quality best does not tune; NULL: it does
} osh_schedule;

/* True if later Linears see its new weight. */
bool osh_linear_propagates(const osh_matching *p, const osh_linear *l);
/* Returns the statistics that the Linear needs in this traversal, OSH_STAT_*. */
static inline unsigned osh_wants(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal ? 0 : l->wants;
}
/* True if another traversal collects data for it. */
static inline bool osh_wants_elsewhere(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal != p->traversal && l->wants;
}
/* True if the factors are made in this traversal. */
static inline bool osh_fold_is_here(const osh_schedule *p, const osh_fold *f)
{
    return !p->n_traversals || f->modifier == p->modifier;
}
/* True if an earlier traversal has finished the Linear and this one sees its new weight. */
static inline bool osh_is_done_before(const osh_schedule *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal >= 0 && l->traversal < p->traversal &&
           osh_linear_propagates(p->match, l);
}
/* True if the factors are made in this traversal, in one of these subgraphs. */
static inline bool osh_fold_in(const osh_schedule *p, const osh_fold *f, int subgraph,
                               int n_subgraphs)
{
    return osh_fold_is_here(p, f) && f->subgraph >= subgraph &&
           f->subgraph < subgraph + n_subgraphs;
}
/* True if all factors that this traversal makes in these subgraphs are known. */
bool osh_folds_known(const osh_schedule *p, int subgraph, int n_subgraphs);
/* looks.c: values that statistics may read, and that some read twice. */
osh_status osh_plan_seen(osh_ctx *cx, osh_schedule *p);
/* cut.c, before the cut: adds the original model's values to the graph if a modifier compares with
 * them, and moves the Linears to their new nodes. */
osh_status osh_plan_carry(osh_ctx *cx, const osh_schedule *p, osh_matching *match);
/* cut.c: cuts subgraphs at the targets (none: at decoder layers), assigns Linears and folds to them
 * and fills their passes. */
osh_status osh_plan_cut(osh_ctx *cx, osh_schedule *p, osh_matching *match, osh_rewrites *rewrites,
                        const osh_strs *targets, int64_t per_subgraph);
/* cut.c: fills passes from the wants of Linears and folds. */
osh_status osh_plan_passes(osh_ctx *cx, osh_schedule *p);
osh_span osh_linears_of(const osh_schedule *p, int subgraph, int n_subgraphs);
int osh_subgraph_of(const osh_schedule *p, int node); // -1: none
/* batches.c: makes batches of `size` samples; a GPU has a size of its own. osh_plan_batch_size
 * returns the size: --batch-size, or one that it chooses. */
osh_status osh_plan_batches(osh_ctx *cx, osh_schedule *p, int64_t size);
int64_t osh_plan_batch_size(osh_ctx *cx, const osh_schedule *p);
/* True if some batch runs sample by sample (osh_exec_by_sample). */
bool osh_plan_by_sample(const osh_schedule *p, int n_threads);

/* A GPU makes Hessians of whole batches, each with enough samples to have this many tokens, or with
 * the last samples of a group. The number decides output bytes. */
#ifndef OSH_DEVICE_BATCH_TOKENS // smaller in a tool of the tests
#define OSH_DEVICE_BATCH_TOKENS 16384
#endif
/* End of the batch that begins with sample `first`, if no group ends before. */
int64_t osh_batch_end_on_device(const osh_dataset *d, int64_t first);
#endif
