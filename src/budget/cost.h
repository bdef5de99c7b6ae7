/* cost.h - counts the floating-point operations and the work (estimated seconds) of each phase of
 * each subgraph. */
#ifndef OSH_COST_H
#define OSH_COST_H
#include "budget/budget.h"
#include "schedule/visit.h"

/* Phases in the order in which they run. Each subgraph has the phases up to PROPAGATE. The whole
 * run has the later phases once. */
typedef enum {
    OSH_PHASE_OBSERVE,
    OSH_PHASE_SOLVE,
    OSH_PHASE_PROPAGATE,
    OSH_PHASE_ROUND, // read, round and write each Linear that needs no data
    OSH_PHASE_COPY,  // copy tensors that are not quantized
    OSH_PHASE_TUNE, // train codes, scales and norms to match the original model's predictions
    OSH_PHASE_SEAL,  // sync the files, and read the output back to check it
    OSH_N_PHASES
} osh_phase;
const char *osh_phase_name(osh_phase p); // returns "observe", ...

typedef struct osh_cost { // costs of one subgraph
    /* Number of floating-point operations (multiplications and additions) of matrix products,
     * statistics, factorizations of Hessians, and solves. Counts only necessary operations: of
     * attention the unmasked pairs, of a Hessian one triangle. */
    double flops[OSH_N_PHASES];
    /* Seconds of all work on the imaginary machine of cost.c. Only their ratios are used. */
    double work[OSH_N_PHASES];
    /* Work of a GPU in the passes, for the estimate of gpus.c.
     * done: number of operations of matrix products, also unnecessary ones.
     * sums: number of operations of statistics.
     * moved: bytes of values that ops read and write.
     * stored: bytes of values copied to and from the activation store.
     * loaded: bytes of weights copied to the GPU. */
    double done[OSH_N_PHASES], sums[OSH_N_PHASES], moved[OSH_N_PHASES], stored[OSH_N_PHASES],
        loaded[OSH_N_PHASES];
    /* Number of operations for factoring Hessians. flops[OSH_PHASE_SOLVE] includes them. */
    double factor_flops;
    /* Number of operations of searches for the factors of folds, which run on the host.
     * flops[OSH_PHASE_SOLVE] includes them. */
    double search_flops;
    /* Number of operations of GPTQ after a pruner, which run on the host also if the passes run on
     * a GPU. Neither flops[OSH_PHASE_SOLVE] nor factor_flops includes them. */
    double pruned_flops;
} osh_cost;

/* Computes the costs of a plan. *out (own) gets an element for each subgraph, or one for the whole
 * graph if the pipeline is basic. Its last element has the phases that belong to no subgraph. *n:
 * number of elements. */
osh_status osh_cost_new(osh_ctx *cx, osh_cost **out, int *n, const osh_budget *p);
/* Returns the work (seconds) of the Linear. It is a part of work[OSH_PHASE_SOLVE] if the Linear is
 * solved with data, else of work[OSH_PHASE_ROUND]. */
double osh_cost_of_linear(const osh_budget *p, int linear);
/* True if neither the pruner nor GPTQ solves the Linear on the GPU on which the passes run. */
bool osh_cost_leaves_gpu(const osh_budget *p, const osh_linear *l);
/* Returns the work (seconds) of the search for a fold's factors, or 0 if the factors need no
 * search. */
double osh_cost_of_fold(const osh_budget *p, const osh_fold *f);
typedef struct osh_visited { // one step of a visit; the pointers are views
    int index;          // index of the visit
    const osh_step *step;
    /* [graph values] true for values whose statistics the step collects; NULL: none. */
    const bool *stats;
} osh_visited;
/* Sets *share to the work of the step divided by the work of its phase. Sets *share to 1 if the
 * phase has only one pass. `cost` comes from osh_cost_new. */
osh_status osh_cost_share(osh_ctx *cx, double *share, const osh_budget *p, const osh_cost *cost,
                          const osh_visited *v);
/* osh_cost_of_nodes returns the work (seconds) of one pass of a dataset through the span `s` (nodes
 * [first, first + n) of the graph). Nodes that do not run cost nothing. osh_cost_of_head returns
 * the work of the output head. */
double osh_cost_of_nodes(const osh_exec_span *s, const osh_dataset *d);
double osh_cost_of_head(const osh_graph *g, const osh_dataset *d);
#endif
