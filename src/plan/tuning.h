/* tuning.h - whether codes, scales and norms are tuned behind all solves (learn/tune.h), and what that takes. */
#ifndef OSH_PLAN_TUNING_H
#define OSH_PLAN_TUNING_H
#include "learn/tune.h"
#include "plan/plan.h"

/* When data and recipe are there: p->tune, with steps 0 where nothing asks for it; p->tune_not where quality best
 * leaves it out; or fails where the recipe asks for it by name and it cannot be. */
osh_status osh_plan_tune(osh_ctx *cx, osh_plan *p);
/* Host memory beside the base while it runs; 0: it does not. */
osh_status osh_tuning_bytes(osh_ctx *cx, int64_t *n_bytes, const osh_plan *p);
double osh_tuning_flops(const osh_plan *p);
bool osh_tuning_asked(const osh_plan *p); // by the recipe, whatever became of it
/* p->tuned is set: the norms' tensors are no copies. */
osh_status osh_tuning_kept(osh_ctx *cx, osh_plan *p);
static inline bool osh_is_tuned(const osh_plan *p, int64_t tensor) { return p->tuned && p->tuned[tensor]; }
#endif
