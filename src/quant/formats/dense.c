/* dense.c - implements the format of a weight that is changed but not quantized, for example
 * pruned.
 *
 *   weight   dtype of the original weight [O, I] */
#include "quant/formats/common.h"

#include <string.h>

static osh_status dense_tensors(osh_ctx *cx, osh_format_tensor *out, int *n,
                                const osh_format_weight *w)
{
    (void)cx;
    *n = 0;
    osh_format_add(out, n, "weight", w->dt, &(osh_q_shape){2, {w->O, w->I}});
    return OSH_OK;
}

static osh_status pack(osh_ctx *cx, void *const *data, const osh_format_weight *w,
                       const void *codes, const osh_qparams *p, const osh_format_input *in)
{
    (void)cx, (void)p, (void)in;
    if (codes) memcpy(data[0], codes, (size_t)(w->O * w->I) * osh_dtype_bytes(w->dt));
    return OSH_OK;
}

const osh_format osh_format_dense = {"dense", dense_tensors, pack, NULL, NULL};
