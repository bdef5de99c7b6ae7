/* repeat.c - makes S copies of x. In hyper-connections (streams.c), the initial value of each
 * residual stream is a copy of the embedding.
 *
 *   in[0] x [N, D]     out y [N, S*D]
 *
 * Bytes are copied. Shapes: N tokens of the batch, D elements per token. */
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

#include <string.h>

static const osh_field attrs[] = {
    {"times", OSH_F_INT, offsetof(osh_repeat_attr, times), NULL, 1, 64, "S, copies", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)cx, (void)w_shape, (void)w_ndim;
    out_width[0] = in_width[0] * ((const osh_repeat_attr *)attr)->times;
    return OSH_OK;
}

static osh_status repeat_ref(osh_ctx *cx, const osh_op_args *a)
{
    int64_t D = osh_width(a->in[0]), S = ((const osh_repeat_attr *)a->attr)->times;
    size_t bytes = (size_t)D * osh_dtype_bytes(a->in[0]->dtype);
    (void)cx;
    for (int64_t n = 0; n < osh_rows(a->in[0]); n++)
        for (int64_t s = 0; s < S; s++)
            memcpy(osh_elem(a->out[0], (n * S + s) * D), osh_elem(a->in[0], n * D), bytes);
    return OSH_OK;
}

const osh_op osh_op_repeat = {
    .name = "repeat", .n_in = 1, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_repeat_attr), .infer = infer,
    .run = {[OSH_REF] = repeat_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
