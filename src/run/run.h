/* run.h - the state of a run, and functions of all pipelines for progress, for solving Linears, and
 * for passing results to the emitter. */
#ifndef OSH_RUN_H
#define OSH_RUN_H
#include "base/profile.h"
#include "output/emit.h"
#include "run/coverage.h"
#include "run/pace.h"
#include "run/stats.h"
#include "run/times.h"

typedef struct osh_run {
    const osh_plan *plan; // view
    const osh_budget *budget; // view: budget of the plan, or of the current traversal
    osh_emitter *emitter; // own
    osh_result *results;  // own [linears]
    osh_progress progress;
    bool learning; // true if the current solve learns codes by gradients
    /* Sums over the solved Linears of the subgraph.
     * lost: objective (error) of the solve.
     * lost_nearest: objective of rounding to nearest. */
    double lost, lost_nearest;
    osh_pace pace; // own
    /* Counts of the tokens of each expert; NULL: the model has no routers. */
    osh_coverage *coverage; // own
    /* The ranks among which samples are divided; NULL: this process runs all samples. */
    osh_ranks *ranks; // view
    osh_rank_time mine;   // times of this rank
    osh_rank_time *times; // own [ranks], on rank 0: times of all ranks; NULL: nothing is divided
    osh_acts *acts; // view: store of values; NULL: the pipeline is datafree
    double started;
    double began;  // osh_now at osh_run_start
    double before; // fraction of the job's work that an earlier process has done
    bool traversed; // true after osh_run_traverse was called
    bool entered;         // true after this process has begun a subgraph
    bool profiling;       // true if this run has started the profile, and must stop it
    bool logging;         // true if this run has opened the log file, and must close it
    osh_device_mark *phase_begin; // own, with a device: mark at the beginning of the current phase
    double device_seconds[OSH_N_PHASES]; // seconds of each phase, measured by the GPU
} osh_run;


/* track.c: opens the log file and starts the profile if options ask for it. Called before the plan
 * is made. */
osh_status osh_run_watch(osh_ctx *cx, osh_run *r, const osh_options *opt);
/* Begins the time estimate, and the measurement of GPU memory. Opens the log file in the output
 * directory if no other log file is open. Called after plan and emitter are made. */
osh_status osh_run_start(osh_ctx *cx, osh_run *r);
/* Begins a new time estimate for the next traversal. Called after r->budget was set. */
osh_status osh_run_traverse(osh_ctx *cx, osh_run *r);
/* Ends the profile, the log and the measurements that osh_run_watch and osh_run_start began. Also
 * called after a failure; rc: status of the run. */
void osh_run_unwatch(osh_ctx *cx, osh_run *r, osh_status rc);
/* Begins a phase of a subgraph for profile, log and time estimate. subgraph < 0: the phase belongs
 * to no subgraph. The caller passes the returned scope to osh_run_end. */
osh_scope osh_run_begin(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph);
/* Begins only the fraction `share` of a phase (osh_pace_begin). Otherwise works like
 * osh_run_begin. */
osh_scope osh_run_begin_part(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph, double share);
/* Shows the progress. fraction: finished fraction of the phase, or of the `share` that was
 * begun. */
void osh_run_step(osh_ctx *cx, osh_run *r, double fraction);
void osh_run_end(osh_ctx *cx, osh_run *r, osh_scope scope);
/* Resets the errors that the progress line shows. */
void osh_run_no_error(osh_run *r);
/* Called before a subgraph begins. Writes the records of --checkpoint for stages that begin with
 * this subgraph. */
void osh_run_entered(osh_ctx *cx, osh_run *r, const char *name);
/* Called when a subgraph is complete. Shows the line of the subgraph, and writes the records of
 * --checkpoint for the subgraph. */
void osh_run_finished(osh_ctx *cx, osh_run *r, const char *name);

typedef struct osh_solving { // arguments of osh_run_solve: subgraphs whose statistics are complete
    int first, n;     // subgraphs [first, first + n)
    osh_stats *stats; // view
    osh_weights *w;   // view
    bool apart;       // true if small Linears are solved in parallel, for which the plan has memory
    /* [linears] or NULL. If it is NULL, the solve does not change `w`. Otherwise the solve replaces
     * the weight of each solved Linear in `w`, and sets the Linear's element to true. */
    bool *in_memory;  // view
} osh_solving;

/* Solves each Linear of the subgraphs that is not done and has collected statistics. Passes each
 * result to the emitter. */
osh_status osh_run_solve(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* block.c: learns the codes of the Linears of a subgraph that learn from the output of a block
 * (schedule/blocks.h), and passes the codes to the emitter. */
osh_status osh_run_block(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* Called if the importance of the input channels is not known, because no token ran or all inputs
 * of the Linear were 0. If the observer needs the importance, fails if its option `strict` is set,
 * else warns. */
osh_status osh_run_unweighted(osh_ctx *cx, const osh_linear_job *j);
/* Passes the result of a Linear to the emitter, which writes the result. Records the result in
 * r->results. If `stats` is NULL, the Linear needs no data. */
osh_status osh_run_emit(osh_ctx *cx, osh_run *r, const osh_stats *stats, int linear,
                        osh_linear_job *j);
/* Records the result of a Linear in r->results, and shows it in log and progress. */
void osh_run_record(osh_ctx *cx, osh_run *r, int linear, const osh_linear_job *j);
/* Rounds a Linear that needs no data, and passes the result to the emitter. Frees the weight and
 * sets *w to NULL. After a failure, *w is NULL or still belongs to the caller. */
osh_status osh_run_round(osh_ctx *cx, osh_run *r, int linear, osh_tensor **w);
/* Records the result of a Linear that a stream has rounded (output/stream.h). */
void osh_run_rounded(osh_ctx *cx, osh_run *r, int linear, double nmse);
/* True if all Linears of subgraphs [first, first + n) that need data are done. */
bool osh_run_solved(const osh_run *r, int first, int n);
/* sequential.c: runs the pipelines sequential and basic. */
osh_status osh_run_calibrated(osh_ctx *cx, osh_run *r);
/* Runs a single visit with random values in the store. All other work is the same as in a run, so
 * the visit needs the same memory. */
osh_status osh_run_visit_alone(osh_ctx *cx, osh_run *r, int index);
/* tune.c: tunes codes, scales and norms of the output. Called after all Linears are solved and all
 * tensors are copied. */
osh_status osh_run_tune(osh_ctx *cx, osh_run *r);
/* datafree.c: rounds all Linears that need no data and are not done. */
osh_status osh_run_datafree(osh_ctx *cx, osh_run *r);
/* Reads the weight of a Linear: *w (own, memory class OSH_MEM_DEVICE) [O, I] in the dtype of the
 * source. */
osh_status osh_linear_read(osh_ctx *cx, osh_tensor **w, const osh_budget *p, int linear);
#endif
