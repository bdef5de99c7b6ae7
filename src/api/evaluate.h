/* evaluate.h - the evaluation of a finished output (--eval, or held_back.h). */
#ifndef OSH_EVALUATE_H
#define OSH_EVALUATE_H
#include "api/api.h"

/* Adds the perplexity of the source and of the output on opt->eval, or without it on
 * opt->held_splits of the data set, to the reports of a finished output, and prints both numbers.
 * If the reports already have both numbers, only prints the numbers. */
osh_status osh_evaluate(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
/* Works like osh_evaluate on opt->held_splits if the run used calibration data. If `not` is not
 * NULL, prints this reason instead. A failure is a warning, because nobody asked for the
 * figures. */
osh_status osh_evaluate_held(osh_ctx *cx, const osh_options *opt, const char *not, osh_sink sink,
                             void *user);
/* Sets *host to the smallest --host-memory for osh_evaluate. The output need not exist yet. */
osh_status osh_evaluate_least(osh_ctx *cx, int64_t *host, const osh_options *opt);
#endif
