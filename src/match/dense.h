/* dense.h - lists the weights that stay dense (not quantized), with the reasons. */
#ifndef OSH_PLAN_DENSE_H
#define OSH_PLAN_DENSE_H
#include "base/buf.h"
#include "match/matching.h"

/* The user gets a warning if the dense weights have more than this fraction of the bytes of the
 * decoder blocks. */
static const double OSH_DENSE_MUCH = 0.1;

/* Sets p->dense to the weights of two or three dimensions that stay dense. Sets p->dense_share to
 * the bytes of these weights divided by the bytes of the decoder blocks. why [ck->n_tensors]:
 * reason why each tensor stays dense, or NULL. */
osh_status osh_plan_dense(osh_ctx *cx, osh_matching *p, const char *const *why);
/* Sets b to the name of a module with * for numbers, such as "model.layers.*.mlp.gate". */
osh_status osh_dense_pattern(osh_ctx *cx, osh_buf *b, const char *name);
void osh_plan_dense_free(osh_ctx *cx, osh_matching *p);
/* Appends a warning, without a newline, if the dense weights have more than the fraction
 * OSH_DENSE_MUCH of the bytes of the decoder blocks. */
osh_status osh_dense_warning(osh_ctx *cx, osh_buf *b, const osh_matching *p);
/* Appends a warning if the output, which has total_bytes, is larger than the source. This happens
 * if weights that the source stores as codes become dense. */
osh_status osh_dense_grown(osh_ctx *cx, osh_buf *b, const osh_matching *p, int64_t total_bytes);
/* Adds "left_dense" and "dense_share" to the JSON of the plan or the report. Returns false if out
 * of memory. */
bool osh_dense_json(cJSON *root, const osh_matching *p);
#endif
