/* results.h - moves results of Linears to rank 0, which writes them to the output. The results come
 * from the ranks that have solved the Linears. */
#ifndef OSH_RESULTS_H
#define OSH_RESULTS_H
#include "run/run.h"

/* Sends the result of a Linear to rank 0. Takes ownership of j->codes, of the tensors in j->params,
 * and of *in_scale and *in_zero. If more memory is in use than planned, first waits until earlier
 * results are sent. */
osh_status osh_result_send(osh_ctx *cx, osh_run *r, int linear, osh_linear_job *j,
                           osh_tensor **in_scale, osh_tensor **in_zero);
/* All ranks call this function when they have solved their Linears. todo [linears]: true for each
 * Linear that one of the ranks was to solve. Returns when rank 0 has all results. The Linears are
 * then done on all ranks. */
osh_status osh_results_finish(osh_ctx *cx, osh_run *r, const bool *todo);
/* Rank 0: receives the results that have arrived, and passes them to the emitter. */
osh_status osh_results_take(osh_ctx *cx, osh_run *r);
#endif
