/* cost.h - what each phase of each subgraph takes: floating-point operations. */
#ifndef OSH_COST_H
#define OSH_COST_H
#include "plan/visit.h"

/* In the order in which a subgraph goes through them; those from ROUND on belong to no subgraph. */
typedef enum {
    OSH_PHASE_OBSERVE,
    OSH_PHASE_SOLVE,
    OSH_PHASE_PROPAGATE,
    OSH_PHASE_ROUND, // Linears that want no data, each read, rounded, written
    OSH_PHASE_COPY,  // tensors that are copied bit for bit
    OSH_PHASE_TUNE,  // codes, scales and norms learn from the original's predictions
    OSH_PHASE_SEAL,  // fsync, the output read again
    OSH_N_PHASES
} osh_phase;
const char *osh_phase_name(osh_phase p); // "observe", ...

typedef struct osh_cost { // of one subgraph
    /* Multiplications and additions of the matrix products, statistics, factors and solves that are necessary:
     * attention counts the causal half, a Hessian its triangle. */
    double flops[OSH_N_PHASES];
    double work[OSH_N_PHASES]; // the same and all else, in seconds of an imaginary machine; only ratios matter
    /* What a card does in the passes, for estimate.c: operations of products and statistics, necessary or not; bytes of
     * values that ops read and write, that come from where values rest or go there, and of weights that are loaded. */
    double done[OSH_N_PHASES], moved[OSH_N_PHASES], stored[OSH_N_PHASES], loaded[OSH_N_PHASES];
    double factor_flops; // of flops[OSH_PHASE_SOLVE]
} osh_cost;

/* own: one for each subgraph (the pipeline basic: one for the whole graph), and one behind for ROUND, COPY and SEAL.
 * n: how many. */
osh_status osh_cost_new(osh_ctx *cx, osh_cost **out, int *n, const osh_plan *p);
/* Its share of work[OSH_PHASE_SOLVE], or of ROUND. */
double osh_cost_of_linear(const osh_plan *p, int linear);
double osh_cost_of_fold(const osh_plan *p, const osh_fold *f); // the same of its search; 0: it has none
typedef struct osh_visited { // a step of a visit; views
    int index;          // of the visit
    const osh_step *step;
    const bool *stats;  // [values] that it observes; NULL: none
} osh_visited;
/* What part of its phase that is: 1 where the phase is one pass. cost: as osh_cost_new has it. */
osh_status osh_cost_share(osh_ctx *cx, double *share, const osh_plan *p, const osh_cost *cost, const osh_visited *v);
/* Work of one pass of a dataset through a span's nodes that run; and of its scores by the head. */
double osh_cost_of_nodes(const osh_exec_span *s, const osh_dataset *d);
double osh_cost_of_head(const osh_graph *g, const osh_dataset *d);
#endif
