/* gradients.h - decides whether a survey uses gradients. A survey is a run that measures the losses
 * of candidate schemes. It can multiply these losses by gradients (eval/gradients.h), which show
 * how much the loss of the next token depends on the outputs of a Linear. */
#ifndef OSH_PLAN_GRADIENTS_H
#define OSH_PLAN_GRADIENTS_H
#include "plan/plan.h"

/* Sets p->gradients and allocates the sums of gradients of each Linear. If gradients cannot be
 * used, sets p->gradients_not to the reason instead. Must be called after Linears are matched. */
osh_status osh_plan_gradients(osh_ctx *cx, osh_plan *p);
#endif
