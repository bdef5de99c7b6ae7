/* experts.h - chooses the experts of each layer to keep (REAP): those whose outputs, times their
 * router weights, are the largest on the tokens that are routed to them (definition:
 * modifiers/experts.c). */
#ifndef OSH_EVAL_EXPERTS_H
#define OSH_EVAL_EXPERTS_H
#include "base/profile.h"
#include "plan/plan.h"

typedef struct osh_reaping osh_reaping;
/* p: a plan that was made with opt->measure. It must outlive *out (own). */
osh_status osh_reaping_open(osh_ctx *cx, osh_reaping **out, osh_plan *p);
void osh_reaping_close(osh_ctx *cx, osh_reaping *r);
/* *peak: host bytes (gross) that osh_reaping_run allocates. */
osh_status osh_reaping_bytes(osh_ctx *cx, int64_t *peak, const osh_reaping *r);
/* Fills `kept` of each layer with experts of the plan. A layer is measured in the model whose
 * earlier layers have lost their dropped experts. */
osh_status osh_reaping_run(osh_ctx *cx, osh_reaping *r, osh_progress *pr);
#endif
