/* evaluate.h - runs the evaluation of a finished output, on the text of --eval or on rows of the
 * calibration data set (held_back.h). */
#ifndef OSH_EVALUATE_H
#define OSH_EVALUATE_H
#include "api/api.h"

/* Measures the perplexity of the source and of a finished output, adds both numbers to the reports
 * of the output, and prints them. The text is opt->eval. If opt->eval is not given, the text is the
 * rows opt->held_splits of the calibration data set. If the reports already have both numbers, only
 * prints them. */
osh_status osh_evaluate(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
/* Evaluates opt->held_splits like osh_evaluate. Does nothing if the run used no calibration data.
 * If there are no rows to evaluate, `not` is the reason, and the function only prints this reason.
 * Otherwise `not` is NULL. A failure is only a warning, because the user did not ask for the
 * numbers. */
osh_status osh_evaluate_held(osh_ctx *cx, const osh_options *opt, const char *not, osh_sink sink,
                             void *user);
/* Sets *host to the smallest --host-memory for osh_evaluate. The output need not exist yet. */
osh_status osh_evaluate_least(osh_ctx *cx, int64_t *host, const osh_options *opt);
#endif
