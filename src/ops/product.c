/* product.c - computes y = a b, element by element. The gates of LFM2's convolutions and of
 * Falcon-H1's scan use this op.
 *
 *   in[0] a [N, D], may be F32     in[1] b [N, D]     out y [N, D]     y may overwrite b
 *
 * The product is f32 and rounded once to the dtype of b. Shapes: N tokens of the batch, D elements
 * per token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

enum { PIECE = 1024 }; // number of elements in a chunk of parallel work

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)attr, (void)w_shape, (void)w_ndim;
    if (in_width[0] != in_width[1])
        return osh_fail(cx, OSH_E_FORMAT, "product: widths %lld and %lld, want the same",
                        (long long)in_width[0], (long long)in_width[1]);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static osh_status product_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t at = chunk * PIECE, n = osh_min64(PIECE, osh_tensor_numel(a->in[0]) - at);
    float x[PIECE], y[PIECE];

    (void)cx, (void)worker;
    osh_to_f32(x, osh_elem(a->in[0], at), a->in[0]->dtype, n);
    osh_to_f32(y, osh_elem(a->in[1], at), a->in[1]->dtype, n);
    for (int64_t i = 0; i < n; i++) x[i] *= y[i];
    osh_from_f32(osh_elem(a->out[0], at), a->out[0]->dtype, x, n);
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_tensor_numel(a->in[0]), PIECE, product_chunk);
}

/* Computes da = dy b and db = dy a. */
static osh_status product_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const float *dy = a->dout[0]->data;
    float *x = NULL, *y = NULL; // own [N, D]: `a` and `b` in f32

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_copy(cx, &y, a->in[1]));
    for (int64_t i = 0; i < osh_tensor_numel(a->dout[0]); i++) {
        osh_grad_add(a->din[0], i, (double)dy[i] * y[i]);
        osh_grad_add(a->din[1], i, (double)dy[i] * x[i]);
    }
done:
    osh_free(cx, y);
    osh_free(cx, x);
    return rc;
}

const osh_op osh_op_product = {
    .name = "product", .n_in = 2, .n_weights = 0, .n_out = 1, .f32_in = 1, .each_token = true,
    .attrs = NULL, .attr_bytes = 0, .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_product_cuda)},
    .tol = 1e-12, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = product_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_product_grad_cuda)},
};
