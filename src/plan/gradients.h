/* gradients.h - decides if a survey's losses can be weighed by gradients: how strongly the loss of
 * the next token depends on each output of each Linear, as eval/gradients.h measures it. */
#ifndef OSH_PLAN_GRADIENTS_H
#define OSH_PLAN_GRADIENTS_H
#include "plan/plan.h"

/* After Linears are matched: sets p->gradients and makes room for each Linear, or sets
 * p->gradients_not. */
osh_status osh_plan_gradients(osh_ctx *cx, osh_plan *p);
#endif
