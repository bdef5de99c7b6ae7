/* tuning.h - decides if codes, scales and norms are tuned after all solves (learn/tune.h), and what
 * that takes. */
#ifndef OSH_PLAN_TUNING_H
#define OSH_PLAN_TUNING_H
#include "learn/tune.h"
#include "rewrite/manifest.h"
#include "schedule/schedule.h"

/* Needs data and recipe. Sets p->tune (steps 0: nothing asks for it) and p->tune_not if quality
 * best does not tune. Fails if the recipe asks for tuning by name and it is impossible. */
osh_status osh_plan_tune(osh_ctx *cx, osh_schedule *p);
double osh_tuning_flops(const osh_schedule *p); // multiplications and additions of tuning
bool osh_tuning_asked(const osh_schedule *p); // true if the recipe asks for it, whatever was decided
/* Sets p->tuned: the tensors of the norms are no copies then. */
osh_status osh_tuning_kept(osh_ctx *cx, osh_manifest *p);
#endif
