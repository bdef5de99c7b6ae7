/* gradients.h - decides whether a survey's losses can be weighted by gradients. The gradients show
 * how much the loss of the next token depends on each output of each Linear; eval/gradients.h
 * measures
 * them. */
#ifndef OSH_PLAN_GRADIENTS_H
#define OSH_PLAN_GRADIENTS_H
#include "plan/plan.h"

/* Called after Linears are matched: sets p->gradients and allocates memory for each Linear, or sets
 * p->gradients_not. */
osh_status osh_plan_gradients(osh_ctx *cx, osh_plan *p);
#endif
