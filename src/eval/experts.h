/* experts.h - which experts of each layer are left: those whose outputs, times their weights there, are the largest on
 * the tokens that are routed to them (modifiers/experts.c has the definition). */
#ifndef OSH_EVAL_EXPERTS_H
#define OSH_EVAL_EXPERTS_H
#include "base/profile.h"
#include "plan/plan.h"

typedef struct osh_reaping osh_reaping;
/* p: planned with opt->measure; it stays while this lives. */
osh_status osh_reaping_open(osh_ctx *cx, osh_reaping **out, osh_plan *p);
void osh_reaping_close(osh_ctx *cx, osh_reaping *r);
osh_status osh_reaping_bytes(osh_ctx *cx, int64_t *peak, const osh_reaping *r); // gross, that osh_reaping_run takes
/* Fills kept of each of p's layers with experts. A layer sees the model whose layers before it have lost theirs. */
osh_status osh_reaping_run(osh_ctx *cx, osh_reaping *r, osh_progress *pr);
#endif
