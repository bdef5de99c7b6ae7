/* ahead.h - reads the weights of the Linears that are rounded without data, in the order of the
 * plan. A thread reads the next weight while the caller works on the current one. */
#ifndef OSH_AHEAD_H
#define OSH_AHEAD_H
#include "output/emit.h"
#include "budget/budget.h"

typedef struct osh_ahead osh_ahead;
/* Makes a reader for the Linears that results [linears] does not mark as done. Starts a thread only
 * if the plan reads in advance. p must outlive *out. */
osh_status osh_ahead_new(osh_ctx *cx, osh_ahead **out, const osh_budget *p,
                         const osh_result *results);
/* Returns the next Linear and its weight (own, memory class OSH_MEM_DEVICE). *linear is -1 after
 * the last one. Returns the error of the thread, if it failed. */
osh_status osh_ahead_take(osh_ctx *cx, osh_ahead *a, int *linear, osh_tensor **w);
/* Stops and joins the thread. */
void osh_ahead_free(osh_ctx *cx, osh_ahead *a);
/* Reads the weight of one Linear: [O, I] in its stored dtype, own. */
osh_status osh_linear_read(osh_ctx *cx, osh_tensor **w, const osh_budget *p, int linear);
#endif
