/* evaluate.h - what --eval asks for. */
#ifndef OSH_EVALUATE_H
#define OSH_EVALUATE_H
#include "api/api.h"

/* Of a finished output: perplexity before and after, into its reports; what they have is not measured again. */
osh_status osh_evaluate(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
#endif
