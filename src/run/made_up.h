/* made_up.h - makes random values for a visit that runs alone. The random values replace the values
 * that earlier visits would compute. This is possible because the memory that a visit needs does
 * not depend on its values. */
#ifndef OSH_MADE_UP_H
#define OSH_MADE_UP_H
#include "schedule/visit.h"
#include "budget/budget.h"
#include "store/activations.h"

/* Fills the store with all values that exist when the visit begins: values that the visit reads,
 * and values that only later visits read. */
osh_status osh_made_up(osh_ctx *cx, osh_acts *a, const osh_budget *p, const osh_range *r);
#endif
