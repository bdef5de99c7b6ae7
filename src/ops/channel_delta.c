/* channel_delta.c - computes Kimi Delta Attention (Kimi Team 2025, "Kimi Linear"). This is gated
 * DeltaNet with one decay factor for each channel of the keys.
 *
 *   in[0] x [N, 3 H D]: queries, keys and values of H heads [D]
 *   in[1] a [N, H D]
 *   in[2] b [N, H]
 *   in[3] A_log [H]
 *   in[4] dt_bias [H D]
 *   out y [N, H D]
 *
 * For each token and each head, with the state S [D, D]:
 *
 *   q = q / sqrt(q q + 1e-6) / sqrt(D)
 *   k = k / sqrt(k k + 1e-6)
 *   S = exp(-exp(A_log) softplus(a + dt_bias)) S
 *   S = S + k (sigmoid(b) (v - k S))
 *   y = q S
 *
 * S is 0 before the sample's first token. The exponential has D values for each head: value i
 * multiplies row i of S.
 *
 * If the attribute lower_bound l is not 0 (GLM-5.3), S is multiplied by exp(l sigmoid(exp(A_log) (a
 * + dt_bias))) instead of exp(-exp(A_log) softplus(a + dt_bias)).
 *
 * The formulas are those of transformers' recurrent_kimi_delta_attention. The state and all sums
 * are double. q, k and the factors of the state are rounded to f32, and sigmoid(b) to the dtype of
 * x. y is rounded first to f32 and then to its dtype. N: tokens of the batch. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <math.h>
#include <string.h>

enum { MOST = 512 }; // largest D

static const osh_field attrs[] = {
    {"heads", OSH_F_INT, offsetof(osh_channel_delta_attr, heads), NULL, 1, 1e6, "H", NULL, NULL},
    {"dim", OSH_F_INT, offsetof(osh_channel_delta_attr, dim), NULL, 1, MOST, "D", NULL, NULL},
    {"lower_bound", OSH_F_FLOAT, offsetof(osh_channel_delta_attr, lower_bound), "0", -1e6, 0,
     "lower bound of the logarithm of the factor; 0: none", NULL, NULL},
    {"f32", OSH_F_BOOL, offsetof(osh_channel_delta_attr, f32), "false", 0, 0,
     "A_log and dt_bias are not rounded", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_channel_delta_attr *at = attr;
    int64_t width = at->heads * at->dim;

    if (in_width[0] != 3 * width || in_width[1] != width || in_width[2] != at->heads)
        return osh_fail(cx, OSH_E_FORMAT,
                        "channel_delta: widths %lld, %lld, %lld, want %lld, %lld, %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)in_width[2],
                        (long long)(3 * width), (long long)width, (long long)at->heads);
    w_ndim[0] = w_ndim[1] = 1;
    w_shape[0][0] = at->heads, w_shape[1][0] = width;
    out_width[0] = width;
    return OSH_OK;
}

typedef struct channel_token { // values of one token of one head
    float q[MOST], k[MOST], v[MOST], a[MOST], beta;
} channel_token;

static void channel_unit(float *x, int64_t n, double by)
{
    double sum = 1e-6;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    for (int64_t i = 0; i < n; i++) x[i] = (float)(x[i] / sqrt(sum) * by);
}

/* Loads token t of head h. Sets to->a [D] to the factors by which the rows of the state are
 * multiplied. dt_bias [D]: bias values of head h. */
static void channel_load(channel_token *to, const osh_op_args *a, int64_t t, int64_t h,
                         const float *dt_bias)
{
    const osh_channel_delta_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    int64_t D = at->dim, width = at->heads * D, from = t * 3 * width + h * D;
    float A = 0, b = osh_tensor_at(a->in[2], t * at->heads + h);

    osh_load_weight(&A, a->in[3], h, 1, at->f32 ? OSH_F32 : x->dtype);
    osh_to_f32(to->q, osh_elem(x, from), x->dtype, D);
    osh_to_f32(to->k, osh_elem(x, from + width), x->dtype, D);
    osh_to_f32(to->v, osh_elem(x, from + 2 * width), x->dtype, D);
    osh_to_f32(to->a, osh_elem(a->in[1], t * width + h * D), x->dtype, D);
    channel_unit(to->q, D, 1 / sqrt((double)D)), channel_unit(to->k, D, 1);
    to->beta = osh_round_to((float)(1 / (1 + osh_math_exp(-(double)b))), x->dtype);
    for (int64_t i = 0; i < D; i++) {
        double z = (double)to->a[i] + dt_bias[i], rate = osh_math_exp(A);
        // softplus(z); like torch, this uses z instead if z > 20
        double soft = z > 20 ? z : osh_math_log(1 + osh_math_exp(z));
        double decay = at->lower_bound < 0 ? at->lower_bound / (1 + osh_math_exp(-rate * z))
                                           : -rate * soft;
        to->a[i] = (float)osh_math_exp(decay);
    }
}

/* Computes head h of one sample. room: memory for channel_floats floats, in which the state [D, D]
 * is stored in double. */
static void channel_head(const osh_op_args *a, const osh_tile *seq, int64_t h, float *room)
{
    const osh_channel_delta_attr *at = a->attr;
    int64_t D = at->dim;
    double *S = (double *)(void *)room;
    double *kept = a->past ? (double *)a->past->state + h * D * D : NULL;
    float dt_bias[MOST], y[MOST];
    channel_token now;

    osh_load_weight(dt_bias, a->in[4], h * D, D, at->f32 ? OSH_F32 : a->in[0]->dtype);
    if (kept) memcpy(S, kept, (size_t)(D * D) * sizeof *S);
    for (int64_t t = seq->row; t < seq->row + seq->n; t++) {
        channel_load(&now, a, t, h, dt_bias);
        for (int64_t c = 0; c < D; c++) {
            double says = 0, read = 0;
            for (int64_t i = 0; i < D; i++)
                S[i * D + c] *= now.a[i], says += now.k[i] * S[i * D + c];
            for (int64_t i = 0; i < D; i++) {
                S[i * D + c] += now.k[i] * now.beta * (now.v[c] - says);
                read += now.q[i] * S[i * D + c];
            }
            y[c] = (float)read;
        }
        osh_from_f32(osh_elem(a->out[0], (t * at->heads + h) * D), a->out[0]->dtype, y, D);
    }
    if (kept) memcpy(kept, S, (size_t)(D * D) * sizeof *S);
}

static int64_t channel_floats(const osh_channel_delta_attr *at)
{
    return at->dim * at->dim * (int64_t)(sizeof(double) / sizeof(float));
}

static osh_status channel_ref(osh_ctx *cx, const osh_op_args *a)
{
    const osh_channel_delta_attr *at = a->attr;
    return osh_by_head(cx, a, at->heads, channel_floats(at), channel_head);
}

static size_t channel_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads)
{
    (void)in_width, (void)out_width;
    return osh_by_head_scratch(channel_floats(attr), n_tokens, n_threads);
}

static size_t channel_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                            osh_dtype dt)
{
    const osh_channel_delta_attr *at = attr;
    (void)in_width, (void)n_tokens, (void)dt;
    return (size_t)(at->heads * at->dim * at->dim) * sizeof(double);
}

/* Returns the number of floating-point operations: 7 for each token and each element of a head's
 * matrix S (decay, query, correction, output). */
static double channel_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                            const osh_op_load *load)
{
    (void)in_width;
    return 7 * load->tokens * (double)((const osh_channel_delta_attr *)attr)->dim *
           (double)out_width;
}

const osh_op osh_op_channel_delta = {
    .name = "channel_delta", .n_in = 3, .n_weights = 2, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_channel_delta_attr), .infer = infer,
    .run = {[OSH_REF] = channel_ref}, .tol = 0, .scratch = channel_scratch,
    .next = channel_ref, .state = channel_state,
    .traits = OSH_OP_HOST_ONLY, .flops = channel_flops,
};
