/* join.c - concatenates the columns of two values, head by head.
 *
 *   in[0] a [N, H*width]     in[1] b [N, H*S], or [N, S] for all heads
 *   out [N, H*(width + S)]
 *
 * DeepSeek's keys have this form: each head has columns of its own, and all heads share columns
 * with rope. Example with H = 2 heads, width 2 and S = 1 shared column:
 *
 *   a  a a | a a     b  r     out  a a r | a a r
 *
 * Bytes are copied. Shapes: N tokens of the batch, H heads. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <string.h>

enum { ROWS = 64 }; // number of rows in a chunk of parallel work

static const osh_field attrs[] = {
    {"width", OSH_F_INT, offsetof(osh_join_attr, width), NULL, 1, 1e9,
     "columns of a head of the first value", NULL, NULL},
    {"second", OSH_F_INT, offsetof(osh_join_attr, second), NULL, 1, 1e9,
     "S, columns of a head of the other", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_join_attr *at = attr;
    int64_t heads = in_width[0] / at->width;

    (void)w_shape, (void)w_ndim;
    if (in_width[0] % at->width || (in_width[1] != heads * at->second && in_width[1] != at->second))
        return osh_fail(cx, OSH_E_FORMAT,
                        "join: widths %lld and %lld, want heads of %lld, and a part of %lld for "
                        "each head or for all heads",
                        (long long)in_width[0], (long long)in_width[1], (long long)at->width,
                        (long long)at->second);
    out_width[0] = in_width[0] + heads * at->second;
    return OSH_OK;
}

static osh_status join_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_join_attr *at = a->attr;
    const osh_tensor *x = a->in[0], *y = a->in[1], *to = a->out[0];
    int64_t A = osh_width(x), B = osh_width(y), O = osh_width(to), heads = A / at->width;
    int64_t end = osh_min64(osh_rows(x), (chunk + 1) * ROWS), both = at->width + at->second;
    size_t bytes = osh_dtype_bytes(x->dtype);

    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t second = B == at->second ? 0 : h * at->second;
            memcpy(osh_elem(to, n * O + h * both), osh_elem(x, n * A + h * at->width),
                   (size_t)at->width * bytes);
            memcpy(osh_elem(to, n * O + h * both + at->width), osh_elem(y, n * B + second),
                   (size_t)at->second * bytes);
        }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, join_chunk);
}

/* Adds the columns of the output's gradient to the gradients of `a` and `b`. If all heads share
 * `b`, its gradient is the sum over the heads. */
static osh_status join_back_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_grad_args *a = user;
    const osh_join_attr *at = a->attr;
    int64_t A = osh_width(a->in[0]), B = osh_width(a->in[1]), O = osh_width(a->dout[0]),
            heads = A / at->width;
    int64_t end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS), both = at->width + at->second;

    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++)
        for (int64_t h = 0; h < heads; h++) {
            const float *dy = (const float *)a->dout[0]->data + n * O + h * both;
            int64_t second = B == at->second ? 0 : h * at->second;
            for (int64_t i = 0; i < at->width; i++)
                osh_grad_add(a->din[0], n * A + h * at->width + i, dy[i]);
            for (int64_t i = 0; i < at->second; i++)
                osh_grad_add(a->din[1], n * B + second + i, dy[at->width + i]);
        }
    return OSH_OK;
}

static osh_status join_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, join_back_chunk);
}

const osh_op osh_op_join = {
    .name = "join", .n_in = 2, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_join_attr), .infer = infer,
    /* The CPU runs the reference kernel, which only copies. */
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_join_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = join_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_join_grad_cuda)},
    .grad.scratch = osh_elementwise_scratch,
};
