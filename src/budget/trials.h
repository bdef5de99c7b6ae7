/* trials.h - a cache of the results of simulations. While phases of the visits (osh_phases) are
 * chosen, the same phases and settings may occur again. Their peaks then come from the cache. */
#ifndef OSH_TRIALS_H
#define OSH_TRIALS_H
#include "budget/budget.h"

/* Sets the peaks of all visits from the cache, and *found to true. Sets *found to false if the
 * cache does not have the current phases and settings. */
void osh_trials_find(bool *found, const osh_trials *t, osh_budget *p, osh_tier tier);
/* Stores the peaks of all visits in the cache. Creates the cache if *t is NULL. Stores nothing if
 * the cache would exceed its limit. */
osh_status osh_trials_add(osh_ctx *cx, osh_trials **t, const osh_budget *p, osh_tier tier);
void osh_trials_free(osh_ctx *cx, osh_trials *t);
#endif
