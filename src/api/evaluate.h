/* evaluate.h - what --eval asks for. */
#ifndef OSH_EVALUATE_H
#define OSH_EVALUATE_H
#include "api/api.h"

/* Of a finished output: perplexity before and after, into its reports; what they have is not measured again. */
osh_status osh_evaluate(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
/* The smallest --host-memory for that, before there is an output. */
osh_status osh_evaluate_least(osh_ctx *cx, int64_t *host, const osh_options *opt);
#endif
