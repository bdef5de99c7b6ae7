/* diff_heads.c - computes y = (1 - l0) norm(a - l b), head by head. This is the end of differential
 * attention.
 *
 *   in[0] a [N, H*W]     in[1] b [N, H*W]     in[2..5] q1, k1, q2, k2 [W/2]     out y [N, H*W]
 *
 *   l0 = 0.8 - 0.6 e^(-0.3 layer)
 *   l = e^(q1 k1) - e^(q2 k2) + l0
 *
 * norm divides each head by the root of its mean square plus eps. The products q k, both
 * exponentials, l, l b, the difference, the norm and y are rounded to the dtype of a, as in
 * transformers' DiffLlamaAttention. This file sums in double. Shapes: N tokens of the batch, H
 * pairs of heads of W elements. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"
#include "ops/altup.h"

#include <math.h>

enum { MOST = 1024 }; // largest W

static const osh_field attrs[] = {
    {"head_dim", OSH_F_INT, offsetof(osh_diff_heads_attr, head_dim), NULL, 1, MOST / 2,
     "W/2, elements of a head of q", NULL, NULL},
    {"layer", OSH_F_INT, offsetof(osh_diff_heads_attr, layer), "0", 0, 1e6, "number of the layer",
     NULL, NULL},
    {"eps", OSH_F_FLOAT, offsetof(osh_diff_heads_attr, eps), "1e-5", 0, 1,
     "added to the mean square", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    int64_t D = ((const osh_diff_heads_attr *)attr)->head_dim;
    if (in_width[0] != in_width[1] || in_width[0] % (2 * D))
        return osh_fail(cx, OSH_E_FORMAT,
                        "diff_heads: widths %lld and %lld, want the same multiple of %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)(2 * D));
    for (int k = 0; k < 4; k++) w_ndim[k] = 1, w_shape[k][0] = D;
    out_width[0] = in_width[0];
    return OSH_OK;
}

/* Returns e^(q k), rounded. q is in[2 + 2 pair], and k is in[3 + 2 pair]. */
static float diff_lambda(const osh_op_args *a, int pair, int64_t D)
{
    osh_dtype dt = a->in[0]->dtype;
    float q[MOST / 2], k[MOST / 2];
    double sum = 0;
    osh_load_weight(q, a->in[2 + 2 * pair], 0, D, dt);
    osh_load_weight(k, a->in[3 + 2 * pair], 0, D, dt);
    for (int64_t i = 0; i < D; i++) sum += osh_round_to(q[i] * k[i], dt);
    return osh_round_to((float)osh_math_exp((float)sum), dt);
}

typedef struct diff_job {
    const osh_op_args *a;
    float lambda, factor;
} diff_job;

static osh_status diff_chunk(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const diff_job *j = user;
    const osh_diff_heads_attr *at = j->a->attr;
    const osh_tensor *x = j->a->in[0], *y = j->a->in[1];
    osh_dtype dt = x->dtype;
    int64_t W = 2 * at->head_dim, width = osh_width(x);
    float a[MOST], b[MOST];
    (void)cx, (void)worker;
    for (int64_t first = row * width; first < (row + 1) * width; first += W) {
        double sum = 0;
        osh_to_f32(a, osh_elem(x, first), dt, W);
        osh_to_f32(b, osh_elem(y, first), dt, W);
        for (int64_t i = 0; i < W; i++) {
            a[i] = osh_round_to(a[i] - osh_round_to(j->lambda * b[i], dt), dt);
            sum += (double)a[i] * a[i];
        }
        double r = 1 / sqrt(sum / (double)W + at->eps);
        for (int64_t i = 0; i < W; i++) a[i] = j->factor * osh_round_to((float)(a[i] * r), dt);
        osh_from_f32(osh_elem(j->a->out[0], first), dt, a, W);
    }
    return OSH_OK;
}

static osh_status diff_ref(osh_ctx *cx, const osh_op_args *a)
{
    const osh_diff_heads_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    double initial = 0.8 - 0.6 * osh_math_exp(-0.3 * (double)at->layer);
    float both = osh_round_to(diff_lambda(a, 0, at->head_dim) - diff_lambda(a, 1, at->head_dim),
                              dt);
    diff_job j = {a, osh_round_to((float)(both + initial), dt), (float)(1 - initial)};
    return osh_parallel_for(cx, osh_rows(a->in[0]), diff_chunk, &j);
}

const osh_op osh_op_diff_heads = {
    .name = "diff_heads", .n_in = 2, .n_weights = 4, .n_out = 1, .infer = infer, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_diff_heads_attr),
    .run = {[OSH_REF] = diff_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
