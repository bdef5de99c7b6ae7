/* add.c - computes y = a + b, a residual connection. The sum is rounded to the dtype of a.
 *
 *   in[0] a [N, D]     in[1] b [N, D]     out y [N, D]     y may overwrite a or b
 *
 * Shapes: N tokens of the batch, D elements per token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)attr, (void)w_shape, (void)w_ndim;
    if (in_width[0] != in_width[1])
        return osh_fail(cx, OSH_E_FORMAT, "add: widths %lld and %lld, want the same",
                        (long long)in_width[0], (long long)in_width[1]);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_tensor_numel(a->in[0]);
    float *x = NULL, *y = NULL; // own: a and b in f32, [N, D]

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_copy(cx, &y, a->in[1]));
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
    osh_from_f32(a->out[0]->data, a->in[0]->dtype, x, n);
done:
    osh_free(cx, y);
    osh_free(cx, x);
    return rc;
}

static osh_status add_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    const float *dy = a->dout[0]->data;
    (void)cx;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < osh_tensor_numel(a->dout[0]); i++)
            osh_grad_add(a->din[k], i, dy[i]);
    return OSH_OK;
}

const osh_op osh_op_add = {
    .name = "add", .n_in = 2, .n_weights = 0, .n_out = 1, .spreads = 3, .each_token = true,
    .attrs = NULL, .attr_bytes = 0, .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_add_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_add_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.writes = true, .grad.in_place = true,
    .grad.run = {[OSH_REF] = add_grad_ref, [OSH_CPU] = osh_add_grad_cpu,
             [OSH_CUDA] = OSH_CUDA_GRAD(osh_add_grad_cuda)},
    .traits = OSH_OP_ADDS,
};
