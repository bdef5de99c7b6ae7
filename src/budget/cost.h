/* cost.h - counts floating-point operations and work of each phase of each subgraph. */
#ifndef OSH_COST_H
#define OSH_COST_H
#include "budget/budget.h"
#include "schedule/visit.h"

/* Phases in the order in which a subgraph runs through them. The phases from ROUND on belong to no
 * subgraph. */
typedef enum {
    OSH_PHASE_OBSERVE,
    OSH_PHASE_SOLVE,
    OSH_PHASE_PROPAGATE,
    OSH_PHASE_ROUND, // Linears without data: each is read, rounded and written
    OSH_PHASE_COPY,  // tensors that are copied bit for bit
    OSH_PHASE_TUNE,  // codes, scales and norms learn from the original's predictions
    OSH_PHASE_SEAL,  // files are synced and the output is read again
    OSH_N_PHASES
} osh_phase;
const char *osh_phase_name(osh_phase p); // "observe", ...

typedef struct osh_cost { // costs of one subgraph
    /* Multiplications and additions of the necessary matrix products, statistics, factors and
     * solves: attention counts the causal half, a Hessian its triangle. */
    double flops[OSH_N_PHASES];
    double work[OSH_N_PHASES]; // all work, in seconds of the imaginary machine; only ratios of work
                               // matter
    /* Work of a GPU in the passes, for estimate.c. done: operations of products and statistics,
     * also operations that are not necessary. moved: bytes of values that ops read and write.
     * stored: bytes of values that are copied to and from the store. loaded: bytes of weights. */
    double done[OSH_N_PHASES], moved[OSH_N_PHASES], stored[OSH_N_PHASES], loaded[OSH_N_PHASES];
    double factor_flops; // part of flops[OSH_PHASE_SOLVE]
} osh_cost;

/* *out (own): costs of each subgraph (pipeline basic: of the whole graph), and a last element for
 * ROUND, COPY and SEAL. *n: number of elements. */
osh_status osh_cost_new(osh_ctx *cx, osh_cost **out, int *n, const osh_budget *p);
/* Returns the Linear's part of work[OSH_PHASE_SOLVE], or of ROUND. */
double osh_cost_of_linear(const osh_budget *p, int linear);
/* Returns the work of the search for the fold's factors; 0: there is no search. */
double osh_cost_of_fold(const osh_budget *p, const osh_fold *f);
typedef struct osh_visited { // views: a step of a visit
    int index;          // index of the visit
    const osh_step *step;
    const bool *stats;  // [values] true for values that the step observes; NULL: none
} osh_visited;
/* Sets *share to the step's part of its phase, or to 1 if the phase is one pass. `cost` is the
 * result of osh_cost_new. */
osh_status osh_cost_share(osh_ctx *cx, double *share, const osh_budget *p, const osh_cost *cost,
                          const osh_visited *v);
/* Returns the work of one pass of a dataset through the nodes of a span that run, and of the scores
 * of the head. */
double osh_cost_of_nodes(const osh_exec_span *s, const osh_dataset *d);
double osh_cost_of_head(const osh_graph *g, const osh_dataset *d);
#endif
