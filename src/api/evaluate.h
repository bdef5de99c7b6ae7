/* evaluate.h - the evaluation of a finished output (--eval). */
#ifndef OSH_EVALUATE_H
#define OSH_EVALUATE_H
#include "api/api.h"

/* Adds the perplexity of the source and of the output to the reports of a finished output, and
 * prints both numbers. If the reports already have both numbers, only prints the numbers. */
osh_status osh_evaluate(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
/* Sets *host to the smallest --host-memory for osh_evaluate. The output need not exist yet. */
osh_status osh_evaluate_least(osh_ctx *cx, int64_t *host, const osh_options *opt);
#endif
