/* trials.h - caches the results of simulations. While a plan chooses the phases of visits
 * (osh_phases), the same phases and settings may occur again. Their peaks then come from the
 * cache. */
#ifndef OSH_TRIALS_H
#define OSH_TRIALS_H
#include "budget/budget.h"

/* Looks in the cache `t` for the current phases and settings. If it has them, sets the peaks of all
 * visits and sets *found to true. Otherwise sets *found to false. */
void osh_trials_find(bool *found, const osh_trials *t, osh_budget *p, osh_tier tier);
/* Stores the current peaks of all visits in the cache *t, which is created if it is NULL. Stores
 * nothing if the cache would exceed its limit. */
osh_status osh_trials_add(osh_ctx *cx, osh_trials **t, const osh_budget *p, osh_tier tier);
/* Frees the cache. Accepts NULL. */
void osh_trials_free(osh_ctx *cx, osh_trials *t);
#endif
