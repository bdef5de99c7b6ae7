/* tuning.h - decides if codes, scales and norms are tuned after all solves (learn/tune.h), and what
 * that takes. */
#ifndef OSH_PLAN_TUNING_H
#define OSH_PLAN_TUNING_H
#include "learn/tune.h"
#include "plan/plan.h"

/* Needs data and recipe. Sets p->tune (steps 0: nothing asks for it) and p->tune_not if quality
 * best does not tune. Fails if the recipe asks for tuning by name and it is impossible. */
osh_status osh_plan_tune(osh_ctx *cx, osh_plan *p);
/* Host memory of tuning beside the base; 0: nothing is tuned. */
osh_status osh_tuning_bytes(osh_ctx *cx, int64_t *n_bytes, const osh_plan *p);
double osh_tuning_flops(const osh_plan *p); // multiplications and additions of tuning
bool osh_tuning_asked(const osh_plan *p); // true if the recipe asks for it, whatever was decided
/* Sets p->tuned: the tensors of the norms are no copies then. */
osh_status osh_tuning_kept(osh_ctx *cx, osh_plan *p);
static inline bool osh_is_tuned(const osh_plan *p, int64_t tensor)
{
    return p->tuned && p->tuned[tensor];
}
#endif
