/* eval.h - the job of `oneshot eval`. */
#ifndef OSH_EVAL_H
#define OSH_EVAL_H
#include "match/options.h"

/* Evaluates opt->model on opt->dataset, and against opt->reference if it is given. */
osh_status osh_eval(osh_ctx *cx, const osh_eval_options *opt, osh_sink sink, void *user);
/* *host: the smallest --host-memory for the evaluation of a run's output before it is made.
 * opt->model is the source of the run. */
osh_status osh_eval_predict(osh_ctx *cx, int64_t *host, const osh_eval_options *opt);
#endif
