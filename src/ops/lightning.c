/* lightning.c - computes lightning attention (MiniMax 2025, "MiniMax-01"): linear attention with a
 * state. Each head has a constant factor by which its state decays.
 *
 *   in[0] x [N, 3 H D]: for each of H heads a query, a key and a value [D]
 *   out y [N, H D]
 *
 *   slope_h = decay 2^(-8 (h + 1) / H)     h: number of the head, from 0
 *   S = exp(-slope_h) S + k^T v
 *   y = q S
 *
 * The state S [D, D] of each head is 0 before the sample's first token. This is transformers'
 * MiniMaxLightningAttention, which cuts a sample into blocks. The state and all sums are double,
 * and exp(-slope_h) is rounded to f32. y is rounded first to f32 and then to its dtype. N: tokens
 * of the batch. */
#include "base/elementary.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <math.h>
#include <string.h>

enum { MOST = 512 }; // largest D

static const osh_field attrs[] = {
    {"heads", OSH_F_INT, offsetof(osh_lightning_attr, heads), NULL, 1, 1e6, "H", NULL, NULL},
    {"dim", OSH_F_INT, offsetof(osh_lightning_attr, dim), NULL, 1, MOST, "D", NULL, NULL},
    {"decay", OSH_F_FLOAT, offsetof(osh_lightning_attr, decay), "1", 0, 1e3,
     "factor of all slopes", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_lightning_attr *at = attr;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] != 3 * at->heads * at->dim)
        return osh_fail(cx, OSH_E_FORMAT, "lightning: width %lld, want %lld",
                        (long long)in_width[0], (long long)(3 * at->heads * at->dim));
    out_width[0] = at->heads * at->dim;
    return OSH_OK;
}

/* Computes head h of one sample. room: scratch for the state [D, D] and a row [D] of doubles. */
static void lightning_head(const osh_op_args *a, const osh_tile *seq, int64_t h, float *room)
{
    const osh_lightning_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    int64_t D = at->dim;
    double *S = (double *)(void *)room, *sum = S + D * D;
    double *kept = a->past ? (double *)a->past->state + h * D * D : NULL;
    double slope = at->decay * osh_math_exp(-8 * osh_math_log(2) * (double)(h + 1) /
                                            (double)at->heads);
    double by = (float)osh_math_exp(-slope);
    float qkv[3 * MOST], y[MOST];
    const float *q = qkv, *k = qkv + D, *v = k + D;

    if (kept) memcpy(S, kept, (size_t)(D * D) * sizeof *S);
    for (int64_t t = seq->row; t < seq->row + seq->n; t++) {
        osh_to_f32(qkv, osh_elem(x, (t * at->heads + h) * 3 * D), x->dtype, 3 * D);
        memset(sum, 0, (size_t)D * sizeof *sum);
        for (int64_t i = 0; i < D; i++)
            for (int64_t c = 0; c < D; c++) {
                S[i * D + c] = by * S[i * D + c] + (double)k[i] * v[c];
                sum[c] += q[i] * S[i * D + c];
            }
        for (int64_t c = 0; c < D; c++) y[c] = (float)sum[c];
        osh_from_f32(osh_elem(a->out[0], (t * at->heads + h) * D), a->out[0]->dtype, y, D);
    }
    if (kept) memcpy(kept, S, (size_t)(D * D) * sizeof *S);
}

static int64_t lightning_floats(const osh_lightning_attr *at)
{
    return (at->dim + 1) * at->dim * (int64_t)(sizeof(double) / sizeof(float));
}

static osh_status lightning_ref(osh_ctx *cx, const osh_op_args *a)
{
    const osh_lightning_attr *at = a->attr;
    return osh_by_head(cx, a, at->heads, lightning_floats(at), lightning_head);
}

static size_t lightning_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                int64_t n_tokens, int n_threads)
{
    (void)in_width, (void)out_width;
    return osh_by_head_scratch(lightning_floats(attr), n_tokens, n_threads);
}

static size_t lightning_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                              osh_dtype dt)
{
    const osh_lightning_attr *at = attr;
    (void)in_width, (void)n_tokens, (void)dt;
    return (size_t)(at->heads * at->dim * at->dim) * sizeof(double);
}

/* Returns the number of floating-point operations: 5 for each token and each element of a head's
 * matrix S (decay, update, output). */
static double lightning_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                              const osh_op_load *load)
{
    (void)in_width;
    return 5 * load->tokens * (double)((const osh_lightning_attr *)attr)->dim * (double)out_width;
}

const osh_op osh_op_lightning = {
    .name = "lightning", .n_in = 1, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_lightning_attr), .infer = infer,
    .run = {[OSH_REF] = lightning_ref}, .tol = 0, .scratch = lightning_scratch,
    .next = lightning_ref, .state = lightning_state,
    .traits = OSH_OP_HOST_ONLY, .flops = lightning_flops,
};
