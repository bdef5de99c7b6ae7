/* glu.c - computes y = act(gate) * up, the activation of a gated MLP.
 *
 *   in[0] gate [N, F]     in[1] up [N, F]     out y [N, F]
 *
 *   silu               x / (1 + exp(-x))
 *   gelu               x/2 (1 + erf(x / sqrt 2))
 *   gelu_pytorch_tanh  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   gelu_new           the function of gelu_pytorch_tanh
 *
 * With a limit l, alpha a and `plus` p:
 *
 *   y = (up + p) gate sigmoid(a gate)
 *
 * Before this, `gate` is replaced by min(gate, l), and `up` is clamped to [-l, l]. transformers'
 * GptOssExperts has p = 1. DeepseekV4Experts and HYV4Experts have p = 0 and a = 1.
 *
 * act(gate) is computed in f32 and rounded to the dtype of gate, as in transformers' LlamaMLP. Then
 * the product is rounded. With a limit, only y is rounded. Shapes: N tokens of the batch, F
 * intermediate_size. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

static const osh_field attrs[] = {
    {"act", OSH_F_STR, offsetof(osh_glu_attr, act), "silu", 0, 0, "activation of the gate", NULL,
     "silu|gelu|gelu_pytorch_tanh|gelu_new"},
    {"limit", OSH_F_FLOAT, offsetof(osh_glu_attr, limit), "0", 0, 1e30,
     "limit of gate and up; 0: none", NULL, NULL},
    {"alpha", OSH_F_FLOAT, offsetof(osh_glu_attr, alpha), "1", 0, 1e6,
     "factor in the sigmoid of the clamped gate", NULL, NULL},
    {"plus", OSH_F_FLOAT, offsetof(osh_glu_attr, plus), "1", 0, 1e6,
     "number that is added to the clamped up", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)attr, (void)w_shape, (void)w_ndim;
    if (in_width[0] != in_width[1])
        return osh_fail(cx, OSH_E_FORMAT, "glu: gate has width %lld, up %lld, want the same",
                        (long long)in_width[0], (long long)in_width[1]);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static float glu_clamped_ref(const osh_glu_attr *at, float gate, float up)
{
    double g = gate > at->limit ? at->limit : gate,
           u = up > at->limit ? at->limit : up < -at->limit ? -at->limit : up;
    return (float)((u + at->plus) * g / (1 + osh_math_exp(-at->alpha * g)));
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_glu_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    int64_t n = osh_tensor_numel(a->in[0]);
    float *gate = NULL, *up = NULL; // own [N, F]: gate and up in f32

    OSH_TRY(osh_f32_copy(cx, &gate, a->in[0]));
    OSH_TRY(osh_f32_copy(cx, &up, a->in[1]));
    for (int64_t i = 0; i < n; i++)
        gate[i] = at->limit > 0 ? glu_clamped_ref(at, gate[i], up[i])
                                : osh_round_to((float)osh_act_ref(at->act, gate[i]), dt) * up[i];
    osh_from_f32(a->out[0]->data, dt, gate, n);
done:
    osh_free(cx, up);
    osh_free(cx, gate);
    return rc;
}

enum { PIECE = 1024 }; // number of elements in a chunk of parallel work

/* For a glu with a limit: computes d[0], the gradient of gate, and d[1], the gradient of up. The
 * gradient of a clamped value is 0. */
static void glu_clamped_back(double d[2], const osh_glu_attr *at, float gate, float up, float dy)
{
    double g = gate > at->limit ? at->limit : gate,
           u = up > at->limit ? at->limit : up < -at->limit ? -at->limit : up;
    double s = 1 / (1 + osh_math_exp(-at->alpha * g));
    d[0] = gate > at->limit ? 0 : dy * (u + at->plus) * s * (1 + at->alpha * g * (1 - s));
    d[1] = u != up ? 0 : dy * g * s;
}

/* Computes dgate = dy up act'(gate) and dup = dy act(gate) for a chunk of elements. For a glu with
 * a limit, glu_clamped_back computes both. */
static osh_status glu_grad_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_grad_args *a = user;
    const osh_glu_attr *at = a->attr;
    int64_t first = chunk * PIECE, n = osh_min64(PIECE, osh_tensor_numel(a->in[0]) - first);
    const float *dy = (const float *)a->dout[0]->data + first;
    float gate[PIECE], up[PIECE];

    (void)cx, (void)worker;
    osh_to_f32(gate, osh_elem(a->in[0], first), a->in[0]->dtype, n);
    osh_to_f32(up, osh_elem(a->in[1], first), a->in[1]->dtype, n);
    for (int64_t i = 0; i < n; i++) {
        double d[2] = {dy[i] * up[i] * osh_act_slope(at->act, gate[i]),
                       dy[i] * osh_act_ref(at->act, gate[i])};
        if (at->limit > 0) glu_clamped_back(d, at, gate[i], up[i], dy[i]);
        osh_grad_add(a->din[0], first + i, d[0]);
        osh_grad_add(a->din[1], first + i, d[1]);
    }
    return OSH_OK;
}

static osh_status glu_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    return osh_by_part(cx, a, osh_tensor_numel(a->in[0]), PIECE, glu_grad_chunk);
}

static bool glu_passes_factors(const void *attr, int k)
{
    (void)attr;
    return k == 1;
}

static bool glu_limits(const void *attr, int k)
{
    (void)k;
    return ((const osh_glu_attr *)attr)->limit > 0;
}

const osh_op osh_op_glu = {
    .name = "glu", .n_in = 2, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_glu_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_glu_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_glu_cuda)},
    .tol = 1e-12, .scratch = osh_elementwise_scratch,
    .grad.writes = true, .grad.in_place = true, .by_rows = true, .spreads = 3,
    .grad.run = {[OSH_REF] = glu_grad_ref, [OSH_CPU] = osh_glu_grad_cpu,
             [OSH_CUDA] = OSH_CUDA_GRAD(osh_glu_grad_cuda)},
    .grad.scratch = osh_elementwise_scratch,
    .traits = OSH_OP_GLU | OSH_OP_ACTIVATES,
    .passes_factors = glu_passes_factors, .limits = glu_limits,
};
