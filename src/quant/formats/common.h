/* common.h - declares helper functions that all storage formats use: scales, static activations,
 * checks of stored tensors. This header is only for src/quant. */
#ifndef OSH_QUANT_FORMATS_COMMON_H
#define OSH_QUANT_FORMATS_COMMON_H
#include "quant/format.h"

/* Appends a tensor to the list `out` [*n], which must have room for it. `leaf`: last part of the
 * tensor's name. */
void osh_format_add(osh_format_tensor *out, int *n, const char *leaf, osh_dtype dtype,
                    const osh_q_shape *shape);
/* osh_format_add_input lists input_scale [1] and input_zero_point [1] of static activations, after
 * the tensors of the weight. osh_format_put_input writes these two tensors; data[0] is the memory
 * for input_scale. */
void osh_format_add_input(osh_format_tensor *out, int *n, const osh_q_scheme *s, osh_dtype dt);
osh_status osh_format_put_input(osh_ctx *cx, void *const *data, const osh_format_weight *w,
                                const osh_format_input *in);
/* Fails if t is NULL or does not have the dtype and the shape of `want`. */
osh_status osh_format_check_stored(osh_ctx *cx, const osh_tensor *t, const osh_format_tensor *want);
/* Sets p->scale (own) to a copy of `stored` with the shape of `want`. */
osh_status osh_format_take_scale(osh_ctx *cx, osh_qparams *p, const osh_tensor *stored,
                                 const osh_format_tensor *want);
#endif
