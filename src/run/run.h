/* run.h - the state of a run, and the functions that all three pipelines share: progress, solving
 * the Linears of subgraphs, handing results to the emitter. */
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
    bool learning; // the present solve learns codes
    double lost,
        lost_nearest; // sums over the subgraph's Linears: objective, and of rounding to nearest
    osh_pace pace; // own
    osh_coverage *coverage; // own; NULL: the tokens of experts are not counted
    osh_acts *acts; // view: the store of values; NULL: no loop over subgraphs runs
    double started;
    bool entered;         // the run has entered a subgraph
    bool profiling;       // the run started the profile, not the caller
    bool logging;         // the run opened the log file
    osh_cuda_mark *phase_begin; // own: with a device, begin of the open phase
    double device_seconds[OSH_N_PHASES]; // seconds of each phase by the device's clock
} osh_run;

/* track.c */

/* Opens the log file and starts the profile, as the options say. Call it before the plan is
 * made. */
osh_status osh_run_watch(osh_ctx *cx, osh_run *r, const osh_options *opt);
/* Begins the time to go, the samples of device memory, and the log file in the output directory if
 * no other is open. The plan and the emitter must exist. */
osh_status osh_run_start(osh_ctx *cx, osh_run *r);
/* Starts the time to go anew after the plan was set to another traversal (plan/traversals.h). */
osh_status osh_run_traverse(osh_ctx *cx, osh_run *r);
/* Ends what osh_run_watch and osh_run_start began. Call it after a failure, too. */
void osh_run_unwatch(osh_ctx *cx, osh_run *r, osh_status rc);
/* Begins a phase of a subgraph for the profile, the log and the time to go. subgraph < 0: the phase
 * belongs to none. The caller gives the scope to osh_run_end. */
osh_scope osh_run_begin(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph);
/* Begins a share of a phase (osh_pace_begin); else like osh_run_begin. */
osh_scope osh_run_begin_part(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph, double share);
/* Shows the progress. fraction: part of the phase that is done; n_tokens: tokens that went through
 * the model since the last step. */
void osh_run_step(osh_ctx *cx, osh_run *r, double fraction, int64_t n_tokens);
void osh_run_end(osh_ctx *cx, osh_run *r, osh_scope scope);
/* Resets the errors that the progress shows. */
void osh_run_no_error(osh_run *r);
/* A subgraph is about to begin: writes the checkpoints of stages that begin here. */
void osh_run_entered(osh_ctx *cx, osh_run *r, const char *name);
/* A subgraph is complete: shows its line and writes its checkpoints. */
void osh_run_finished(osh_ctx *cx, osh_run *r, const char *name);

typedef struct osh_solving { // subgraphs whose statistics are complete
    int first, n;     // subgraphs
    osh_stats *stats; // view
    osh_weights *w;   // view
    bool apart;       // small Linears are solved on several threads at once; the plan has room
    bool *in_memory;  // view: [linears]: set once w has the solved weight; NULL: w does not change
} osh_solving;

/* Compresses and emits every Linear of the subgraphs that has open statistics and is not done. */
osh_status osh_run_solve(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* Compresses and emits the Linears of one subgraph that learn from the output of their block
 * (schedule/blocks.h). block.c. */
osh_status osh_run_block(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* Hands one result to the emitter and records it in r->results. stats NULL: the Linear has none. */
osh_status osh_run_emit(osh_ctx *cx, osh_run *r, const osh_stats *stats, int linear,
                        osh_linear_job *j);
/* Compresses and emits one Linear that wants no data. Frees its weight *w and sets *w to NULL;
 * after a failure the caller may still own *w. */
osh_status osh_run_round(osh_ctx *cx, osh_run *r, int linear, osh_tensor **w);
/* Records the result of a Linear that output/stream.h rounded. */
void osh_run_rounded(osh_ctx *cx, osh_run *r, int linear, double nmse);
/* True if every Linear of the subgraphs [first, first + n) that needs statistics is done. */
bool osh_run_solved(const osh_run *r, int first, int n);
/* Runs the pipelines sequential and basic. sequential.c. */
osh_status osh_run_calibrated(osh_ctx *cx, osh_run *r);
/* Runs one visit on made-up activations. All else is as in a run, so it takes the same memory. */
osh_status osh_run_visit_alone(osh_ctx *cx, osh_run *r, int index);
/* Tunes the finished output. Call it after every solve and every copy. tune.c. */
osh_status osh_run_tune(osh_ctx *cx, osh_run *r);
/* Rounds every Linear that is not done. datafree.c. */
osh_status osh_run_datafree(osh_ctx *cx, osh_run *r);
#endif
