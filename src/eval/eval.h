/* eval.h - the job of `oneshot eval`. */
#ifndef OSH_EVAL_H
#define OSH_EVAL_H
#include "plan/options.h"

osh_status osh_eval(osh_ctx *cx, const osh_eval_options *opt, osh_sink sink, void *user);
#endif
