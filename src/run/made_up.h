/* made_up.h - makes values for one visit that runs alone, instead of values from earlier visits. */
#ifndef OSH_MADE_UP_H
#define OSH_MADE_UP_H
#include "schedule/visit.h"
#include "plan/plan.h"
#include "store/activations.h"

/* Stores every value that rests in the store when the visit begins: values that the visit reads,
 * and values that a later visit reads. */
osh_status osh_made_up(osh_ctx *cx, osh_acts *a, const osh_plan *p, const osh_range *r);
#endif
