/* dense.h - which weights stay dense, and why. */
#ifndef OSH_PLAN_DENSE_H
#define OSH_PLAN_DENSE_H
#include "base/buf.h"
#include "match/matching.h"

/* Part of the decoder blocks' bytes that is worth a warning. */
static const double OSH_DENSE_MUCH = 0.1;

/* Fills in the weights of two and three dimensions that stay dense, and their part of the decoder
 * blocks. why [ck->n_tensors]: a reason, or NULL. */
osh_status osh_plan_dense(osh_ctx *cx, osh_matching *p, const char *const *why);
void osh_plan_dense_free(osh_ctx *cx, osh_matching *p);
/* Appends a line, without its end, if dense weights are more than a tenth of the decoder blocks. */
osh_status osh_dense_warning(osh_ctx *cx, osh_buf *b, const osh_matching *p);
/* Appends a line if the output, with total_bytes, is larger than the source because codes of the
 * source become dense weights. */
osh_status osh_dense_grown(osh_ctx *cx, osh_buf *b, const osh_matching *p, int64_t total_bytes);
/* Adds "left_dense" and "dense_share" to the JSON of the plan or the report. False: no memory. */
bool osh_dense_json(cJSON *root, const osh_matching *p);
#endif
