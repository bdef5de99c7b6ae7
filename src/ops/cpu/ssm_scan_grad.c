/* ssm_scan_grad.c - computes the gradients of the scan of Mamba 2 (ops/ssm_scan.c). A chunk of
 * parallel work is one head of one sample. Every C-th state is stored, and the other states are
 * computed again, as in delta_rule_grad.c.
 *
 * Heads of a group read the same B and C. So their gradients of B and C must be added in a fixed
 * order. A wave is WAVE heads that are computed in parallel. (WAVE does not depend on the number of
 * threads.) Each head writes its gradients of B and C to its own rows of osh_head_room.shared.
 * After the wave, these rows are added in the order of the heads. */
#include "ops/cpu/ssm_scan.h"
#include "ops/kernel.h"

#include <string.h>

enum { WAVE = 8 };

typedef struct scan_back {
    osh_scan_head head;
    osh_scan_room m;
    /* Each is an array of states [S, padded P].
     * kept: every C-th state.
     * now: a stored state, and the state after each of the next C tokens.
     * dZ: gradient of the state. */
    float *kept, *now, *dZ;
    float *dy, *dx;         // gradients of the output and of x, [padded P]
    float *to_B, *to_C;     // gradients of B and C of the current token, [S]
    double sums[3];         // gradients of A_log, D and dt_bias
    int64_t C, each;
} scan_back;

static int64_t scan_back_floats(const void *attr, int64_t n_tokens)
{
    const osh_ssm_scan_attr *at = attr;
    int64_t P = osh_pad8(at->head_dim);
    return osh_scan_floats(at) + (2 * osh_state_span(n_tokens) + 2) * at->state * P + 2 * P;
}

static int64_t scan_back_shared(const void *attr, int64_t n_tokens)
{
    // memory of a token: first the gradient of B [S], then the gradient of C [S]
    return 2 * ((const osh_ssm_scan_attr *)attr)->state * n_tokens;
}

/* Computes the gradients of one token. Z points to the state before the token. The state after the
 * token follows it in memory. b->m.x must already be multiplied by the token's step d. On entry, dZ
 * is the gradient of the state after the token. On return, it is the gradient of the state before
 * the token. Adds the gradient of d x to b->dx. Returns the gradient of the decay. */
OSH_VEC_FN double scan_token_body(const scan_back *b, const float *Z, float decay, int64_t S,
                                  int64_t P)
{
    const float *after = Z + S * P;
    double to_decay = 0;
    for (int64_t i = 0; i < S; i++) {
        osh_v8f to_b, to_c, fades;
        v8_set(&to_b, 0), v8_set(&to_c, 0), v8_set(&fades, 0);
        for (int64_t c = 0; c < P; c += OSH_LANES) {
            osh_v8f d, z, x, y, sum;
            v8_load(&d, b->dZ + i * P + c), v8_load(&y, b->dy + c), v8_load(&x, b->m.x + c);
            d = d + y * b->m.C[i];
            v8_load(&z, after + i * P + c);
            to_c = to_c + z * y, to_b = to_b + d * x;
            v8_load(&sum, b->dx + c);
            sum = sum + d * b->m.B[i];
            v8_store(b->dx + c, &sum);
            v8_load(&z, Z + i * P + c);
            fades = fades + d * z;
            d = d * decay;
            v8_store(b->dZ + i * P + c, &d);
        }
        b->to_B[i] = v8_sum(&to_b), b->to_C[i] = v8_sum(&to_c);
        to_decay += v8_sum(&fades);
    }
    return to_decay;
}
OSH_AVX2 static double scan_token_avx2(const scan_back *b, const float *Z, float decay, int64_t S,
                                       int64_t P)
{
    return scan_token_body(b, Z, decay, S, P);
}

/* Adds the gradients of row t (one token). Z points to the state before the token. The state after
 * the token follows it in memory. */
static void scan_token_back(const osh_grad_args *a, scan_back *b, int64_t t, const float *Z)
{
    const float *weights = b->head.weights;
    int64_t h = b->head.h;
    const osh_ssm_scan_attr *at = a->attr;
    int64_t P = at->head_dim, padded = osh_pad8(P), S = at->state,
            x_at = t * osh_width(a->in[0]) + h * P;
    float gates[2];
    double d[2] = {0, 0}, to[2];

    osh_scan_load(gates, &b->head, &b->m, t, OSH_F32);
    memcpy(b->dy, (const float *)a->dout[0]->data + (t * at->heads + h) * P,
           (size_t)P * sizeof *b->dy);
    memset(b->dx, 0, (size_t)padded * sizeof *b->dx);
    for (int64_t p = 0; p < P; p++)
        b->sums[1] += (double)b->dy[p] * b->m.x[p], b->m.x[p] *= gates[1];
    d[0] = osh_isa_used() >= OSH_ISA_AVX2 ? scan_token_avx2(b, Z, gates[0], S, padded)
                                          : scan_token_body(b, Z, gates[0], S, padded);
    for (int64_t p = 0; p < P; p++) {
        d[1] += (double)b->dx[p] * osh_tensor_at(a->in[0], x_at + p);
        osh_grad_add(a->din[0], x_at + p, b->dx[p] * gates[1] + weights[1] * b->dy[p]);
    }
    osh_ssm_gates_back(to, at, gates, d, osh_tensor_at(a->in[1], t * at->heads + h), weights);
    osh_grad_add(a->din[1], t * at->heads + h, to[0]);
    b->sums[0] += to[1], b->sums[2] += to[0];
}

/* Computes the states of n tokens, from row `first` on. b->now[0] must be the state before the
 * first of these tokens. Writes the state after the i-th of them to b->now[i + 1]. */
static void scan_forward(scan_back *b, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float gates[2];
        osh_scan_load(gates, &b->head, &b->m, first + i, OSH_F32);
        b->m.Z = b->now + (i + 1) * b->each;
        memcpy(b->m.Z, b->now + i * b->each, (size_t)b->each * sizeof *b->m.Z);
        osh_scan_step(&b->m, b->head.at, gates);
    }
}

static void scan_head_back(const osh_grad_args *a, const osh_tile *seq, int64_t h,
                           const osh_head_room *r)
{
    const osh_ssm_scan_attr *at = a->attr;
    int64_t P = osh_pad8(at->head_dim), C = osh_state_span(r->longest);
    int64_t each = at->state * P, n_kept = osh_div_up(seq->n, C);
    size_t bytes = (size_t)each * sizeof(float);
    scan_back b = {osh_scan_head_of(a->in, at, h), osh_scan_room_at(at, r->own), .C = C,
                   .each = each};

    b.kept = r->own + osh_scan_floats(at), b.now = b.kept + C * each, b.dZ = b.now + (C + 1) * each;
    b.dy = b.dZ + each, b.dx = b.dy + P;
    for (int64_t k = 0; k < n_kept; k++) {
        memcpy(b.kept + k * each, b.now, bytes);
        if (k + 1 == n_kept) break;
        scan_forward(&b, seq->row + k * C, C);
        memcpy(b.now, b.now + C * each, bytes);
    }
    for (int64_t k = n_kept - 1; k >= 0; k--) {
        int64_t n = osh_min64(C, seq->n - k * C);
        memcpy(b.now, b.kept + k * each, bytes);
        scan_forward(&b, seq->row + k * C, n);
        for (int64_t i = n - 1; i >= 0; i--) {
            b.to_B = r->shared + (k * C + i) * 2 * at->state, b.to_C = b.to_B + at->state;
            scan_token_back(a, &b, seq->row + k * C + i, b.now + i * each);
        }
    }
    for (int k = 0; k < 3; k++) osh_grad_add(a->din[2 + k], h, b.sums[k]);
}

/* Adds the gradients of B and C to din[0]. The heads [first, first + n) have stored these
 * gradients. Adds them in the order of the heads. */
static void scan_add_shared(const osh_grad_args *a, const osh_tile *seq, int64_t first, int64_t n,
                            const osh_head_room *r)
{
    const osh_ssm_scan_attr *at = a->attr;
    int64_t S = at->state, width = osh_width(a->in[0]);
    for (int64_t t = 0; a->din[0] && t < seq->n; t++)
        for (int64_t k = 0; k < n; k++) {
            const float *d = r->shared + k * scan_back_shared(at, r->longest) + t * 2 * S;
            int64_t group = (first + k) / (at->heads / at->groups);
            float *to = (float *)a->din[0]->data + (seq->row + t) * width +
                        at->heads * at->head_dim + group * S;
            for (int64_t i = 0; i < S; i++) to[i] += d[i], to[at->groups * S + i] += d[S + i];
        }
}

static osh_head_back scan_way(const osh_ssm_scan_attr *at)
{
    return (osh_head_back){at->heads,        WAVE,           scan_back_floats,
                           scan_back_shared, scan_head_back, scan_add_shared};
}

osh_status osh_ssm_scan_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    osh_head_back way = scan_way(a->attr);
    return osh_back_by_head(cx, a, &way);
}

size_t osh_ssm_scan_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                 int64_t n_tokens, int n_threads)
{
    (void)in_width, (void)out_width;
    osh_head_back way = scan_way(attr);
    return osh_back_by_head_scratch(attr, &way, n_tokens, n_threads);
}
