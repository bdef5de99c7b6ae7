/* made_up.h - values for one visit alone, instead of those that the visits before it would have left. */
#ifndef OSH_MADE_UP_H
#define OSH_MADE_UP_H
#include "plan/visit.h"
#include "store/activations.h"

/* What rests when the visit begins: the values that it reads, and those that only wait for a later one. */
osh_status osh_made_up(osh_ctx *cx, osh_acts *a, const osh_plan *p, const osh_range *r);
#endif
