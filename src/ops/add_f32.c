/* add_f32.c - computes y = a + b, a residual connection with an F32 sum in a model with 16-bit
 * activations (Mamba 2's residual_in_fp32).
 *
 *   in[0] a [N, D], may be F32     in[1] b [N, D]     out y [N, D] F32
 *
 * In the first layer, `a` is the output of the embedding and has the compute dtype. In later
 * layers, `a` is F32. A model with F32 activations uses the op `add` instead. Shapes: N tokens of
 * the batch, D elements per token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)attr, (void)w_shape, (void)w_ndim;
    if (in_width[0] != in_width[1])
        return osh_fail(cx, OSH_E_FORMAT, "add_f32: widths %lld and %lld, want the same",
                        (long long)in_width[0], (long long)in_width[1]);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    float *x = NULL, *y = a->out[0]->data; // x: own [N, D], the input b in f32. y: view of the
                                           // output

    OSH_TRY(osh_f32_copy(cx, &x, a->in[1]));
    osh_to_f32(y, a->in[0]->data, a->in[0]->dtype, osh_tensor_numel(a->in[0]));
    for (int64_t i = 0; i < osh_tensor_numel(a->in[0]); i++) y[i] += x[i];
done:
    osh_free(cx, x);
    return rc;
}

static osh_status add_f32_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    const float *dy = a->dout[0]->data;
    (void)cx;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < osh_tensor_numel(a->dout[0]); i++)
            osh_grad_add(a->din[k], i, dy[i]);
    return OSH_OK;
}

const osh_op osh_op_add_f32 = {
    .name = "add_f32", .n_in = 2, .n_weights = 0, .n_out = 1, .f32_in = 1,
    .each_token = true,
    .attrs = NULL, .attr_bytes = 0, .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_add_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_add_f32_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = add_f32_grad_ref, [OSH_CPU] = osh_add_grad_cpu,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_add_grad_cuda)},
    .traits = OSH_OP_ADDS | OSH_OP_F32_OUT,
};
