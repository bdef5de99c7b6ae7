/* mamba_scan.c - computes the selective scan of Mamba 1 (Gu, Dao 2023). Each channel has a state
 * [S]. Each token multiplies the state by a decay, adds x B of the token, and outputs the product
 * of the state with C of the token.
 *
 *   in[0] x [N, I]     in[1] dt [N, I]     in[2] B [N, S]     in[3] C [N, S]
 *   in[4] A_log [I, S]     in[5] D [I]     in[6] dt_bias [I]     out y [N, I]
 *
 *   d = softplus(dt + dt_bias)
 *   Z = exp(-exp(A_log) d) Z + d x B
 *   y = Z C + D x
 *
 * Z is 0 before the sample's first token. The formulas are those of transformers'
 * mamba_selective_scan (Mamba, Falcon Mamba, Jamba). dt + dt_bias and softplus are rounded to the
 * dtype of x. All other numbers are double, and y is rounded once. N: tokens of the batch, I:
 * channels. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <string.h>

/* NEAR: number of channels in a chunk of parallel work. MOST: largest S (size of a channel's
 * state). */
enum { NEAR = 16, MOST = 256 };

static const osh_field attrs[] = {
    {"state", OSH_F_INT, offsetof(osh_mamba_scan_attr, state), NULL, 1, MOST, "S", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    int64_t S = ((const osh_mamba_scan_attr *)attr)->state;

    if (in_width[1] != in_width[0] || in_width[2] != S || in_width[3] != S)
        return osh_fail(cx, OSH_E_FORMAT,
                        "mamba_scan: dt, B, C have widths %lld, %lld, %lld, want %lld, %lld, %lld",
                        (long long)in_width[1], (long long)in_width[2], (long long)in_width[3],
                        (long long)in_width[0], (long long)S, (long long)S);
    w_ndim[0] = 2, w_shape[0][0] = in_width[0], w_shape[0][1] = S;
    for (int k = 1; k < 3; k++) w_ndim[k] = 1, w_shape[k][0] = in_width[0];
    out_width[0] = in_width[0];
    return OSH_OK;
}

typedef struct mamba_job {
    const osh_op_args *a;
    const osh_tile *seq; // view: for each sample, the range of its rows
    int64_t n_seqs, I, S;
} mamba_job;

static float mamba_input(const osh_tensor *x, int64_t i)
{
    float f;
    osh_to_f32(&f, osh_elem(x, i), x->dtype, 1);
    return f;
}

/* Returns softplus(dt + bias), rounded as in transformers. */
static double mamba_step(float dt, float bias, osh_dtype dtype)
{
    double x = osh_round_to(dt + bias, dtype);
    return osh_round_to((float)(x > 20 ? x : osh_math_log(1 + osh_math_exp(x))), dtype);
}

/* Computes channel i of one sample, whose rows are [row, row + n). Z: state [S]. */
static void mamba_channel(const mamba_job *j, int64_t i, int64_t row, int64_t n, double *Z)
{
    const osh_tensor *const *in = j->a->in;
    osh_dtype dt = in[0]->dtype;
    float A[MOST], B[MOST], C[MOST], D, bias;
    double slope[MOST];

    osh_load_weight(A, in[4], i * j->S, j->S, dt);
    osh_load_weight(&D, in[5], i, 1, dt), osh_load_weight(&bias, in[6], i, 1, dt);
    for (int64_t s = 0; s < j->S; s++) slope[s] = -osh_math_exp(A[s]);
    for (int64_t t = row; t < row + n; t++) {
        float x = mamba_input(in[0], t * j->I + i);
        double d = mamba_step(mamba_input(in[1], t * j->I + i), bias, dt), y = (double)D * x;
        osh_to_f32(B, osh_elem(in[2], t * j->S), dt, j->S);
        osh_to_f32(C, osh_elem(in[3], t * j->S), dt, j->S);
        for (int64_t s = 0; s < j->S; s++) {
            Z[s] = Z[s] * osh_math_exp(slope[s] * d) + d * x * B[s];
            y += Z[s] * C[s];
        }
        float f = (float)y;
        osh_from_f32(osh_elem(j->a->out[0], t * j->I + i), dt, &f, 1);
    }
}

static osh_status mamba_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const mamba_job *j = user;
    int64_t end = osh_min64(j->I, (chunk + 1) * NEAR);
    double *kept = j->a->past ? j->a->past->state : NULL; // view [I, S]

    (void)cx, (void)worker;
    for (int64_t i = chunk * NEAR; i < end; i++)
        for (int64_t s = 0; s < j->n_seqs; s++) {
            double Z[MOST] = {0};
            if (kept) memcpy(Z, kept + i * j->S, (size_t)j->S * sizeof *Z);
            mamba_channel(j, i, j->seq[s].row, j->seq[s].n, Z);
            if (kept) memcpy(kept + i * j->S, Z, (size_t)j->S * sizeof *Z);
        }
    return OSH_OK;
}

static osh_status mamba_ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_tile *seq = NULL; // own
    mamba_job j = {.a = a, .I = osh_width(a->in[0]), .S = osh_width(a->in[2])};
    int64_t N = osh_rows(a->in[0]);

    OSH_TRY(osh_tiles_new(cx, &seq, &j.n_seqs, a->seqs, N, N + 1));
    j.seq = seq;
    OSH_TRY(osh_parallel_for(cx, osh_div_up(j.I, NEAR), mamba_chunk, &j));
done:
    osh_free(cx, seq);
    return rc;
}

static size_t mamba_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_threads;
    return (size_t)n_tokens * sizeof(osh_tile);
}

static size_t mamba_state(const void *attr, const int64_t *in_width, int64_t n_tokens, osh_dtype dt)
{
    (void)n_tokens, (void)dt;
    return (size_t)(in_width[0] * ((const osh_mamba_scan_attr *)attr)->state) * sizeof(double);
}

typedef struct mamba_back { // all inputs of the op in f32, and scratch for one sample
    float *in[7];   // own
    double *Z, *gZ; // own, for one channel: states [n + 1, S], and the gradient of the state, [S]
    double *dB, *dC; // own: for each token, the gradients of B and C, [N, S] each
} mamba_back;

/* Adds the gradients of channel i of one sample, whose rows are [row, row + n).
 *
 *   a = -exp(A_log)
 *   e = exp(a d), the decay
 *   gZ: gradient of the state after a token
 *
 *   dC  = dy Z
 *   gZ += dy C
 *   dB  = gZ d x
 *   dx  = dy D + sum gZ d B
 *   dD  = dy x
 *   dd  = sum gZ (Zprev e a + B x)
 *   da  = gZ Zprev e d
 *   gZ *= e, for the token before */
static void mamba_channel_back(const osh_grad_args *a, mamba_back *b, int64_t i, int64_t row,
                               int64_t n)
{
    int64_t I = osh_width(a->in[0]), S = osh_width(a->in[2]);
    const float *dy = a->dout[0]->data, *A = b->in[4] + i * S;
    double sum_D = 0, sum_bias = 0, sum_A[MOST] = {0};

    memset(b->Z, 0, (size_t)S * sizeof *b->Z), memset(b->gZ, 0, (size_t)S * sizeof *b->gZ);
    for (int64_t t = 0; t < n; t++) {
        int64_t at = (row + t) * I + i;
        double d = mamba_step(b->in[1][at], b->in[6][i], OSH_F32);
        for (int64_t s = 0; s < S; s++)
            b->Z[(t + 1) * S + s] = b->Z[t * S + s] * osh_math_exp(-osh_math_exp(A[s]) * d) +
                                    d * b->in[0][at] * b->in[2][(row + t) * S + s];
    }
    for (int64_t t = n - 1; t >= 0; t--) {
        int64_t at = (row + t) * I + i, of = (row + t) * S;
        double x = b->in[0][at], d = mamba_step(b->in[1][at], b->in[6][i], OSH_F32), dd = 0,
               dx = (double)dy[at] * b->in[5][i];
        for (int64_t s = 0; s < S; s++) {
            double slope = -osh_math_exp(A[s]), e = osh_math_exp(slope * d), Bx = b->in[2][of + s];
            double *g = &b->gZ[s], before = b->Z[t * S + s];
            b->dC[of + s] += dy[at] * b->Z[(t + 1) * S + s];
            *g += (double)dy[at] * b->in[3][of + s];
            b->dB[of + s] += *g * d * x, dx += *g * d * Bx;
            dd += *g * (before * e * slope + Bx * x), sum_A[s] += *g * before * e * d * slope;
            *g *= e;
        }
        dd *= 1 / (1 + osh_math_exp(-((double)b->in[1][at] + b->in[6][i])));
        osh_grad_add(a->din[0], at, dx), osh_grad_add(a->din[1], at, dd);
        sum_bias += dd, sum_D += dy[at] * x;
    }
    for (int64_t s = 0; s < S; s++) osh_grad_add(a->din[4], i * S + s, sum_A[s]);
    osh_grad_add(a->din[5], i, sum_D), osh_grad_add(a->din[6], i, sum_bias);
}

static osh_status mamba_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), S = osh_width(a->in[2]), n_seqs = 0;
    mamba_back b = {{0}};
    osh_tile *seq = NULL; // own: for each sample, the range of its rows

    for (int k = 0; k < 4; k++) OSH_TRY(osh_f32_copy(cx, &b.in[k], a->in[k]));
    for (int k = 4; k < 7; k++) OSH_TRY(osh_f32_weight(cx, &b.in[k], a->in[k], a->in[0]->dtype));
    OSH_NEW(cx, b.Z, (N + 1) * S);
    OSH_NEW(cx, b.gZ, S);
    OSH_NEW(cx, b.dB, 2 * N * S);
    b.dC = b.dB + N * S;
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t i = 0; i < osh_width(a->in[0]); i++)
            mamba_channel_back(a, &b, i, seq[s].row, seq[s].n);
    for (int64_t i = 0; i < N * S; i++)
        osh_grad_add(a->din[2], i, b.dB[i]), osh_grad_add(a->din[3], i, b.dC[i]);
done:
    osh_free(cx, seq);
    osh_free(cx, b.dB);
    osh_free(cx, b.gZ);
    osh_free(cx, b.Z);
    for (int k = 0; k < 7; k++) osh_free(cx, b.in[k]);
    return rc;
}

static size_t mamba_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                 int64_t n_tokens, int n_threads)
{
    int64_t S = ((const osh_mamba_scan_attr *)attr)->state, I = in_width[0];
    int64_t floats = n_tokens * (2 * I + 2 * S) + I * S + 2 * I,
            doubles = (n_tokens + 1) * S + S + 2 * n_tokens * S;
    (void)out_width, (void)n_threads;
    return (size_t)floats * sizeof(float) + (size_t)doubles * sizeof(double) +
           (size_t)n_tokens * sizeof(osh_tile);
}

/* Returns the number of floating-point operations: 7 for each token and each element of the state.
 * An exponential counts as one operation. */
static double mamba_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                          const osh_op_load *load)
{
    double n = (double)load->samples->offsets[load->samples->n];
    (void)out_width;
    return 7 * n * (double)in_width[0] * (double)((const osh_mamba_scan_attr *)attr)->state;
}

const osh_op osh_op_mamba_scan = {
    .name = "mamba_scan", .n_in = 4, .n_weights = 3, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_mamba_scan_attr), .infer = infer,
    .run = {[OSH_REF] = mamba_ref}, .tol = 0, .scratch = mamba_scratch,
    .next = mamba_ref, .state = mamba_state,
    .grad.run = {[OSH_REF] = mamba_grad_ref}, .grad.scratch = mamba_grad_scratch,
    .traits = OSH_OP_HOST_ONLY, .flops = mamba_flops,
};
