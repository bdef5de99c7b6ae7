/* results.h - moves results of solved Linears from the ranks that have solved them to rank 0, which
 * writes them. */
#ifndef OSH_RESULTS_H
#define OSH_RESULTS_H
#include "run/run.h"

/* Sends the result of a job to rank 0. Takes ownership of codes and params of the job, and of
 * *in_scale and *in_zero. If more memory is in use than planned, first waits until earlier results
 * are sent. */
osh_status osh_result_send(osh_ctx *cx, osh_run *r, int linear, osh_linear_job *j,
                           osh_tensor **in_scale, osh_tensor **in_zero);
/* Called by all ranks when they have solved their Linears. `todo` [linears]: Linears of all ranks
 * that were to be solved. Returns when rank 0 has all results. The Linears are then done on all
 * ranks. */
osh_status osh_results_finish(osh_ctx *cx, osh_run *r, const bool *todo);
/* Rank 0: takes results that have come, and passes them to the emitter. */
osh_status osh_results_take(osh_ctx *cx, osh_run *r);
#endif
