/* run.h - the state of a run, and functions that all three pipelines use for progress, for solving
 * the Linears of subgraphs, and for passing results to the emitter. */
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
    const osh_budget *budget; // view: budget of the plan, or of the current traversal
    osh_emitter *emitter; // own
    osh_result *results;  // own [linears]
    osh_progress progress;
    bool learning; // the current solve learns codes
    double lost,
        lost_nearest; // sums over the subgraph's Linears: objective of the solve, and objective of
                      // rounding to nearest
    osh_pace pace; // own
    osh_coverage *coverage; // own; NULL: tokens of experts are not counted
    osh_acts *acts; // view: store of values; NULL: there is no loop over subgraphs
    double started;
    bool entered;         // the run has begun a subgraph
    bool profiling;       // the run, not the caller, has started the profile
    bool logging;         // the run has opened the log file
    osh_cuda_mark *phase_begin; // own: with a device: mark at the beginning of the current phase
    double device_seconds[OSH_N_PHASES]; // seconds of each phase on the device's clock
} osh_run;


/* track.c: opens the log file and starts the profile if the options ask for it. Called before the
 * plan is made. */
osh_status osh_run_watch(osh_ctx *cx, osh_run *r, const osh_options *opt);
/* Begins the estimate of the time, the samples of device memory, and the log file in the output
 * directory if no other log file is open. The plan and the emitter must exist. */
osh_status osh_run_start(osh_ctx *cx, osh_run *r);
/* Begins the estimate of the time anew after r->budget was set to that of another traversal. */
osh_status osh_run_traverse(osh_ctx *cx, osh_run *r);
/* Ends everything that osh_run_watch and osh_run_start began. Also called after a failure. */
void osh_run_unwatch(osh_ctx *cx, osh_run *r, osh_status rc);
/* Begins a phase of a subgraph for the profile, the log and the estimate of the time. subgraph < 0:
 * the phase belongs to no subgraph. The caller passes the scope to osh_run_end. */
osh_scope osh_run_begin(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph);
/* Begins a part of a phase (osh_pace_begin). Otherwise like osh_run_begin. */
osh_scope osh_run_begin_part(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph, double share);
/* Shows the progress. fraction: part of the phase that is done. n_tokens: tokens that ran through
 * the model since the last step. */
void osh_run_step(osh_ctx *cx, osh_run *r, double fraction, int64_t n_tokens);
void osh_run_end(osh_ctx *cx, osh_run *r, osh_scope scope);
/* Resets the errors that the progress shows. */
void osh_run_no_error(osh_run *r);
/* Called before a subgraph begins: writes the records of stages that begin with this subgraph. */
void osh_run_entered(osh_ctx *cx, osh_run *r, const char *name);
/* Called when a subgraph is complete: shows its line and writes its checkpoints. */
void osh_run_finished(osh_ctx *cx, osh_run *r, const char *name);

typedef struct osh_solving { // subgraphs with complete statistics
    int first, n;     // first subgraph; number of subgraphs
    osh_stats *stats; // view
    osh_weights *w;   // view
    bool apart;       // small Linears are solved on several threads at once, for which the plan has
                      // memory
    bool *in_memory;  // view [linears]: set to true when `w` has the solved weight; NULL: `w` does
                      // not change
} osh_solving;

/* Compresses and emits every Linear of the subgraphs that has open statistics and is not done. */
osh_status osh_run_solve(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* block.c: learns and emits the Linears of one subgraph that learn from the output of their block
 * (schedule/blocks.h). */
osh_status osh_run_block(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* Gives one result to the emitter and records it in r->results. stats NULL: the Linear has no
 * statistics. */
osh_status osh_run_emit(osh_ctx *cx, osh_run *r, const osh_stats *stats, int linear,
                        osh_linear_job *j);
/* Compresses and emits one Linear that needs no data. Frees its weight *w and sets *w to NULL.
 * After a failure the caller may still own *w. */
osh_status osh_run_round(osh_ctx *cx, osh_run *r, int linear, osh_tensor **w);
/* Records the result of a Linear that output/stream.h has rounded. */
void osh_run_rounded(osh_ctx *cx, osh_run *r, int linear, double nmse);
/* True if every Linear of the subgraphs [first, first + n) that needs statistics is done. */
bool osh_run_solved(const osh_run *r, int first, int n);
/* sequential.c: runs the pipelines sequential and basic. */
osh_status osh_run_calibrated(osh_ctx *cx, osh_run *r);
/* Runs one visit with random activations. Everything else is done as in a run, so the visit needs
 * the same memory. */
osh_status osh_run_visit_alone(osh_ctx *cx, osh_run *r, int index);
/* tune.c: tunes codes, scales and norms of the finished output. Called after every solve and every
 * copy. */
osh_status osh_run_tune(osh_ctx *cx, osh_run *r);
/* datafree.c: rounds every Linear that is not done. */
osh_status osh_run_datafree(osh_ctx *cx, osh_run *r);
#endif
