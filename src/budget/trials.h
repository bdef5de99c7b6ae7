/* trials.h - a cache of simulations, used while a plan looks for phases: the same phases under the
 * same settings give the same figures and are not simulated again. */
#ifndef OSH_TRIALS_H
#define OSH_TRIALS_H
#include "budget/budget.h"

/* Fills in the figures of p->visits. *found false: these phases have not been simulated. */
void osh_trials_find(bool *found, const osh_trials *t, osh_budget *p, osh_tier tier);
/* Keeps the figures of p->visits. *t NULL: makes the cache. Figures that would take too much
 * memory are not kept. */
osh_status osh_trials_add(osh_ctx *cx, osh_trials **t, const osh_budget *p, osh_tier tier);
void osh_trials_free(osh_ctx *cx, osh_trials *t);
#endif
