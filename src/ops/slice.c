/* slice.c - copies some columns of each row, such as k from the output of a fused q, k, v
 * projection.
 *
 *   in[0] x [N, W]     out y [N, W / period * (width + pad)]
 *   columns c with first <= c mod period < first + width
 *
 * In GPT-NeoX, for example, a fused projection outputs q, k and v of one head, then of the next
 * head. With heads of 3 elements, the slice for k is {first 3, width 3, period 9}:
 *
 *   x  q q q k k k v v v | q q q k k k v v v        y  k k k | k k k
 *
 * A period of 0 means the whole row (Phi-3). After the columns of each period, `pad` zeros are
 * appended. DeepSeek needs them, because its values are narrower than its keys, but the op
 * attention needs equal widths. Shapes: N tokens of the batch, W columns. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <string.h>

enum { ROWS = 64 }; // number of rows in a chunk of parallel work

static const osh_field attrs[] = {
    {"first", OSH_F_INT, offsetof(osh_slice_attr, first), "0", 0, 1e9, "first column of a period",
     NULL, NULL},
    {"width", OSH_F_INT, offsetof(osh_slice_attr, width), NULL, 1, 1e9, "columns of a period",
     NULL, NULL},
    {"period", OSH_F_INT, offsetof(osh_slice_attr, period), "0", 0, 1e9,
     "columns that repeat; 0: the row", NULL, NULL},
    {"pad", OSH_F_INT, offsetof(osh_slice_attr, pad), "0", 0, 1e9, "zeros after each part",
     NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_slice_attr *at = attr;
    int64_t period = at->period ? at->period : in_width[0];

    (void)w_shape, (void)w_ndim;
    if (in_width[0] % period || at->first + at->width > period)
        return osh_fail(cx, OSH_E_FORMAT,
                        "slice: columns [%lld, %lld) of %lld, in a width of %lld: want a part of "
                        "each period, and whole periods",
                        (long long)at->first, (long long)(at->first + at->width), (long long)period,
                        (long long)in_width[0]);
    out_width[0] = in_width[0] / period * (at->width + at->pad);
    return OSH_OK;
}

static osh_status slice_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_slice_attr *at = a->attr;
    int64_t W = osh_width(a->in[0]), S = osh_width(a->out[0]), period = at->period ? at->period : W;
    int64_t end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS);
    const osh_tensor *x = a->in[0], *y = a->out[0];
    int64_t each = at->width + at->pad;
    size_t bytes = (size_t)at->width * osh_dtype_bytes(x->dtype),
           zeros = (size_t)at->pad * osh_dtype_bytes(x->dtype);

    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++)
        for (int64_t p = 0; p < W / period; p++) {
            memcpy(osh_elem(y, n * S + p * each), osh_elem(x, n * W + p * period + at->first),
                   bytes);
            memset(osh_elem(y, n * S + p * each + at->width), 0, zeros);
        }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, slice_chunk);
}

static osh_status slice_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    const osh_slice_attr *at = a->attr;
    int64_t W = osh_width(a->in[0]), period = at->period ? at->period : W,
            parts = osh_rows(a->in[0]) * (W / period);
    const float *dy = a->dout[0]->data;
    (void)cx;
    for (int64_t p = 0; p < parts; p++)
        for (int64_t i = 0; i < at->width; i++)
            osh_grad_add(a->din[0], p * period + at->first + i, dy[p * (at->width + at->pad) + i]);
    return OSH_OK;
}

const osh_op osh_op_slice = {
    .name = "slice", .n_in = 1, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_slice_attr), .infer = infer,
    /* The CPU runs the reference kernel, which only copies. */
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_slice_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = slice_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_slice_grad_cuda)},
    .grad.scratch = osh_elementwise_scratch, .by_rows = true,
    .traits = OSH_OP_PASSES,
};
