/* made_up.h - makes random values for a job that does only the work on one subgraph. They replace
 * the values that earlier subgraphs would compute. This is possible because the memory for the work
 * does not depend on the values. */
#ifndef OSH_MADE_UP_H
#define OSH_MADE_UP_H
#include "schedule/visit.h"
#include "budget/budget.h"
#include "store/activations.h"

/* Adds random rows to the activation store `a`. The rows are for the values that are computed
 * before the range *r and are read in *r or later. */
osh_status osh_made_up(osh_ctx *cx, osh_acts *a, const osh_budget *p, const osh_range *r);
#endif
