/* moe_sparsemixer.c - chooses two experts of each token and their weights (SparseMixer).
 *
 *   in[0] logits s [N, E]     out route [N, E]: weight of the expert; 0: not chosen
 *
 * The first expert has the largest logit, m. Its weight is the softmax over the experts e with
 *
 *   (m - s_e) / max(|s_e|, m) <= 2 jitter
 *
 * The second expert is chosen in the same way from the other experts, with m as their largest
 * logit.
 *
 * The op chooses as transformers' PhimoeTopKRouter (Phi-3.5-MoE) does outside of training. If
 * logits are equal, the lower index is first. The two weights do not sum to 1. Shapes: N tokens of
 * the batch, E experts. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

enum { ROWS = 64 }; // number of rows in a chunk of parallel work

static const osh_field attrs[] = {
    {"top_k", OSH_F_INT, offsetof(osh_moe_sparsemixer_attr, route.top_k), "2", 2, 2,
     "experts of a token", NULL, NULL},
    {"jitter", OSH_F_FLOAT, offsetof(osh_moe_sparsemixer_attr, jitter), "0.01", 0, 1,
     "half the relative distance of logits that share the weight", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)w_shape, (void)w_ndim, (void)attr;
    if (in_width[0] > OSH_MOE_MAX_EXPERTS || in_width[0] < 2)
        return osh_fail(cx, OSH_E_UNSUPPORTED, "moe_sparsemixer: %lld experts, want 2 to %d",
                        (long long)in_width[0], OSH_MOE_MAX_EXPERTS);
    out_width[0] = in_width[0];
    return OSH_OK;
}

/* Chooses and returns the expert with the largest logit in x [E], without expert `but` (-1: none).
 * Sets p [E] to the softmax over the logits near the largest logit. All other elements of p become
 * 0. */
static int64_t mixer_choose(double *p, const float *x, int64_t E, int64_t but, float jitter)
{
    int64_t best = -1;
    double sum = 0;
    for (int64_t e = 0; e < E; e++)
        if (e != but && (best < 0 || x[e] > x[best])) best = e;
    for (int64_t e = 0; e < E; e++) {
        float size = x[e] < 0 ? -x[e] : x[e], factor = size > x[best] ? size : x[best];
        bool near = e != but && !((x[best] - x[e]) / factor > 2 * jitter);
        sum += p[e] = near ? osh_math_exp((double)x[e] - x[best]) : 0;
    }
    for (int64_t e = 0; e < E; e++) p[e] /= sum;
    return best;
}

static osh_status mixer_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t E = osh_width(a->in[0]), end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS);
    float jitter = (float)((const osh_moe_sparsemixer_attr *)a->attr)->jitter;
    float x[OSH_MOE_MAX_EXPERTS], y[OSH_MOE_MAX_EXPERTS];
    double p[OSH_MOE_MAX_EXPERTS];

    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++) {
        osh_to_f32(x, osh_elem(a->in[0], n * E), a->in[0]->dtype, E);
        for (int64_t e = 0; e < E; e++) y[e] = 0;
        int64_t first = mixer_choose(p, x, E, -1, jitter);
        y[first] = (float)p[first];
        int64_t second = mixer_choose(p, x, E, first, jitter);
        y[second] = (float)p[second];
        osh_from_f32(osh_elem(a->out[0], n * E), a->out[0]->dtype, y, E);
    }
    return OSH_OK;
}

static osh_status mixer_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, mixer_chunk);
}

/* Computes dx_e. For each of the two choices, adds
 *
 *   g p_best ([e == best] - p_e)
 *
 * best: the chosen expert. g: the gradient of its weight. */
static osh_status mixer_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    int64_t N = osh_rows(a->in[0]), E = osh_width(a->in[0]);
    float jitter = (float)((const osh_moe_sparsemixer_attr *)a->attr)->jitter;
    const float *dy = a->dout[0]->data;
    float x[OSH_MOE_MAX_EXPERTS];
    double p[OSH_MOE_MAX_EXPERTS];

    (void)cx;
    for (int64_t n = 0; n < N; n++) {
        int64_t best = -1;
        osh_to_f32(x, osh_elem(a->in[0], n * E), a->in[0]->dtype, E);
        for (int k = 0; k < 2; k++) {
            best = mixer_choose(p, x, E, best, jitter);
            for (int64_t e = 0; e < E; e++)
                osh_grad_add(a->din[0], n * E + e,
                             dy[n * E + best] * p[best] * ((e == best) - p[e]));
        }
    }
    return OSH_OK;
}

const osh_op osh_op_moe_sparsemixer = {
    .name = "moe_sparsemixer", .n_in = 1, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_moe_sparsemixer_attr), .infer = infer,
    .run = {[OSH_REF] = mixer_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = mixer_grad_ref}, .traits = OSH_OP_ROUTES | OSH_OP_HOST_ONLY,
};
