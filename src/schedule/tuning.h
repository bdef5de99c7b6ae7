/* tuning.h - decides whether codes, scales and norms are tuned, that is optimized by gradients
 * after all solves (learn/tune.h), and counts the work of tuning. */
#ifndef OSH_PLAN_TUNING_H
#define OSH_PLAN_TUNING_H
#include "learn/tune.h"
#include "rewrite/manifest.h"
#include "schedule/schedule.h"

/* Needs data and recipe. Sets p->tune (steps 0: no tuning), and p->tune_not if quality best does
 * not tune. Fails if the recipe asks for tuning by name and it is impossible. */
osh_status osh_plan_tune(osh_ctx *cx, osh_schedule *p);
double osh_tuning_flops(const osh_schedule *p); // multiplications and additions of tuning
/* True if the recipe asks for tuning, even if the model is not tuned. */
bool osh_tuning_asked(const osh_schedule *p);
/* Sets p->tuned: the tensors of tuned norms, which are not copies of the source. */
osh_status osh_tuning_kept(osh_ctx *cx, osh_manifest *p);
#endif
