/* ahead.h - the weights of the Linears that are rounded without data, in their order. A thread
 * reads the next weight while the caller works on the present one. */
#ifndef OSH_AHEAD_H
#define OSH_AHEAD_H
#include "output/emit.h"
#include "plan/plan.h"

typedef struct osh_ahead osh_ahead;
/* For the Linears whose results [linears] are not done. Starts a thread only if the plan reads
 * ahead. p must outlive *out. */
osh_status osh_ahead_new(osh_ctx *cx, osh_ahead **out, const osh_plan *p,
                         const osh_result *results);
/* Gives the next Linear and its weight (own, memory class OSH_MEM_DEVICE); *linear is -1 after the
 * last one. Returns the failure of the thread, if it had one. */
osh_status osh_ahead_take(osh_ctx *cx, osh_ahead *a, int *linear, osh_tensor **w);
/* Stops and joins the thread. */
void osh_ahead_free(osh_ctx *cx, osh_ahead *a);
/* Reads the weight of one Linear: [O, I] in its stored dtype, own. */
osh_status osh_linear_read(osh_ctx *cx, osh_tensor **w, const osh_plan *p, int linear);
#endif
