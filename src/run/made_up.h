/* made_up.h - makes random values for a visit that runs alone, in place of the values that earlier
 * visits would compute. */
#ifndef OSH_MADE_UP_H
#define OSH_MADE_UP_H
#include "schedule/visit.h"
#include "budget/budget.h"
#include "store/activations.h"

/* Stores every value that is in the store when the visit begins: values that the visit reads, and
 * values that only later visits read. */
osh_status osh_made_up(osh_ctx *cx, osh_acts *a, const osh_budget *p, const osh_range *r);
#endif
