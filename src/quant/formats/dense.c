/* dense.c - a weight that was changed and is written as it is: nothing to pack.
 *
 *   weight   dtype of the original weight [O, I]
 */
#include "quant/formats/common.h"

#include <string.h>

static osh_status tensors(osh_ctx *cx, osh_format_tensor *out, int *n, const osh_q_scheme *s, int64_t O, int64_t I,
                          osh_dtype dt)
{
    (void)cx, (void)s;
    *n = 0;
    osh_format_add(out, n, "weight", dt, 2, O, I);
    return OSH_OK;
}

static osh_status pack(osh_ctx *cx, void *const *data, const osh_q_scheme *s, int64_t O, int64_t I, osh_dtype dt,
                       const void *codes, const osh_qparams *p, const osh_tensor *in_scale, const osh_tensor *in_zero)
{
    (void)cx, (void)s, (void)p, (void)in_scale, (void)in_zero;
    if (codes) memcpy(data[0], codes, (size_t)(O * I) * osh_dtype_bytes(dt));
    return OSH_OK;
}

const osh_format osh_format_dense = {"dense", tensors, pack, NULL, NULL};
