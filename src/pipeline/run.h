/* run.h - what the three pipelines share: the emitter, the report, solving the Linears of a subgraph. */
#ifndef OSH_RUN_H
#define OSH_RUN_H
#include "pipeline/emit.h"
#include "pipeline/stats.h"

typedef struct osh_result { // of a Linear
    double nmse, objective;
    const char *fallback; // static; NULL: none
    bool done;
} osh_result;

typedef struct osh_run {
    const osh_plan *plan; // view
    osh_emitter *emitter; // own
    osh_result *results;  // own [linears]
    osh_progress progress;
    double started;
    double seconds_observe, seconds_solve, seconds_propagate, seconds_write;
} osh_run;

/* Compresses and emits every Linear of the subgraphs whose Linears the statistics cover; weights hold them. */
osh_status osh_run_solve(osh_ctx *cx, osh_run *r, osh_stats *stats, osh_weights *w,
                         int first_subgraph, int n_subgraphs);
osh_status osh_run_linear_without_data(osh_ctx *cx, osh_run *r, int linear); // reads the weight itself
osh_status osh_run_calibrated(osh_ctx *cx, osh_run *r); // sequential.c: sequential and basic
osh_status osh_run_datafree(osh_ctx *cx, osh_run *r);   // datafree.c
osh_status osh_run_report(osh_ctx *cx, char **json, const osh_run *r); // own
#endif
