/* ahead.h - prefetches the weights of the Linears that are rounded without data, in the order of
 * the plan. While the caller works on a weight, a thread reads the next weight. */
#ifndef OSH_AHEAD_H
#define OSH_AHEAD_H
#include "output/emit.h"
#include "budget/budget.h"

typedef struct osh_ahead osh_ahead;
/* Makes a reader for the Linears for which todo [linears] is true. Starts a thread if the plan
 * prefetches weights. p must outlive *out. */
osh_status osh_ahead_new(osh_ctx *cx, osh_ahead **out, const osh_budget *p, const bool *todo);
/* Returns the next Linear and its weight *w (own, memory class OSH_MEM_DEVICE). *linear is -1 after
 * the last Linear. Fails with the error of the thread if the thread failed. */
osh_status osh_ahead_take(osh_ctx *cx, osh_ahead *a, int *linear, osh_tensor **w);
/* Stops and joins the thread, and frees the reader. */
void osh_ahead_free(osh_ctx *cx, osh_ahead *a);
/* Reads the weight of a Linear: *w (own) [O, I] in the dtype of the source. */
osh_status osh_linear_read(osh_ctx *cx, osh_tensor **w, const osh_budget *p, int linear);
#endif
