/* delta_rule.c - computes gated DeltaNet (Yang et al. 2024, "Gated Delta Networks"). A head has a
 * state matrix S that maps keys to values. Each token scales S down, corrects the value for the
 * token's key, and outputs the value for the token's query.
 *
 *   in[0] x [N, 2 Nk Dk + Nv Dv]: queries and keys of Nk heads [Dk], values of Nv heads [Dv]
 *   in[1] a [N, Nv]     in[2] b [N, Nv]     in[3] A_log [Nv]     in[4] dt_bias [Nv]
 *   out y [N, Nv Dv]
 *
 *   q = q / sqrt(q q + 1e-6) / sqrt(Dk)
 *   k = k / sqrt(k k + 1e-6)
 *   value head h uses q and k of key head h / (Nv / Nk)
 *   S = exp(-exp(A_log) softplus(a + dt_bias)) S     S [Dk, Dv], 0 before the sample's first token
 *   S = S + k (beta sigmoid(b) (v - k S))
 *   y = q S
 *
 * All numbers are f32, except sigmoid(b) and y, which are rounded to the dtype of x, as in
 * transformers' torch_recurrent_gated_delta_rule. torch_chunk_gated_delta_rule computes the same
 * sums in another order. The attribute beta is 2 in OlmoHybridGatedDeltaNet with
 * linear_allow_neg_eigval. N: tokens of the batch. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <math.h>
#include <string.h>

static const osh_field attrs[] = {
    {"k_heads", OSH_F_INT, offsetof(osh_delta_rule_attr, k_heads), NULL, 1, 1e6, "Nk", NULL, NULL},
    {"v_heads", OSH_F_INT, offsetof(osh_delta_rule_attr, v_heads), NULL, 1, 1e6, "Nv", NULL, NULL},
    {"k_dim", OSH_F_INT, offsetof(osh_delta_rule_attr, k_dim), NULL, 1, 1e6, "Dk", NULL, NULL},
    {"v_dim", OSH_F_INT, offsetof(osh_delta_rule_attr, v_dim), NULL, 1, 1e6, "Dv", NULL, NULL},
    {"beta", OSH_F_FLOAT, offsetof(osh_delta_rule_attr, beta), "1", 0, 1e6, "factor of sigmoid(b)",
     NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_delta_rule_attr *at = attr;
    int64_t want = 2 * at->k_heads * at->k_dim + at->v_heads * at->v_dim;

    if (at->v_heads % at->k_heads)
        return osh_fail(cx, OSH_E_FORMAT,
                        "delta_rule: %lld heads, want a multiple of %lld key heads",
                        (long long)at->v_heads, (long long)at->k_heads);
    if (in_width[0] != want || in_width[1] != at->v_heads || in_width[2] != at->v_heads)
        return osh_fail(cx, OSH_E_FORMAT,
                        "delta_rule: widths %lld, %lld, %lld, want %lld, %lld, %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)in_width[2],
                        (long long)want, (long long)at->v_heads, (long long)at->v_heads);
    w_ndim[0] = w_ndim[1] = 1;
    w_shape[0][0] = w_shape[1][0] = at->v_heads;
    out_width[0] = at->v_heads * at->v_dim;
    return OSH_OK;
}

void osh_delta_gates(float gates[2], const float in[4], const osh_delta_rule_attr *at, osh_dtype dt)
{
    double x = (double)in[0] + in[3];
    // softplus(x); like torch, this uses x instead if x > 20
    double soft = x > 20 ? x : osh_math_log(1 + osh_math_exp(x));
    gates[0] = (float)osh_math_exp(-osh_math_exp(in[2]) * soft);
    gates[1] = osh_round_to((float)(1 / (1 + osh_math_exp(-(double)in[1]))), dt);
    gates[1] = osh_round_to(gates[1] * (float)at->beta, dt);
}

static void delta_unit_ref(double *to, const float *x, int64_t n, double by)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    for (int64_t i = 0; i < n; i++) to[i] = x[i] / sqrt(sum + 1e-6) * by;
}

typedef struct whole { // all inputs of the op in f32, and scratch for one head
    float *x, *a, *b, *A_log, *dt_bias, *y; // own
    double *S, *q, *k;                      // own, for one head: S [Dk, Dv], q [Dk], k [Dk]
} whole;

typedef struct token_ref { // values of one token of one head; all pointers are views
    double *S;           // state of the head, [Dk, Dv]
    const double *q, *k; // normalized query and key, [Dk]
    const float *v, *gates; // v: value vector of the token, [Dv]. gates: decay, beta * sigmoid(b).
} token_ref;

/* Updates S with one token and computes the token's output y [Dv]. */
static void delta_step_ref(const token_ref *t, float *y, const osh_delta_rule_attr *at)
{
    double *S = t->S;
    const double *q = t->q, *k = t->k;
    const float *v = t->v, *gates = t->gates;
    int64_t Dk = at->k_dim, Dv = at->v_dim;
    for (int64_t c = 0; c < Dv; c++) {
        double says = 0, read = 0;
        for (int64_t i = 0; i < Dk; i++) S[i * Dv + c] *= gates[0], says += k[i] * S[i * Dv + c];
        for (int64_t i = 0; i < Dk; i++) {
            S[i * Dv + c] += k[i] * gates[1] * (v[c] - says);
            read += q[i] * S[i * Dv + c];
        }
        y[c] = (float)read;
    }
}

/* Computes head h of one sample, whose rows are [row, row + n). */
static void delta_head_ref(const whole *w, const osh_delta_rule_attr *at, int64_t row, int64_t n,
                           int64_t h, osh_dtype dt)
{
    int64_t Dk = at->k_dim, Dv = at->v_dim, keys = at->k_heads * Dk,
            width = 2 * keys + at->v_heads * Dv;
    memset(w->S, 0, (size_t)(Dk * Dv) * sizeof *w->S);
    for (int64_t t = row; t < row + n; t++) {
        const float *x = w->x + t * width, *q = x + h / (at->v_heads / at->k_heads) * Dk;
        float gates[2];
        const float in[4] = {w->a[t * at->v_heads + h], w->b[t * at->v_heads + h], w->A_log[h],
                             w->dt_bias[h]};
        osh_delta_gates(gates, in, at, dt);
        delta_unit_ref(w->q, q, Dk, 1 / sqrt((double)Dk));
        delta_unit_ref(w->k, q + keys, Dk, 1);
        token_ref token = {w->S, w->q, w->k, x + 2 * keys + h * Dv, gates};
        delta_step_ref(&token, w->y + (t * at->v_heads + h) * Dv, at);
    }
}

static osh_status delta_inputs_ref(osh_ctx *cx, whole *w, const osh_tensor *const *in)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_f32_copy(cx, &w->x, in[0]));
    OSH_TRY(osh_f32_copy(cx, &w->a, in[1]));
    OSH_TRY(osh_f32_copy(cx, &w->b, in[2]));
    OSH_TRY(osh_f32_weight(cx, &w->A_log, in[3], in[0]->dtype));
    OSH_TRY(osh_f32_weight(cx, &w->dt_bias, in[4], in[0]->dtype));
done:
    return rc;
}

static void delta_inputs_free(osh_ctx *cx, whole *w)
{
    osh_free(cx, w->k);
    osh_free(cx, w->q);
    osh_free(cx, w->S);
    osh_free(cx, w->y);
    osh_free(cx, w->dt_bias);
    osh_free(cx, w->A_log);
    osh_free(cx, w->b);
    osh_free(cx, w->a);
    osh_free(cx, w->x);
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_delta_rule_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    int64_t N = osh_rows(a->in[0]), n_seqs = 0;
    osh_tile *seq = NULL; // own: for each sample, the range of its rows
    whole w = {0};        // own

    OSH_TRY(delta_inputs_ref(cx, &w, a->in));
    OSH_NEW(cx, w.y, N * at->v_heads * at->v_dim);
    OSH_NEW(cx, w.S, at->k_dim * at->v_dim);
    OSH_NEW(cx, w.q, at->k_dim);
    OSH_NEW(cx, w.k, at->k_dim);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t h = 0; h < at->v_heads; h++)
            delta_head_ref(&w, at, seq[s].row, seq[s].n, h, dt);
    osh_from_f32(a->out[0]->data, dt, w.y, N * at->v_heads * at->v_dim);
done:
    osh_free(cx, seq);
    delta_inputs_free(cx, &w);
    return rc;
}

/* ---- gradient ----
 *
 *   f = exp(-exp(A_log) softplus(a + dt_bias))     the decay
 *   c = sigmoid(b)
 *   e = v - k f S
 *   u = c e
 *
 * dS is the gradient with respect to S. Tokens are processed from the last to the first, so dS
 * already has the gradients from later tokens. For each token:
 *
 *   dS += q dy
 *   dq = S dy
 *   du = k dS
 *   e' = c du
 *   dk = u dS - e' f S
 *   dv = e'
 *
 * After that, dS - k e' is the gradient with respect to the product f S. */

void osh_delta_gates_back(double to[4], const float gates[2], const double d[2], const float in[4],
                          const osh_delta_rule_attr *at)
{
    double x = (double)in[0] + in[3], soft = x > 20 ? x : osh_math_log(1 + osh_math_exp(x));
    // rate: gradient with respect to softplus(a + dt_bias)
    double A = osh_math_exp(in[2]), rate = d[0] * gates[0] * -A;
    double half = 1 / (1 + osh_math_exp(-(double)in[1]));
    to[0] = rate / (1 + osh_math_exp(-x)), to[1] = d[1] * at->beta * half * (1 - half);
    to[2] = rate * soft, to[3] = to[0];
}

void osh_delta_unit_back(float *dx, const float *x, const float *d, int64_t n, double by)
{
    double sum = 1e-6, dot = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i], dot += (double)d[i] * x[i];
    double r = by / sqrt(sum);
    for (int64_t i = 0; dx && i < n; i++) dx[i] = (float)(dx[i] + r * (d[i] - x[i] * dot / sum));
}

typedef struct delta_back { // scratch for the backward pass of one head; all pointers are views
    /* S: states [tokens + 1, Dk, Dv]; S[0] is 0.
     * dS: gradient of the state, [Dk, Dv]. */
    double *S, *dS;
    double *q, *k;   // query and key of the current token, [Dk]
    /* Arrays [Dv]. `u` has `e` of the formulas. `du` has `du` of the formulas, and at the end of
     * the step e'. */
    double *u, *du;
    float *dq, *dk;  // gradients of q and k, [Dk]
    float gates[2];  // gates of the token: decay and beta * sigmoid(b)
    double d[2];     // gradients of the two gates
} delta_back;

/* Computes the backward step of one token. S points to the state before the token. The state after
 * the token follows it in memory. */
static void delta_step_back_ref(delta_back *m, double *S, const float *dy, const float *v,
                                const osh_delta_rule_attr *at)
{
    const float *gates = m->gates;
    double *d = m->d;
    int64_t Dk = at->k_dim, Dv = at->v_dim;
    const double *after = S + Dk * Dv;
    d[0] = d[1] = 0;
    for (int64_t c = 0; c < Dv; c++) {
        double says = 0;
        for (int64_t i = 0; i < Dk; i++) says += m->k[i] * gates[0] * S[i * Dv + c];
        m->u[c] = v[c] - says, m->du[c] = 0;
        for (int64_t i = 0; i < Dk; i++) m->dS[i * Dv + c] += m->q[i] * dy[c];
        for (int64_t i = 0; i < Dk; i++) m->du[c] += m->k[i] * m->dS[i * Dv + c];
        d[1] += m->du[c] * m->u[c];
    }
    for (int64_t i = 0; i < Dk; i++) {
        double dq = 0, dk = 0;
        for (int64_t c = 0; c < Dv; c++) {
            double *dS = &m->dS[i * Dv + c], before = S[i * Dv + c], e = gates[1] * m->du[c];
            dq += after[i * Dv + c] * dy[c];
            dk += *dS * gates[1] * m->u[c] - gates[0] * before * e;
            *dS -= m->k[i] * e;
            d[0] += *dS * before;
            *dS *= gates[0];
        }
        m->dq[i] = (float)dq, m->dk[i] = (float)dk;
    }
    for (int64_t c = 0; c < Dv; c++) m->du[c] *= gates[1]; // turns du into e', the gradient of v
}

/* Adds the gradients of head h of one sample. w: the inputs in f32. */
static void delta_head_back_ref(const osh_grad_args *a, const whole *w, delta_back *m,
                                const osh_tile *seq, int64_t h)
{
    const osh_delta_rule_attr *at = a->attr;
    int64_t Dk = at->k_dim, Dv = at->v_dim, keys = at->k_heads * Dk,
            width = 2 * keys + at->v_heads * Dv;
    int64_t key = h / (at->v_heads / at->k_heads) * Dk, each = Dk * Dv;
    float *dx = a->din[0] ? a->din[0]->data : NULL, *gates = m->gates;
    double sums[2] = {0, 0}, to[4];

    for (int back = 0; back < 2; back++)
        for (int64_t n = 0; n < seq->n; n++) {
            int64_t t = back ? seq->n - 1 - n : n, row = seq->row + t, g = row * at->v_heads + h;
            const float *x = w->x + row * width, *v = x + 2 * keys + h * Dv;
            const float *dy = (const float *)a->dout[0]->data + g * Dv;
            const float in[4] = {w->a[g], w->b[g], w->A_log[h], w->dt_bias[h]};
            osh_delta_gates(gates, in, at, OSH_F32);
            delta_unit_ref(m->q, x + key, Dk, 1 / sqrt((double)Dk));
            delta_unit_ref(m->k, x + keys + key, Dk, 1);
            double *S = m->S + t * each;
            if (!back) {
                memcpy(S + each, S, (size_t)each * sizeof *S);
                delta_step_ref(&(token_ref){S + each, m->q, m->k, v, gates}, w->y, at);
                continue;
            }
            delta_step_back_ref(m, S, dy, v, at);
            osh_delta_gates_back(to, gates, m->d, in, at);
            osh_grad_add(a->din[1], g, to[0]), osh_grad_add(a->din[2], g, to[1]);
            sums[0] += to[2], sums[1] += to[3];
            osh_delta_unit_back(dx ? dx + row * width + key : NULL, x + key, m->dq, Dk,
                                1 / sqrt((double)Dk));
            osh_delta_unit_back(dx ? dx + row * width + keys + key : NULL, x + keys + key, m->dk,
                                Dk, 1);
            for (int64_t c = 0; c < Dv; c++)
                osh_grad_add(a->din[0], row * width + 2 * keys + h * Dv + c, m->du[c]);
        }
    osh_grad_add(a->din[3], h, sums[0]), osh_grad_add(a->din[4], h, sums[1]);
}

static osh_status delta_rule_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_delta_rule_attr *at = a->attr;
    int64_t N = osh_rows(a->in[0]), Dk = at->k_dim, Dv = at->v_dim, n_seqs = 0;
    osh_tile *seq = NULL; // own: for each sample, the range of its rows
    double *room = NULL;  // own: memory for the double arrays of m
    float *keys = NULL;   // own: memory for the float arrays of m
    whole w = {0};        // own

    OSH_TRY(delta_inputs_ref(cx, &w, a->in));
    OSH_NEW(cx, w.y, Dv);
    OSH_NEW(cx, room, (N + 2) * Dk * Dv + 2 * Dk + 2 * Dv);
    OSH_NEW(cx, keys, 2 * Dk);
    delta_back m = {.dS = room, .q = room + Dk * Dv, .dq = keys, .dk = keys + Dk};
    m.k = m.q + Dk, m.u = m.k + Dk, m.du = m.u + Dv, m.S = m.du + Dv;
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t h = 0; h < at->v_heads; h++) {
            memset(m.dS, 0, (size_t)(Dk * Dv) * sizeof *m.dS);
            memset(m.S, 0, (size_t)(Dk * Dv) * sizeof *m.S);
            delta_head_back_ref(a, &w, &m, &seq[s], h);
        }
done:
    osh_free(cx, seq);
    osh_free(cx, keys);
    osh_free(cx, room);
    delta_inputs_free(cx, &w);
    return rc;
}

/* Returns the number of floating-point operations: 7 for each token and each element of a head's
 * matrix S (decay, query, correction, output). */
static double delta_rule_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                               const osh_op_load *load)
{
    (void)in_width;
    return 7 * load->tokens * (double)((const osh_delta_rule_attr *)attr)->k_dim *
           (double)out_width;
}

const osh_op osh_op_delta_rule = {
    .name = "delta_rule", .n_in = 3, .n_weights = 2, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_delta_rule_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_delta_rule_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_delta_rule_cuda)},
    .tol = 1e-11, .scratch = osh_delta_rule_scratch,
    .next = osh_delta_rule_cpu, .state = osh_delta_rule_state,
    .arena_bytes = osh_delta_rule_cuda_scratch,
    .grad.run = {[OSH_REF] = delta_rule_grad_ref, [OSH_CPU] = osh_delta_rule_grad_cpu,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_delta_rule_grad_cuda)},
    .grad.arena_bytes = osh_delta_rule_grad_cuda_scratch,
    .grad.scratch = osh_delta_rule_grad_scratch,
    .flops = delta_rule_flops,
};
