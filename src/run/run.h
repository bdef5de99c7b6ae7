/* run.h - declares the state of a run, and functions that all pipelines use to show progress, to
 * solve Linears, and to pass results to the emitter. */
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
    /* view: budget of the plan; if there are several traversals, budget of the current traversal */
    const osh_budget *budget;
    osh_emitter *emitter; // own
    osh_result *results;  // own [linears]
    osh_progress progress;
    bool learning; // true if the current solve learns codes by gradients
    /* Sums over the solved Linears of the current subgraph.
     * lost: objective (error) of the solves.
     * lost_nearest: objective of rounding to nearest. */
    double lost, lost_nearest;
    osh_pace pace; // own
    /* Numbers of tokens that each expert gets; NULL: the model has no routers. */
    osh_coverage *coverage; // own
    /* The ranks that divide the samples; NULL: this process runs all samples. */
    osh_ranks *ranks; // view
    osh_rank_time mine;   // times of the phases on this rank
    /* own [ranks], only on rank 0: times of all ranks; NULL: no work is divided */
    osh_rank_time *times;
    osh_acts *acts; // view: the activation store; NULL: the pipeline is datafree
    double started;
    double began;  // osh_now at osh_run_start
    double before; // fraction of the job's work that earlier processes have done
    bool traversed; // true if osh_run_traverse was called before
    bool entered;         // true after this process has begun a subgraph
    bool profiling;       // true if this run has begun the profile and must end it
    bool logging;         // true if this run has opened the log file, and must close it
    /* own, with a device: mark at the beginning of the current phase, from which its time is
     * measured */
    osh_device_mark *phase_begin;
    double device_seconds[OSH_N_PHASES]; // seconds of each phase, measured by the GPU
} osh_run;


/* Opens the log file and begins the profile, if options ask for them. Called before the plan is
 * made. (The function is in track.c.) */
osh_status osh_run_watch(osh_ctx *cx, osh_run *r, const osh_options *opt);
/* Begins the time estimate and the measurement of GPU memory. If no log file is open, opens one in
 * the output directory. Called after the plan and the emitter are made. */
osh_status osh_run_start(osh_ctx *cx, osh_run *r);
/* Begins a new time estimate for the next traversal. Called after r->budget is set. */
osh_status osh_run_traverse(osh_ctx *cx, osh_run *r);
/* Ends the profile, the log and the measurements that osh_run_watch and osh_run_start have begun.
 * Must also be called after a failure. rc: status of the run. */
void osh_run_unwatch(osh_ctx *cx, osh_run *r, osh_status rc);
/* Begins a phase of a subgraph for the profile, the log and the time estimate. If `subgraph` is
 * negative, the phase belongs to no subgraph. The caller passes the result to osh_run_end. */
osh_scope osh_run_begin(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph);
/* Works like osh_run_begin, but begins only the fraction `share` of the phase (osh_pace_begin). */
osh_scope osh_run_begin_part(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph, double share);
/* Shows the progress. fraction: finished fraction of what osh_run_begin or osh_run_begin_part has
 * begun. */
void osh_run_step(osh_ctx *cx, osh_run *r, double fraction);
void osh_run_end(osh_ctx *cx, osh_run *r, osh_scope scope);
/* Resets the errors that the progress line shows. */
void osh_run_no_error(osh_run *r);
/* Called before a subgraph begins. Writes the records of the --checkpoint stages that begin with
 * this subgraph. */
void osh_run_entered(osh_ctx *cx, osh_run *r, const char *name);
/* Called when a subgraph is complete. Shows the line of the subgraph. Writes the records that
 * --checkpoint requests for this subgraph. */
void osh_run_finished(osh_ctx *cx, osh_run *r, const char *name);

typedef struct osh_solving { // arguments of osh_run_solve: subgraphs whose statistics are complete
    int first, n;     // the subgraphs [first, first + n)
    osh_stats *stats; // view
    osh_weights *w;   // view
    bool apart; // true if small Linears are solved in parallel (the plan has counted the memory)
    /* [linears] If it is not NULL, the solve replaces the weight of each solved Linear in `w`, and
     * sets the Linear's element to true. If it is NULL, the solve does not change `w`. */
    bool *in_memory;  // view
} osh_solving;

/* Solves the Linears of the subgraphs, except those that are done or have incomplete statistics.
 * Passes each result to the emitter. */
osh_status osh_run_solve(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* Some Linears of a subgraph learn from the output of a block (schedule/blocks.h). Learns the codes
 * of these Linears, and passes the results to the emitter. (The function is in block.c.) */
osh_status osh_run_block(osh_ctx *cx, osh_run *r, const osh_solving *s);
/* Called if the importance of a Linear's input channels is not known, because no token ran or all
 * inputs were 0. Does nothing if the observer needs no importance. Fails if the observer's option
 * `strict` is set. Otherwise warns. */
osh_status osh_run_unweighted(osh_ctx *cx, const osh_linear_job *j);
/* Passes the result of a Linear to the emitter, which writes it. Also records it in r->results.
 * stats: statistics for the Linear's static scales; NULL: the Linear needs no data. */
osh_status osh_run_emit(osh_ctx *cx, osh_run *r, const osh_stats *stats, int linear,
                        osh_linear_job *j);
/* Records the result of a Linear in r->results, and shows it in the log and in the progress. */
void osh_run_record(osh_ctx *cx, osh_run *r, int linear, const osh_linear_job *j);
/* Rounds a Linear that needs no data, and passes the result to the emitter. Frees the weight *w and
 * sets *w to NULL. After a failure, *w may still be the weight, which then belongs to the
 * caller. */
osh_status osh_run_round(osh_ctx *cx, osh_run *r, int linear, osh_tensor **w);
/* Records the result of a Linear that a stream has rounded (output/stream.h). */
void osh_run_rounded(osh_ctx *cx, osh_run *r, int linear, double nmse);
/* True if, in the subgraphs [first, first + n), all Linears that need data are done. */
bool osh_run_solved(const osh_run *r, int first, int n);
/* Runs the pipelines sequential and basic. (The function is in sequential.c.) */
osh_status osh_run_calibrated(osh_ctx *cx, osh_run *r);
/* Runs a single visit, with random values in the activation store. Apart from these values, the
 * visit does the same as in a run, so it needs the same memory. */
osh_status osh_run_visit_alone(osh_ctx *cx, osh_run *r, int index);
/* Tunes codes, scales and norms of the output. Called after all Linears are solved and all tensors
 * are copied. (The function is in tune.c.) */
osh_status osh_run_tune(osh_ctx *cx, osh_run *r);
/* Rounds all Linears that need no data and are not done. (The function is in datafree.c.) */
osh_status osh_run_datafree(osh_ctx *cx, osh_run *r);
/* Reads the weight of a Linear to *w [O, I] (own, memory class OSH_MEM_DEVICE), in the dtype of the
 * source. */
osh_status osh_linear_read(osh_ctx *cx, osh_tensor **w, const osh_budget *p, int linear);
#endif
