/* clamp.c - computes y = min(max(x, -limit), limit).
 *
 *   in[0] x [N, D]
 *   out y [N, D], may overwrite x
 *
 * The limit is rounded to the dtype of x, as in torch.clamp, so no element of y is larger than the
 * rounded limit. OLMo's clip_qkv is this op. Shapes: N tokens of the batch, D elements per
 * token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

enum { PIECE = 4096 }; // number of elements in a chunk of parallel work

static const osh_field attrs[] = {
    {"limit", OSH_F_FLOAT, offsetof(osh_clamp_attr, limit), NULL, 0, 1e30, "largest absolute value",
     NULL, NULL},
    {0},
};

static osh_status clamp_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *x = a->in[0];
    int64_t first = chunk * PIECE, n = osh_min64(PIECE, osh_tensor_numel(x) - first);
    float y[PIECE],
        limit = osh_round_to((float)((const osh_clamp_attr *)a->attr)->limit, x->dtype);
    (void)cx, (void)worker;
    osh_to_f32(y, osh_elem(x, first), x->dtype, n);
    for (int64_t i = 0; i < n; i++) y[i] = y[i] > limit ? limit : y[i] < -limit ? -limit : y[i];
    osh_from_f32(osh_elem(a->out[0], first), x->dtype, y, n);
    return OSH_OK;
}

static osh_status clamp_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_tensor_numel(a->in[0]), PIECE, clamp_chunk);
}

/* Computes dx. dx is dy where x is within the limit, and 0 elsewhere. */
static osh_status clamp_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const float *dy = a->dout[0]->data;
    osh_dtype dt = a->in[0]->dtype;
    /* x: own [N, D], the input in f32. limit: rounded to the dtype of x. */
    float *x = NULL, limit = osh_round_to((float)((const osh_clamp_attr *)a->attr)->limit, dt);

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t i = 0; i < osh_tensor_numel(a->in[0]); i++)
        osh_grad_add(a->din[0], i, x[i] > limit || x[i] < -limit ? 0 : dy[i]);
done:
    osh_free(cx, x);
    return rc;
}

static bool clamp_limits(const void *attr, int k)
{
    (void)attr;
    return k == 0;
}

const osh_op osh_op_clamp = {
    .name = "clamp", .n_in = 1, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_clamp_attr), .infer = osh_infer_same,
    .run = {[OSH_REF] = clamp_ref, [OSH_CUDA] = OSH_CUDA_FN(osh_clamp_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = clamp_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_clamp_grad_cuda)},
    .limits = clamp_limits,
};
