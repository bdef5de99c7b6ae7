/* sweep.h - the progress of a measurement that runs a model subgraph by subgraph: the remaining
 * time and the rate, from the work of budget/cost.h. */
#ifndef OSH_SWEEP_H
#define OSH_SWEEP_H
#include "eval/forward.h"

typedef struct osh_sweep {
    osh_progress *pr; // view
    double *work;  // own [subgraphs]: work of one run of each subgraph
    double *times; // own [subgraphs]: how many times each subgraph runs; osh_sweep_open sets 1
    int n;         // number of subgraphs
    double begun;  // time at which the measurement began
    double before; // work of the parts that are complete
    double tokens; // tokens of the data
} osh_sweep;
/* Computes the work of each subgraph. osh_sweep_close frees the members. */
osh_status osh_sweep_open(osh_ctx *cx, osh_sweep *p, osh_progress *pr, const osh_forward *f,
                          const osh_dataset *d);
void osh_sweep_close(osh_ctx *cx, osh_sweep *p);
/* Begins the measurement. `more`: work besides the runs of subgraphs. */
void osh_sweep_begin(osh_sweep *p, double more);
/* Shows that `done` of `total` equal parts of an amount of work are complete. The name and the
 * phase are those of p->pr. If all are complete, the amount counts as complete. */
void osh_sweep_show(osh_ctx *cx, osh_sweep *p, double work, int64_t done, int64_t total);
/* Shows that a subgraph is complete. */
void osh_sweep_end(osh_ctx *cx, osh_sweep *p, int subgraph);
#endif
