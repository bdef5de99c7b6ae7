/* scale.c - computes y = `by` * x, rounded to the dtype of x.
 *
 *   in[0] x [N, D]     out y [N, D]     y may overwrite x
 *
 * The attribute `by` is an f32 number, as if torch multiplied a tensor by a Python number
 * (Granite's multipliers). With the attribute `rounded`, `by` is first rounded to the dtype of x,
 * like Gemma's embed_scale. Shapes: N tokens of the batch, D elements per token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

static const osh_field attrs[] = {
    {"by", OSH_F_FLOAT, offsetof(osh_scale_attr, by), NULL, -1e9, 1e9, "the factor", NULL, NULL},
    {"rounded", OSH_F_BOOL, offsetof(osh_scale_attr, rounded), "false", 0, 0,
     "the factor is rounded to the dtype", NULL, NULL},
    {0},
};

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_scale_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    int64_t n = osh_tensor_numel(a->in[0]);
    // x: own [N, D], the input in f32. by: the factor.
    float *x = NULL, by = osh_round_to((float)at->by, at->rounded ? dt : OSH_F32);

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t i = 0; i < n; i++) x[i] *= by;
    osh_from_f32(a->out[0]->data, dt, x, n);
done:
    osh_free(cx, x);
    return rc;
}

static osh_status scale_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    const osh_scale_attr *at = a->attr;
    const float *dy = a->dout[0]->data;
    float by = osh_round_to((float)at->by, at->rounded ? a->in[0]->dtype : OSH_F32);
    (void)cx;
    for (int64_t i = 0; i < osh_tensor_numel(a->dout[0]); i++)
        osh_grad_add(a->din[0], i, (double)by * dy[i]);
    return OSH_OK;
}

static bool scale_passes_factors(const void *attr, int k)
{
    (void)attr;
    return k == 0;
}

const osh_op osh_op_scale = {
    .name = "scale", .n_in = 1, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_scale_attr), .infer = osh_infer_same,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_scale_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_scale_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = scale_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_scale_grad_cuda)},
    .traits = OSH_OP_SCALES,
    .passes_factors = scale_passes_factors,
};
