/* ahead.h - the weights of the Linears that are rounded without data, in their order: the next one is read while the
 * caller works on the one before. */
#ifndef OSH_AHEAD_H
#define OSH_AHEAD_H
#include "output/emit.h"

typedef struct osh_ahead osh_ahead;
/* Of those that results [linears] calls not done. Where the plan reads nothing ahead there is no thread. p must outlive
 * it. */
osh_status osh_ahead_new(osh_ctx *cx, osh_ahead **out, const osh_plan *p, const osh_result *results);
/* The next one: *linear -1: there is none. *w: own, device memory. */
osh_status osh_ahead_take(osh_ctx *cx, osh_ahead *a, int *linear, osh_tensor **w);
void osh_ahead_free(osh_ctx *cx, osh_ahead *a);
/* [O, I] in its stored dtype, own; one alone. */
osh_status osh_linear_read(osh_ctx *cx, osh_tensor **w, const osh_plan *p, int linear);
#endif
