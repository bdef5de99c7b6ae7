/* sweep.h - reports the progress of a measurement that runs a model subgraph by subgraph. Computes
 * the remaining time and the rate from the work that budget/cost.h estimates. */
#ifndef OSH_SWEEP_H
#define OSH_SWEEP_H
#include "eval/forward.h"

typedef struct osh_sweep {
    osh_progress *pr; // view
    osh_ranks *ranks; // view: ranks that run the measurement; NULL: this process alone
    double *work;  // own [subgraphs]: work of all passes in the steps of each subgraph
    double *times; // own [subgraphs]: how many times these passes run; osh_sweep_open sets 1
    int n;         // number of subgraphs
    double begun;  // time at which the measurement began
    double done;   // work of the subgraphs that are complete
    double before; // `done` plus the work of the complete parts of the current subgraph
    double tokens; // tokens of the data
} osh_sweep;
/* Computes the work of each subgraph. osh_sweep_close frees the members. */
osh_status osh_sweep_open(osh_ctx *cx, osh_sweep *p, osh_progress *pr, const osh_forward *f,
                          const osh_dataset *d);
void osh_sweep_close(osh_ctx *cx, osh_sweep *p);
/* Begins the measurement. `more`: work besides the runs of subgraphs. */
void osh_sweep_begin(osh_sweep *p, double more);
/* Shows the progress in a piece of work: `done` of its `total` equal parts are complete. `work` is
 * the amount of work of the whole piece. If all parts are complete, adds `work` to the completed
 * work. The name and the phase are those of p->pr. */
void osh_sweep_show(osh_ctx *cx, osh_sweep *p, double work, int64_t done, int64_t total);
/* Runs subgraph `index` with the visitor `v`, and shows the progress. The subgraph is step `step`
 * of the progress. */
osh_status osh_sweep_visit(osh_ctx *cx, osh_sweep *p, const osh_forward *f, int index, int64_t step,
                           const osh_forward_visitor *v);
/* Runs all subgraphs with the visitor `v`, in order. */
osh_status osh_sweep_walk(osh_ctx *cx, osh_sweep *p, const osh_forward *f,
                          const osh_forward_visitor *v);
#endif
