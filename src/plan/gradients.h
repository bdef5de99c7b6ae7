/* gradients.h - decides whether losses can be multiplied by gradients in a survey, a run that
 * measures the losses of candidate schemes. A gradient shows how much the loss of the next token
 * depends on an output of a Linear; eval/gradients.h measures gradients. */
#ifndef OSH_PLAN_GRADIENTS_H
#define OSH_PLAN_GRADIENTS_H
#include "plan/plan.h"

/* Sets p->gradients and allocates the sums of gradients of each Linear, or sets p->gradients_not.
 * Called after Linears are matched. */
osh_status osh_plan_gradients(osh_ctx *cx, osh_plan *p);
#endif
