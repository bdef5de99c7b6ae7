/* dense.h - which weights stay dense, and why. */
#ifndef OSH_PLAN_DENSE_H
#define OSH_PLAN_DENSE_H
#include "base/buf.h"
#include "plan/plan.h"

static const double OSH_DENSE_MUCH = 0.1; // of the decoder blocks' bytes: worth a warning

/* Weights of two and three dimensions that nothing takes the place of, and what part of the decoder blocks' they are.
 * why [ck->n_tensors]: NULL where nothing more is known. */
osh_status osh_plan_dense(osh_ctx *cx, osh_plan *p, const char *const *why);
void osh_plan_dense_free(osh_ctx *cx, osh_plan *p);
/* More than a tenth of the decoder blocks: a line that says so, without its end; else nothing. */
osh_status osh_dense_warning(osh_ctx *cx, osh_buf *b, const osh_plan *p);
/* Codes of the source that become dense weights make the output larger than it: a line that says so; else nothing. */
osh_status osh_dense_grown(osh_ctx *cx, osh_buf *b, const osh_plan *p);
/* "left_dense" and "dense_share" of the plan's JSON and the report's; false: no memory. */
bool osh_dense_json(cJSON *root, const osh_plan *p);
#endif
