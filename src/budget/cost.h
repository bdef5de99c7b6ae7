/* cost.h - counts the floating-point operations and the work (estimated seconds) of each phase of
 * each subgraph. */
#ifndef OSH_COST_H
#define OSH_COST_H
#include "budget/budget.h"
#include "schedule/visit.h"

/* Phases in the order in which they run. Phases up to PROPAGATE belong to a subgraph, later phases
 * to the whole run. */
typedef enum {
    OSH_PHASE_OBSERVE,
    OSH_PHASE_SOLVE,
    OSH_PHASE_PROPAGATE,
    OSH_PHASE_ROUND, // reads, rounds and writes each Linear that needs no data
    OSH_PHASE_COPY,  // copies tensors that are not quantized
    OSH_PHASE_TUNE, // trains codes, scales and norms to match the predictions of the original model
    OSH_PHASE_SEAL,  // syncs the files, and reads the output back to check it
    OSH_N_PHASES
} osh_phase;
const char *osh_phase_name(osh_phase p); // "observe", ...

typedef struct osh_cost { // costs of one subgraph
    /* Number of multiplications and additions in the necessary matrix products, statistics,
     * factorizations of Hessians, and solves. Counts only the unmasked pairs of attention, and one
     * triangle of each Hessian. */
    double flops[OSH_N_PHASES];
    /* Seconds of all work on the imaginary machine of cost.c; only ratios are used. */
    double work[OSH_N_PHASES];
    /* Work of a GPU in the passes, for the estimate of gpus.c.
     * done: number of operations of matrix products and statistics, also unnecessary ones.
     * moved: bytes of values that ops read and write.
     * stored: bytes of values copied to and from the store.
     * loaded: bytes of weights. */
    double done[OSH_N_PHASES], moved[OSH_N_PHASES], stored[OSH_N_PHASES], loaded[OSH_N_PHASES];
    /* Number of operations for factoring Hessians, included in flops[OSH_PHASE_SOLVE]. */
    double factor_flops;
} osh_cost;

/* Computes the costs of a plan. *out (own): one element for each subgraph (for the whole graph if
 * the pipeline is basic), and a last element for the phases that belong to no subgraph. *n: number
 * of elements. */
osh_status osh_cost_new(osh_ctx *cx, osh_cost **out, int *n, const osh_budget *p);
/* Returns the work (seconds) of the Linear: its share of work[OSH_PHASE_SOLVE] if it is solved with
 * data, else of work[OSH_PHASE_ROUND]. */
double osh_cost_of_linear(const osh_budget *p, int linear);
/* Returns the work (seconds) of the search for a fold's factors; 0 if the factors are not searched
 * for. */
double osh_cost_of_fold(const osh_budget *p, const osh_fold *f);
typedef struct osh_visited { // one step of a visit; the pointers are views
    int index;          // index of the visit
    const osh_step *step;
    /* [graph values] true for values whose statistics the step collects; NULL: none. */
    const bool *stats;
} osh_visited;
/* Sets *share to the step's fraction of its phase, or to 1 if the phase is one pass. `cost` comes
 * from osh_cost_new. */
osh_status osh_cost_share(osh_ctx *cx, double *share, const osh_budget *p, const osh_cost *cost,
                          const osh_visited *v);
/* osh_cost_of_nodes returns the work of one pass of a dataset through the span `s` (nodes [first,
 * first + n) of the graph). Nodes that do not run cost nothing. osh_cost_of_head returns the work
 * of the output head. */
double osh_cost_of_nodes(const osh_exec_span *s, const osh_dataset *d);
double osh_cost_of_head(const osh_graph *g, const osh_dataset *d);
#endif
