/* gradients.h - whether a survey's losses can be weighed by gradients: how much the loss of the next token cares for
 * each output of each Linear, as eval/gradients.h measures it. */
#ifndef OSH_PLAN_GRADIENTS_H
#define OSH_PLAN_GRADIENTS_H
#include "plan/plan.h"

/* When Linears are matched: p->gradients and room for each Linear's, or p->gradients_not. */
osh_status osh_plan_gradients(osh_ctx *cx, osh_plan *p);
#endif
