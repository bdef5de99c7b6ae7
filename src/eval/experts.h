/* experts.h - chooses the experts of each layer to keep, by REAP: an expert is kept if its output,
 * multiplied by the router weight, is large on the tokens that are routed to it
 * (modifiers/experts.c has the formula). */
#ifndef OSH_EVAL_EXPERTS_H
#define OSH_EVAL_EXPERTS_H
#include "base/profile.h"
#include "plan/plan.h"

typedef struct osh_reaping osh_reaping;
/* p: a plan made with opt->measure; must outlive *out (own). */
osh_status osh_reaping_open(osh_ctx *cx, osh_reaping **out, osh_plan *p);
void osh_reaping_close(osh_ctx *cx, osh_reaping *r);
/* *peak: set to the host bytes, with the allocator's overhead, that osh_reaping_run allocates. */
osh_status osh_reaping_bytes(osh_ctx *cx, int64_t *peak, const osh_reaping *r);
/* Sets `kept` of each layer of p->rewrites.experts. A layer is measured in a model in which the
 * earlier layers have lost their dropped experts. */
osh_status osh_reaping_run(osh_ctx *cx, osh_reaping *r, osh_progress *pr);
#endif
