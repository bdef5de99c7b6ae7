/* cost.h - counts the floating-point operations and the work (estimated seconds) of each phase of
 * each subgraph. */
#ifndef OSH_COST_H
#define OSH_COST_H
#include "budget/budget.h"
#include "schedule/visit.h"

/* Phases of a run, in their order. Each subgraph has the phases up to PROPAGATE. The whole run has
 * each of the later phases once. */
typedef enum {
    OSH_PHASE_OBSERVE,
    OSH_PHASE_SOLVE,
    OSH_PHASE_PROPAGATE,
    OSH_PHASE_ROUND, // reads, rounds and writes each Linear that needs no data
    OSH_PHASE_COPY,  // copies tensors that are not quantized
    /* trains codes, scales and norms, so that predictions match the original model's */
    OSH_PHASE_TUNE,
    OSH_PHASE_SEAL,  // syncs the files, and reads the output back to check it
    OSH_N_PHASES
} osh_phase;
const char *osh_phase_name(osh_phase p); // returns "observe", ...

typedef struct osh_cost { // costs of one subgraph
    /* Number of floating-point operations (multiplications and additions) of matrix products,
     * statistics, factorizations of Hessians, and solves. Only necessary operations count: the
     * unmasked pairs of an attention, and one triangle of a Hessian. */
    double flops[OSH_N_PHASES];
    /* Estimated seconds of all work on the imaginary machine of cost.c. Only the ratios of these
     * numbers are used. */
    double work[OSH_N_PHASES];
    /* Work of a GPU in passes, for the estimate in gpus.c.
     * done: operations of matrix products, including unnecessary ones.
     * sums: operations of statistics.
     * moved: bytes of values that ops read and write.
     * stored: bytes of values that are copied to and from the activation store.
     * loaded: bytes of weights that are copied to the GPU. */
    double done[OSH_N_PHASES], sums[OSH_N_PHASES], moved[OSH_N_PHASES], stored[OSH_N_PHASES],
        loaded[OSH_N_PHASES];
    /* Operations for factoring Hessians. They are a part of flops[OSH_PHASE_SOLVE]. */
    double factor_flops;
    /* Number of operations of the searches for factors of folds. The host does them. They are a
     * part of flops[OSH_PHASE_SOLVE]. */
    double search_flops;
    /* Number of operations of GPTQ after a pruner. The host does them, even if the passes run on a
     * GPU. Neither flops[OSH_PHASE_SOLVE] nor factor_flops includes them. */
    double pruned_flops;
    /* Number of operations of learning by block. They are a part of flops[OSH_PHASE_SOLVE]. */
    double block_flops;
    /* Number of operations of learning Linear by Linear, if the passes run on a GPU: the host does
     * them. Neither flops[OSH_PHASE_SOLVE] nor factor_flops includes them. */
    double learned_flops;
} osh_cost;

/* Computes the costs of a plan. *out (own): an array with an element for each subgraph. If the
 * pipeline is `basic`, there is one element for the whole graph instead. The last element is for
 * the phases of the whole run. *n: number of all elements. */
osh_status osh_cost_new(osh_ctx *cx, osh_cost **out, int *n, const osh_budget *p);
/* Returns the work (estimated seconds) of the Linear. If the Linear is solved with data, this work
 * is a part of work[OSH_PHASE_SOLVE], otherwise of work[OSH_PHASE_ROUND]. */
double osh_cost_of_linear(const osh_budget *p, int linear);
/* True if matrix products of the host decide codes or factors although the passes run on a GPU: the
 * host solves or learns a Linear, or searches the factors of a fold. */
bool osh_cost_uses_host(const osh_budget *p);
/* True if the passes run on a GPU, but the host prunes and solves the Linear, or learns its
 * codes. */
bool osh_cost_leaves_gpu(const osh_budget *p, const osh_linear *l);
/* Returns the work (estimated seconds) of the search for the factors of fold f, or 0 if there is no
 * search. */
double osh_cost_of_fold(const osh_budget *p, const osh_fold *f);
typedef struct osh_visited { // a step of a visit; the pointers are views
    int index;          // index of the visit
    const osh_step *step;
    /* [graph values] true for values whose statistics the step collects; NULL: it collects none */
    const bool *stats;
} osh_visited;
/* Sets *share to the work of the step divided by the work of its phase, or to 1 if the phase has
 * only one pass. cost: result of osh_cost_new. */
osh_status osh_cost_share(osh_ctx *cx, double *share, const osh_budget *p, const osh_cost *cost,
                          const osh_visited *v);
/* osh_cost_of_nodes returns the work (estimated seconds) of one pass of the data `d` through the
 * nodes of `s`. Nodes that do not run cost nothing. osh_cost_of_head returns the work of the output
 * head. */
double osh_cost_of_nodes(const osh_exec_span *s, const osh_dataset *d);
double osh_cost_of_head(const osh_graph *g, const osh_dataset *d);
#endif
