/* eval.h - declares the job of `oneshot eval`. */
#ifndef OSH_EVAL_H
#define OSH_EVAL_H
#include "match/options.h"

/* Evaluates opt->model on opt->dataset. If opt->reference is not NULL, compares the model with the
 * reference. */
osh_status osh_eval(osh_ctx *cx, const osh_eval_options *opt, osh_sink sink, void *user);
/* Predicts before a run how much memory an evaluation of the run's output will need. Sets *host to
 * the smallest --host-memory for this evaluation. opt->model is the source of the run. */
osh_status osh_eval_predict(osh_ctx *cx, int64_t *host, const osh_eval_options *opt);
#endif
