/* run.h - what the three pipelines share: the emitter, the report, solving the Linears of a subgraph. */
#ifndef OSH_RUN_H
#define OSH_RUN_H
#include "base/profile.h"
#include "gpu/gpu.h"
#include "output/emit.h"
#include "run/coverage.h"
#include "run/pace.h"
#include "run/stats.h"

typedef struct osh_run {
    const osh_plan *plan; // view
    osh_emitter *emitter; // own
    osh_result *results;  // own [linears]
    osh_progress progress;
    bool learning; // a solve is of codes that learn
    double lost, lost_nearest; // by the subgraph's Linears so far, and rounded to nearest
    osh_pace pace; // own
    osh_coverage *coverage; // own; NULL: no experts are counted
    osh_acts *acts; // view: while values are there (block.c)
    double started;
    bool entered;         // a subgraph
    bool profiling;       // the profile was started here, not by the caller
    bool logging;         // so was the log file
    osh_cuda_mark *phase_begin; // own: with a device, of the phase that is open
    double device_seconds[OSH_N_PHASES]; // by the device's clock
} osh_run;

/* track.c: what is watched of a run. watch comes before the plan: profile, log file. unwatch also after a failure. */
osh_status osh_run_watch(osh_ctx *cx, osh_run *r, const osh_options *opt);
osh_status osh_run_start(osh_ctx *cx, osh_run *r); // plan and emitter are there
osh_status osh_run_traverse(osh_ctx *cx, osh_run *r); // of several (plan/traversals.h), the plan is set to another
void osh_run_unwatch(osh_ctx *cx, osh_run *r, osh_status rc);
/* A phase of a subgraph (< 0: of none) for the profile, the log and the time to go. */
osh_scope osh_run_begin(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph);
osh_scope osh_run_begin_part(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph, double share); // as osh_pace_begin
/* fraction of the phase that is done; n_tokens went through since the last step. Shows the progress. */
void osh_run_step(osh_ctx *cx, osh_run *r, double fraction, int64_t n_tokens);
void osh_run_end(osh_ctx *cx, osh_run *r, osh_scope scope);
void osh_run_no_error(osh_run *r); // of what comes now
void osh_run_entered(osh_ctx *cx, osh_run *r, const char *name);  // a subgraph is about to begin
void osh_run_finished(osh_ctx *cx, osh_run *r, const char *name); // a subgraph is complete: its line

typedef struct osh_solving { // subgraphs whose statistics are complete
    int first, n;     // subgraphs
    osh_stats *stats; // view: theirs
    osh_weights *w;   // view: theirs
    bool apart;       // small ones are solved beside each other, as the plan has room for
    bool *in_memory;  // view: [linears]: is set where w has the solved weight then; NULL: w stays as it is
} osh_solving;

/* Compresses and emits every Linear of the subgraphs. */
osh_status osh_run_solve(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* The same of those that learn from the output of their block (plan/blocks.h), of one subgraph; block.c. */
osh_status osh_run_block(osh_ctx *cx, osh_run *r, const osh_solving *s);
osh_status osh_run_emit(osh_ctx *cx, osh_run *r, const osh_stats *stats, int linear, osh_linear_job *j); // a result
/* Compresses and emits one that wants no data. Takes *w, its weight; it may stay where this fails. */
osh_status osh_run_round(osh_ctx *cx, osh_run *r, int linear, osh_tensor **w);
void osh_run_rounded(osh_ctx *cx, osh_run *r, int linear, double nmse); // a stream has done it
/* Whether every Linear of the subgraphs [first, first + n) that needs statistics is done. */
bool osh_run_solved(const osh_run *r, int first, int n);
osh_status osh_run_calibrated(osh_ctx *cx, osh_run *r); // sequential.c: sequential and basic
/* One visit on made-up activations, everything else as in the run: its memory is the run's. */
osh_status osh_run_visit_alone(osh_ctx *cx, osh_run *r, int index);
osh_status osh_run_tune(osh_ctx *cx, osh_run *r);       // tune.c: behind both, and behind copies
osh_status osh_run_datafree(osh_ctx *cx, osh_run *r);   // datafree.c: every Linear that is not done
#endif
