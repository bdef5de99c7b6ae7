/* tuning.h - decides whether codes, scales and norms are tuned (optimized by gradients after all
 * solves, learn/tune.h), and computes the number of operations of tuning. */
#ifndef OSH_PLAN_TUNING_H
#define OSH_PLAN_TUNING_H
#include "learn/tune.h"
#include "rewrite/manifest.h"
#include "schedule/schedule.h"

/* Sets p->tune (steps 0: no tuning). Sets p->tune_not if `quality best` does not tune. Fails if the
 * recipe asks for tuning by name and tuning is impossible. Called after the data is loaded. */
osh_status osh_plan_tune(osh_ctx *cx, osh_schedule *p);
/* Returns the number of floating-point operations of tuning. */
double osh_tuning_flops(const osh_schedule *p);
/* True if the recipe asks for tuning, also if tuning is impossible. */
bool osh_tuning_asked(const osh_schedule *p);
/* Sets p->tuned [source tensors]: true for norms, which tuning changes. */
osh_status osh_tuning_kept(osh_ctx *cx, osh_manifest *p);
#endif
