/* moe_router.c - chooses the experts of each token, and their weights.
 *
 *   in[0] logits [N, E]     in[1] w [E], if scaled
 *   out route [N, E]: weight of the expert; 0: not chosen
 *
 *   p = softmax(logits)           over all experts
 *   p = 1 / (1 + e^-logit)        with `sigmoid` (Llama 4)
 *   route = p                     for the top_k largest logits, otherwise 0
 *   route = route / sum(route)    with `norm_topk_prob`
 *   route = route * w             with `scaled` (Gemma 4)
 *
 * If logits are equal, the expert with the lower index is chosen first.
 *
 * Probabilities are f32, and the weights are rounded to the dtype of the logits at the end, as in
 * transformers' Qwen3MoeTopKRouter. transformers chooses by the probabilities, and torch.topk
 * decides the order of equal probabilities. This op chooses by the logits instead. Different logits
 * can have equal probabilities after exp on the CPU but not on a GPU, or the other way round. CPU
 * and GPU must choose the same experts. Shapes: N tokens of the batch, E experts. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

enum { ROWS = 64 }; // number of rows in a chunk of parallel work

static const osh_field attrs[] = {
    {"top_k", OSH_F_INT, offsetof(osh_moe_router_attr, top_k), "1", 1, OSH_MOE_MAX_EXPERTS,
     "experts of a token", NULL, NULL},
    {"norm_topk_prob", OSH_F_BOOL, offsetof(osh_moe_router_attr, norm_topk_prob), "false", 0, 0,
     "their weights are divided by their sum", NULL, NULL},
    {"sigmoid", OSH_F_BOOL, offsetof(osh_moe_router_attr, sigmoid), "false", 0, 0,
     "a weight is the sigmoid of the logit", NULL, NULL},
    {"scaled", OSH_F_BOOL, offsetof(osh_moe_router_attr, scaled), "false", 0, 0,
     "a weight is multiplied by its expert's number", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_moe_router_attr *at = attr;
    if (in_width[0] > OSH_MOE_MAX_EXPERTS || at->top_k > in_width[0])
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "moe_router: %lld of %lld experts, want no more than there are, and %d",
                        (long long)at->top_k, (long long)in_width[0], OSH_MOE_MAX_EXPERTS);
    out_width[0] = in_width[0];
    w_ndim[0] = at->scaled, w_shape[0][0] = in_width[0];
    return OSH_OK;
}

/* Replaces the logits x [E] of one token by the weights of the experts. */
static void router_route_row(float *x, int64_t E, const osh_moe_router_attr *at)
{
    bool chosen[OSH_MOE_MAX_EXPERTS] = {false};
    double max = x[0], sum = 0, top = 0;
    for (int64_t e = 1; e < E; e++) max = x[e] > max ? x[e] : max;
    for (int64_t e = 0; e < E; e++) sum += osh_math_exp(x[e] - max);
    for (int64_t k = 0; k < at->top_k; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < E; e++)
            if (!chosen[e] && (best < 0 || x[e] > x[best])) best = e;
        chosen[best] = true;
    }
    for (int64_t e = 0; e < E; e++) {
        double p = at->sigmoid ? 1 / (1 + osh_math_exp(-(double)x[e]))
                               : osh_math_exp(x[e] - max) / sum;
        x[e] = chosen[e] ? (float)p : 0;
        top += x[e];
    }
    for (int64_t e = 0; e < E && at->norm_topk_prob; e++) x[e] = (float)(x[e] / top);
}

static osh_status router_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t E = osh_width(a->in[0]), end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS);
    const osh_moe_router_attr *at = a->attr;
    float x[OSH_MOE_MAX_EXPERTS], w[OSH_MOE_MAX_EXPERTS];

    (void)cx, (void)worker;
    if (at->scaled) osh_load_weight(w, a->in[1], 0, E, a->in[0]->dtype);
    for (int64_t n = chunk * ROWS; n < end; n++) {
        osh_to_f32(x, osh_elem(a->in[0], n * E), a->in[0]->dtype, E);
        router_route_row(x, E, at);
        for (int64_t e = 0; e < E && at->scaled; e++) x[e] *= w[e];
        osh_from_f32(osh_elem(a->out[0], n * E), a->out[0]->dtype, x, E);
    }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    assert(osh_width(a->in[0]) <= OSH_MOE_MAX_EXPERTS &&
           osh_width(a->in[0]) == osh_width(a->out[0]));
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, router_chunk);
}

/* Adds the gradients of the logits and of w for row n (one token). g [E] is the gradient of the
 * route. g_i is 0 if expert i is not chosen.
 *
 *   p = softmax(x)
 *   dx_i = p_i (g_i - sum over j of g_j p_j)
 *
 * With norm_topk_prob, p is the softmax over only the chosen experts, and dx of the other experts
 * is 0. With `scaled`, dw = g p, and g w replaces g. */
static void router_row_back(const osh_grad_args *a, int64_t n, float *x, const float *w, int64_t E)
{
    const osh_moe_router_attr *at = a->attr;
    double p[OSH_MOE_MAX_EXPERTS], max = x[0], sum = 0, dot = 0;
    float route[OSH_MOE_MAX_EXPERTS], g[OSH_MOE_MAX_EXPERTS];

    memcpy(g, (const float *)a->dout[0]->data + n * E, (size_t)E * sizeof *g);
    memcpy(route, x, (size_t)E * sizeof *route);
    router_route_row(route, E, at);
    for (int64_t e = 0; e < E && at->scaled; e++) {
        osh_grad_add(a->din[1], e, (double)g[e] * route[e]);
        g[e] *= w[e];
    }
    if (at->sigmoid) {
        for (int64_t e = 0; e < E; e++)
            osh_grad_add(a->din[0], n * E + e, (double)g[e] * route[e] * (1 - route[e]));
        return;
    }
    for (int64_t e = 1; e < E; e++) max = x[e] > max ? x[e] : max;
    for (int64_t e = 0; e < E; e++)
        sum += p[e] = at->norm_topk_prob && route[e] == 0 ? 0 : osh_math_exp((double)x[e] - max);
    for (int64_t e = 0; e < E; e++) {
        p[e] /= sum;
        if (route[e] != 0) dot += g[e] * p[e];
    }
    for (int64_t e = 0; e < E; e++)
        osh_grad_add(a->din[0], n * E + e, p[e] * ((route[e] != 0 ? g[e] : 0) - dot));
}

static osh_status moe_router_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    int64_t N = osh_rows(a->in[0]), E = osh_width(a->in[0]);
    float x[OSH_MOE_MAX_EXPERTS], w[OSH_MOE_MAX_EXPERTS];

    (void)cx;
    if (a->in[1]) osh_load_weight(w, a->in[1], 0, E, a->in[0]->dtype);
    for (int64_t n = 0; n < N; n++) {
        osh_to_f32(x, osh_elem(a->in[0], n * E), a->in[0]->dtype, E);
        router_row_back(a, n, x, w, E);
    }
    return OSH_OK;
}

const osh_op osh_op_moe_router = {
    .name = "moe_router", .n_in = 1, .n_weights = 1, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_moe_router_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_moe_router_cuda)},
    .tol = 1e-12, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = moe_router_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_moe_router_grad_cuda)},
    .grad.arena_bytes = osh_moe_router_grad_cuda_scratch,
    .traits = OSH_OP_ROUTES,
};
