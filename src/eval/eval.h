/* eval.h - the job of `oneshot eval`. */
#ifndef OSH_EVAL_H
#define OSH_EVAL_H
#include "plan/options.h"

osh_status osh_eval(osh_ctx *cx, const osh_eval_options *opt, osh_sink sink, void *user);
/* The smallest --host-memory for the evaluation of a model that a run is going to make of opt->model, against that. */
osh_status osh_eval_predict(osh_ctx *cx, int64_t *host, const osh_eval_options *opt);
#endif
