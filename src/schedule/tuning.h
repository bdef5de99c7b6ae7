/* tuning.h - decides whether tuning runs, and counts its operations. Tuning (learn/tune.h)
 * optimizes codes, scales and norms by gradients after all solves. */
#ifndef OSH_PLAN_TUNING_H
#define OSH_PLAN_TUNING_H
#include "learn/tune.h"
#include "rewrite/manifest.h"
#include "schedule/schedule.h"

/* Decides whether the run tunes, and sets p->tune (`steps` is 0 if it does not). Sets p->tune_not
 * if `quality best` decides against tuning. Fails if the recipe asks for tuning by name, but tuning
 * is impossible. Must be called after the data is loaded. */
osh_status osh_plan_tune(osh_ctx *cx, osh_schedule *p);
/* Returns the number of floating-point operations that tuning takes. */
double osh_tuning_flops(const osh_schedule *p);
/* True if the recipe asks for tuning, even if tuning is impossible. */
bool osh_tuning_asked(const osh_schedule *p);
/* Sets p->tuned[i] to true for each source tensor i that is the weight of a norm, because tuning
 * changes norms. */
osh_status osh_tuning_kept(osh_ctx *cx, osh_manifest *p);
#endif
