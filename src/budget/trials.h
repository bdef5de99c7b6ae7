/* trials.h - a cache of simulations, used while a plan looks for phases. The same phases with the
 * same settings have the same peaks and are not simulated again. */
#ifndef OSH_TRIALS_H
#define OSH_TRIALS_H
#include "budget/budget.h"

/* Sets the peaks of the visits from the cache. *found is false if the current phases were not
 * simulated yet. */
void osh_trials_find(bool *found, const osh_trials *t, osh_budget *p, osh_tier tier);
/* Stores the peaks of the visits in the cache; creates the cache if *t is NULL. Stores nothing if
 * the cache would become too large. */
osh_status osh_trials_add(osh_ctx *cx, osh_trials **t, const osh_budget *p, osh_tier tier);
void osh_trials_free(osh_ctx *cx, osh_trials *t);
#endif
