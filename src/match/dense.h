/* dense.h - lists the weights that stay dense (not quantized), with the reasons. */
#ifndef OSH_PLAN_DENSE_H
#define OSH_PLAN_DENSE_H
#include "base/buf.h"
#include "match/matching.h"

/* If the dense weights of the decoder blocks have more than this fraction of the bytes of all
 * weights of the decoder blocks, the user gets a warning. */
static const double OSH_DENSE_MUCH = 0.1;

/* Sets p->dense to a list of weights that stay dense. The list has only weights of two or three
 * dimensions. Sets p->dense_share to the fraction of the bytes of the decoder blocks that stays
 * dense. why [ck->n_tensors]: reason why each tensor stays dense, or NULL. */
osh_status osh_plan_dense(osh_ctx *cx, osh_matching *p, const char *const *why);
/* Writes a module's name to b, with * in place of its numbers: "model.layers.*.mlp.gate". */
osh_status osh_dense_pattern(osh_ctx *cx, osh_buf *b, const char *name);
/* Frees the list of dense modules. */
void osh_plan_dense_free(osh_ctx *cx, osh_matching *p);
/* Appends a warning, without a newline, if p->dense_share is larger than OSH_DENSE_MUCH. */
osh_status osh_dense_warning(osh_ctx *cx, osh_buf *b, const osh_matching *p);
/* Appends a warning if the output is larger than the source. This happens if weights that the
 * source stores as codes become dense. total_bytes: size of the output. */
osh_status osh_dense_grown(osh_ctx *cx, osh_buf *b, const osh_matching *p, int64_t total_bytes);
/* Adds the members "left_dense" and "dense_share" to the JSON of the plan or of the report. Returns
 * false if out of memory. */
bool osh_dense_json(cJSON *root, const osh_matching *p);
#endif
