/* ssm_scan.c - computes the selective scan of Mamba 2 (Dao, Gu 2024, "Transformers are SSMs"). The
 * state Z of a head has a vector [S] for each of its P channels. Each token scales the vectors
 * down, adds its own x B to them, and outputs their products with its own C.
 *
 *   in[0] x [N, H P + 2 G S]: H heads of P channels, then B and C of G groups [S]
 *   in[1] dt [N, H]     in[2] A_log [H]     in[3] D [H]     in[4] dt_bias [H]
 *   out y [N, H P] F32
 *
 *   d = softplus(dt + dt_bias)           at least dt_min, at most dt_max (0: no limit)
 *   Z = exp(-exp(A_log) d) Z + d x B     Z [P, S], 0 before the sample's first token
 *   y = Z C + D x
 *
 * Head h uses B and C of group h / (H / G).
 *
 * transformers' mamba2_chunk_scan computes the same sums in another order. dt + dt_bias and
 * softplus are rounded to the dtype of x. All other numbers are f32. y is F32, because the next op,
 * the gated norm, rounds. N: tokens of the batch. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <string.h>

static const osh_field attrs[] = {
    {"heads", OSH_F_INT, offsetof(osh_ssm_scan_attr, heads), NULL, 1, 1e6, "H", NULL, NULL},
    {"head_dim", OSH_F_INT, offsetof(osh_ssm_scan_attr, head_dim), NULL, 1, 1e6, "P", NULL, NULL},
    {"state", OSH_F_INT, offsetof(osh_ssm_scan_attr, state), NULL, 1, 1e6, "S", NULL, NULL},
    {"groups", OSH_F_INT, offsetof(osh_ssm_scan_attr, groups), "1", 1, 1e6, "G", NULL, NULL},
    {"dt_min", OSH_F_FLOAT, offsetof(osh_ssm_scan_attr, dt_min), "0", 0, 1e30, "least d",
     NULL, NULL},
    {"dt_max", OSH_F_FLOAT, offsetof(osh_ssm_scan_attr, dt_max), "0", 0, 1e30, "largest d; 0: none",
     NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_ssm_scan_attr *at = attr;
    int64_t want = at->heads * at->head_dim + 2 * at->groups * at->state;

    if (at->heads % at->groups)
        return osh_fail(cx, OSH_E_FORMAT, "ssm_scan: %lld heads, want a multiple of %lld groups",
                        (long long)at->heads, (long long)at->groups);
    if (in_width[0] != want || in_width[1] != at->heads)
        return osh_fail(cx, OSH_E_FORMAT, "ssm_scan: widths %lld and %lld, want %lld and %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)want,
                        (long long)at->heads);
    for (int k = 0; k < 3; k++) w_ndim[k] = 1, w_shape[k][0] = at->heads;
    out_width[0] = at->heads * at->head_dim;
    return OSH_OK;
}

void osh_ssm_gates(float *decay, float *step, const osh_ssm_scan_attr *at, float dt,
                   const float weights[3], osh_dtype dtype)
{
    double x = osh_round_to(dt + weights[2], dtype),
           soft = x > 20 ? x : osh_math_log(1 + osh_math_exp(x));
    float d = osh_round_to((float)soft, dtype);
    if (d < (float)at->dt_min) d = (float)at->dt_min;
    if (at->dt_max > 0 && d > (float)at->dt_max) d = (float)at->dt_max;
    *step = d;
    *decay = (float)osh_math_exp(-osh_math_exp(weights[0]) * d);
}

typedef struct whole { // all inputs of the op in f32, and scratch for one head
    float *x, *dt, *w[3], *y; // own
    double *Z;                // own [P, S]: state of one head
} whole;

/* Computes head h of one sample, whose rows are [row, row + n). */
static void ssm_head_ref(const whole *w, const osh_ssm_scan_attr *at, int64_t row, int64_t n,
                         int64_t h, osh_dtype dtype)
{
    int64_t P = at->head_dim, S = at->state, inner = at->heads * P,
            width = inner + 2 * at->groups * S;
    const float weights[3] = {w->w[0][h], w->w[1][h], w->w[2][h]};
    memset(w->Z, 0, (size_t)(P * S) * sizeof *w->Z);
    for (int64_t t = row; t < row + n; t++) {
        const float *x = w->x + t * width + h * P,
                    *B = w->x + t * width + inner + h / (at->heads / at->groups) * S;
        const float *C = B + at->groups * S;
        float decay, step;
        osh_ssm_gates(&decay, &step, at, w->dt[t * at->heads + h], weights, dtype);
        for (int64_t p = 0; p < P; p++) {
            double read = 0;
            for (int64_t i = 0; i < S; i++) {
                double *z = w->Z + p * S + i;
                *z = *z * decay + (double)step * x[p] * B[i];
                read += *z * C[i];
            }
            w->y[t * inner + h * P + p] = (float)(read + (double)weights[1] * x[p]);
        }
    }
}

static osh_status ssm_inputs_ref(osh_ctx *cx, whole *w, const osh_tensor *const *in)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_f32_copy(cx, &w->x, in[0]));
    OSH_TRY(osh_f32_copy(cx, &w->dt, in[1]));
    for (int k = 0; k < 3; k++) OSH_TRY(osh_f32_weight(cx, &w->w[k], in[2 + k], in[0]->dtype));
done:
    return rc;
}

static void ssm_inputs_free(osh_ctx *cx, whole *w)
{
    osh_free(cx, w->Z);
    osh_free(cx, w->y);
    for (int k = 0; k < 3; k++) osh_free(cx, w->w[k]);
    osh_free(cx, w->dt);
    osh_free(cx, w->x);
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_ssm_scan_attr *at = a->attr;
    osh_dtype dtype = a->in[0]->dtype;
    int64_t N = osh_rows(a->in[0]), n_seqs = 0;
    osh_tile *seq = NULL; // own: for each sample, the range of its rows
    whole w = {0};        // own

    OSH_TRY(ssm_inputs_ref(cx, &w, a->in));
    OSH_NEW(cx, w.y, N * at->heads * at->head_dim);
    OSH_NEW(cx, w.Z, at->head_dim * at->state);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t h = 0; h < at->heads; h++)
            ssm_head_ref(&w, at, seq[s].row, seq[s].n, h, dtype);
    memcpy(a->out[0]->data, w.y, (size_t)(N * at->heads * at->head_dim) * sizeof *w.y);
done:
    osh_free(cx, seq);
    ssm_inputs_free(cx, &w);
    return rc;
}

/* ---- gradient ----
 *
 *   dZ += dy C
 *   dC = dy Z
 *   dB = d x dZ
 *   dx = D dy + d B dZ
 *   dD = dy x
 *
 * These are the steps for one token. Tokens are processed from the last to the first. dZ is the
 * gradient with respect to Z. After the steps of each token, dZ is multiplied by the
 * decay f = exp(-A d), where A = exp(A_log).
 * The gradient with respect to f is the sum of dZ times Z before the token. The gradient with
 * respect to d has two terms: x B dZ, and -A f times the gradient of f. The gradient with respect
 * to A is -d f times the gradient of f. */

void osh_ssm_gates_back(double to[2], const osh_ssm_scan_attr *at, const float gates[2],
                        const double d[2], float dt, const float weights[3])
{
    double x = (double)dt + weights[2], rate = -osh_math_exp(weights[0]) * d[0] * gates[0];
    double soft = x > 20 ? x : osh_math_log(1 + osh_math_exp(x));
    bool held = soft < at->dt_min || (at->dt_max > 0 && soft > at->dt_max);
    to[0] = held ? 0 : (d[1] + rate) / (1 + osh_math_exp(-x));
    to[1] = rate * gates[1];
}

/* Adds the gradients of head h of one sample. Z: scratch [tokens + 1, P, S] for states, where Z[0]
 * is 0. dZ: scratch [P, S], which must be 0. */
static void ssm_head_back_ref(const osh_grad_args *a, const whole *w, double *Z, double *dZ,
                              const osh_tile *seq, int64_t h)
{
    const osh_ssm_scan_attr *at = a->attr;
    int64_t P = at->head_dim, S = at->state, inner = at->heads * P,
            width = inner + 2 * at->groups * S, each = P * S;
    const float weights[3] = {w->w[0][h], w->w[1][h], w->w[2][h]};
    double sums[3] = {0, 0, 0};

    for (int64_t n = 0; n < 2 * seq->n; n++) {
        bool back = n >= seq->n;
        int64_t t = back ? 2 * seq->n - 1 - n : n, row = seq->row + t;
        int64_t x = row * width + h * P, B = row * width + inner + h / (at->heads / at->groups) * S;
        int64_t C = B + at->groups * S;
        const float *dy = (const float *)a->dout[0]->data + row * inner + h * P;
        double d[2] = {0, 0}, to[2];
        float gates[2];
        osh_ssm_gates(&gates[0], &gates[1], at, w->dt[row * at->heads + h], weights, OSH_F32);
        for (int64_t p = 0; p < P; p++) {
            double dx = dy[p] * weights[1];
            for (int64_t i = 0; i < S; i++) {
                double *z = Z + t * each + p * S + i, *g = dZ + p * S + i;
                if (!back) {
                    z[each] = *z * gates[0] + (double)gates[1] * w->x[x + p] * w->x[B + i];
                    continue;
                }
                *g += dy[p] * w->x[C + i];
                osh_grad_add(a->din[0], C + i, dy[p] * z[each]);
                osh_grad_add(a->din[0], B + i, *g * gates[1] * w->x[x + p]);
                dx += *g * gates[1] * w->x[B + i];
                d[0] += *g * *z, d[1] += *g * w->x[x + p] * w->x[B + i];
                *g *= gates[0];
            }
            if (!back) continue;
            osh_grad_add(a->din[0], x + p, dx);
            sums[1] += (double)dy[p] * w->x[x + p];
        }
        if (!back) continue;
        osh_ssm_gates_back(to, at, gates, d, w->dt[row * at->heads + h], weights);
        osh_grad_add(a->din[1], row * at->heads + h, to[0]);
        sums[0] += to[1], sums[2] += to[0];
    }
    for (int k = 0; k < 3; k++) osh_grad_add(a->din[2 + k], h, sums[k]);
}

static osh_status ssm_scan_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_ssm_scan_attr *at = a->attr;
    int64_t N = osh_rows(a->in[0]), each = at->head_dim * at->state, n_seqs = 0;
    osh_tile *seq = NULL; // own: for each sample, the range of its rows
    double *Z = NULL;     // own: dZ [P, S], and after it the states Z [N + 1, P, S]
    whole w = {0};        // own

    OSH_TRY(ssm_inputs_ref(cx, &w, a->in));
    OSH_NEW(cx, Z, (N + 2) * each);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t h = 0; h < at->heads; h++) {
            memset(Z, 0, (size_t)(2 * each) * sizeof *Z); // sets dZ and the state Z[0] to 0
            ssm_head_back_ref(a, &w, Z + each, Z, &seq[s], h);
        }
done:
    osh_free(cx, seq);
    osh_free(cx, Z);
    ssm_inputs_free(cx, &w);
    return rc;
}

/* Returns the number of floating-point operations: 5 for each token and each element of a head's
 * state (decay, update, output). */
static double ssm_scan_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                             const osh_op_load *load)
{
    (void)in_width;
    return 5 * load->tokens * (double)((const osh_ssm_scan_attr *)attr)->state * (double)out_width;
}

const osh_op osh_op_ssm_scan = {
    .name = "ssm_scan", .n_in = 2, .n_weights = 3, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_ssm_scan_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_ssm_scan_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_ssm_scan_cuda)},
    .tol = 1e-11, .scratch = osh_ssm_scan_scratch,
    .next = osh_ssm_scan_cpu, .state = osh_ssm_scan_state,
    .arena_bytes = osh_ssm_scan_cuda_scratch,
    .grad.run = {[OSH_REF] = ssm_scan_grad_ref, [OSH_CPU] = osh_ssm_scan_grad_cpu,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_ssm_scan_grad_cuda)},
    .grad.arena_bytes = osh_ssm_scan_grad_cuda_scratch,
    .grad.scratch = osh_ssm_scan_grad_scratch,
    .traits = OSH_OP_F32_OUT,
    .flops = ssm_scan_flops,
};
