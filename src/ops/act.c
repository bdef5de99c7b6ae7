/* act.c - computes y = act(x), the activation of an MLP without a gate.
 *
 *   in[0] x [N, F]
 *   out y [N, F], may overwrite x
 *
 *   relu     max(x, 0)
 *   relu2    max(x, 0)^2
 *   others   the functions of glu.c
 *
 * The result is computed in f32 and rounded once to the dtype of x. Shapes: N tokens of the batch,
 * F intermediate_size. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <string.h>

static const osh_field attrs[] = {
    {"act", OSH_F_STR, offsetof(osh_act_attr, act), "gelu", 0, 0, "activation", NULL,
     "silu|gelu|gelu_pytorch_tanh|gelu_new|relu|relu2"},
    {0},
};

static double act_or_relu(const char *act, double x)
{
    if (!strcmp(act, "relu")) return x < 0 ? 0 : x;
    if (!strcmp(act, "relu2")) return x < 0 ? 0 : x * x;
    return osh_act_ref(act, x);
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_tensor_numel(a->in[0]);
    float *x = NULL; // own: [N, F]

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)act_or_relu(((const osh_act_attr *)a->attr)->act, x[i]);
    osh_from_f32(a->out[0]->data, a->in[0]->dtype, x, n);
done:
    osh_free(cx, x);
    return rc;
}

static double act_slope_ref(const char *act, double x)
{
    if (!strcmp(act, "relu")) return x > 0;
    if (!strcmp(act, "relu2")) return x > 0 ? 2 * x : 0;
    return osh_act_slope(act, x);
}

static osh_status act_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const char *act = ((const osh_act_attr *)a->attr)->act;
    const float *dy = a->dout[0]->data;
    float *x = NULL; // own: [N, F]

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t i = 0; i < osh_tensor_numel(a->in[0]); i++)
        osh_grad_add(a->din[0], i, dy[i] * act_slope_ref(act, x[i]));
done:
    osh_free(cx, x);
    return rc;
}

const osh_op osh_op_act = {
    .name = "act", .n_in = 1, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_act_attr), .infer = osh_infer_same,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_act_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_act_cuda)},
    .tol = 1e-12, .scratch = osh_elementwise_scratch, .by_rows = true,
    .grad.run = {[OSH_REF] = act_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_act_grad_cuda)},
    .traits = OSH_OP_ACTIVATES,
};
