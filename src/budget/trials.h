/* trials.h - a cache of simulations, used while a plan looks for phases: the same phases with the
 * same settings have the same peaks and are not simulated again. */
#ifndef OSH_TRIALS_H
#define OSH_TRIALS_H
#include "budget/budget.h"

/* Sets the peaks of the visits. *found is false if these phases were not simulated yet. */
void osh_trials_find(bool *found, const osh_trials *t, osh_budget *p, osh_tier tier);
/* Stores the peaks of the visits. If *t is NULL, makes the cache. Peaks that would need too much
 * memory are not stored. */
osh_status osh_trials_add(osh_ctx *cx, osh_trials **t, const osh_budget *p, osh_tier tier);
void osh_trials_free(osh_ctx *cx, osh_trials *t);
#endif
