/* gradients.h - decides whether a survey uses gradients. A survey is a run that measures the losses
 * of candidate schemes. The run can multiply these losses by gradients, which show how much the
 * loss of the next token depends on an output of a Linear (eval/gradients.h measures them). */
#ifndef OSH_PLAN_GRADIENTS_H
#define OSH_PLAN_GRADIENTS_H
#include "plan/plan.h"

/* Sets p->gradients and allocates the sums of gradients of each Linear, or sets p->gradients_not.
 * Called after Linears are matched. */
osh_status osh_plan_gradients(osh_ctx *cx, osh_plan *p);
#endif
