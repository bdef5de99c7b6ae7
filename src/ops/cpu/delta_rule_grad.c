/* delta_rule_grad.c - computes the gradients of gated DeltaNet (ops/delta_rule.c). A chunk of
 * parallel work is one key head of one sample. It computes the value heads of this key head one
 * after the other.
 *
 * The gradient of a token needs the state matrix before and after the token. A forward pass over
 * the whole sample stores the state before every C-th token. The backward pass then goes through
 * the sample in steps of C tokens, from the end to the beginning. For each step, it computes the C
 * states again from the stored state. C is the smallest number with C * C >= the tokens of the
 * longest sample.
 *
 *   stored before token   0     C    2C    3C    4C
 *   computed again      3C 3C+1 ... 4C, then 2C ... 3C, and so on
 *
 * So a sample of 2,048 tokens needs memory for 46 + 46 states. Samples are computed one after the
 * other, so that gradients of weights are summed in order. */
#include "ops/cpu/delta_rule.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

typedef struct delta_back {
    osh_delta_room m;
    float *kept;          // states before every C-th token, [ceil(tokens / C), Dk, padded Dv]
    /* [C + 1, Dk, padded Dv]: a stored state, then the states after each of the next C tokens. */
    float *now;
    float *dS;            // gradient of the state, [Dk, padded Dv]
    float *dq, *dk;       // gradients of q and k, [Dk]
    /* dy: gradient of y, [padded Dv]. The other arrays are scratch, [padded Dv] each. */
    float *dy, *e, *du;
    /* C: number of tokens from one stored state to the next.
     * each: number of elements of a state. */
    int64_t C, each;
} delta_back;

static int64_t delta_back_floats(const void *attr, int64_t n_tokens)
{
    const osh_delta_rule_attr *at = attr;
    int64_t Dv = osh_pad8(at->v_dim), C = osh_state_span(n_tokens);
    return osh_delta_floats(at) + (2 * C + 2) * at->k_dim * Dv + 2 * osh_pad8(at->k_dim) + 3 * Dv;
}

static delta_back delta_back_at(const osh_delta_rule_attr *at, int64_t longest, float *room)
{
    int64_t Dv = osh_pad8(at->v_dim), C = osh_state_span(longest), each = at->k_dim * Dv;
    delta_back b = {.m = osh_delta_room_at(at, room), .C = C, .each = each};
    b.kept = room + osh_delta_floats(at), b.now = b.kept + C * each, b.dS = b.now + (C + 1) * each;
    b.dq = b.dS + each, b.dk = b.dq + osh_pad8(at->k_dim), b.dy = b.dk + osh_pad8(at->k_dim);
    b.e = b.dy + Dv, b.du = b.e + Dv;
    return b;
}

/* First part of the backward step of a token:
 *
 *   e  += k S
 *   dS += q dy
 *   du += k dS
 *   dq  = S' dy
 *
 * S is the state before the token, and S' is the state after it. dS is the gradient of the state.
 * The caller must set e and du to 0. */
OSH_VEC_FN void delta_first_body(const delta_back *b, const float *S, const float *after,
                                 int64_t Dk, int64_t Dv)
{
    for (int64_t i = 0; i < Dk; i++) {
        osh_v8f dot;
        v8_set(&dot, 0);
        for (int64_t c = 0; c < Dv; c += OSH_LANES) {
            osh_v8f s, d, y, sum;
            v8_load(&s, S + i * Dv + c), v8_load(&sum, b->e + c);
            sum = sum + s * b->m.k[i];
            v8_store(b->e + c, &sum);
            v8_load(&d, b->dS + i * Dv + c), v8_load(&y, b->dy + c), v8_load(&sum, b->du + c);
            d = d + y * b->m.q[i];
            v8_store(b->dS + i * Dv + c, &d);
            sum = sum + d * b->m.k[i];
            v8_store(b->du + c, &sum);
            v8_load(&s, after + i * Dv + c);
            dot = dot + s * y;
        }
        b->dq[i] = v8_sum(&dot);
    }
}
OSH_AVX2 static void delta_first_avx2(const delta_back *b, const float *S, const float *after,
                                      int64_t Dk, int64_t Dv)
{
    delta_first_body(b, S, after, Dk, Dv);
}

/* Second part of the backward step of a token:
 *
 *   dk = u dS - decay (S de)
 *   dS = decay (dS - k de)
 *
 * The caller must write u to b->e, and de to b->du. (de is e' in ops/delta_rule.c.) Returns the
 * gradient of the decay. */
OSH_VEC_FN double delta_second_body(const delta_back *b, const float *S, float decay, int64_t Dk,
                                    int64_t Dv)
{
    double to_decay = 0;
    for (int64_t i = 0; i < Dk; i++) {
        osh_v8f own, says, fades;
        v8_set(&own, 0), v8_set(&says, 0), v8_set(&fades, 0);
        for (int64_t c = 0; c < Dv; c += OSH_LANES) {
            osh_v8f s, d, u, de;
            v8_load(&s, S + i * Dv + c), v8_load(&d, b->dS + i * Dv + c);
            v8_load(&u, b->e + c), v8_load(&de, b->du + c);
            own = own + d * u, says = says + s * de;
            d = d - de * b->m.k[i];
            fades = fades + d * s;
            d = d * decay;
            v8_store(b->dS + i * Dv + c, &d);
        }
        b->dk[i] = v8_sum(&own) - decay * v8_sum(&says);
        to_decay += v8_sum(&fades);
    }
    return to_decay;
}
OSH_AVX2 static double delta_second_avx2(const delta_back *b, const float *S, float decay,
                                         int64_t Dk, int64_t Dv)
{
    return delta_second_body(b, S, decay, Dk, Dv);
}

static void delta_add_row(osh_tensor *to, int64_t at, const float *x, int64_t n)
{
    for (int64_t i = 0; to && i < n; i++) ((float *)to->data)[at + i] += x[i];
}

/* Adds the gradients of row t (one token). S points to the state before the token. The state after
 * the token follows it in memory. Adds the gradients of A_log and dt_bias to `sums`. */
static void delta_token_back(const osh_grad_args *a, const delta_back *b, int64_t t, int64_t h,
                             const float *S, double sums[2])
{
    const osh_delta_rule_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    int64_t Dk = at->k_dim, Dv = osh_pad8(at->v_dim), keys = at->k_heads * Dk,
            g = t * at->v_heads + h;
    int64_t row = t * osh_width(x), v = row + 2 * keys + h * at->v_dim,
            q = row + h / (at->v_heads / at->k_heads) * Dk;
    osh_delta_token n = osh_delta_load(a->in, at, &b->m, t, h, OSH_F32);
    bool avx2 = osh_isa_used() >= OSH_ISA_AVX2;
    float *dx = a->din[0] ? a->din[0]->data : NULL;
    double d[2] = {0, 0}, to[4];

    memcpy(b->dy, (const float *)a->dout[0]->data + g * at->v_dim,
           (size_t)at->v_dim * sizeof *b->dy);
    // sets e and du to 0; the two arrays are neighbours in memory
    memset(b->e, 0, (size_t)(2 * Dv) * sizeof *b->e);
    if (avx2) delta_first_avx2(b, S, S + b->each, Dk, Dv);
    else delta_first_body(b, S, S + b->each, Dk, Dv);
    for (int64_t c = 0; c < Dv; c++) {
        float e = b->m.v[c] - n.gates[0] * b->e[c];
        d[1] += (double)b->du[c] * e;
        b->e[c] = n.gates[1] * e, b->du[c] *= n.gates[1];
    }
    d[0] = avx2 ? delta_second_avx2(b, S, n.gates[0], Dk, Dv)
                : delta_second_body(b, S, n.gates[0], Dk, Dv);
    osh_delta_gates_back(to, n.gates, d, n.in, at);
    osh_grad_add(a->din[1], g, to[0]), osh_grad_add(a->din[2], g, to[1]);
    sums[0] += to[2], sums[1] += to[3];
    delta_add_row(a->din[0], v, b->du, at->v_dim);
    if (!dx) return;
    osh_to_f32(b->m.q, osh_elem(x, q), x->dtype, Dk);
    osh_to_f32(b->m.k, osh_elem(x, q + keys), x->dtype, Dk);
    osh_delta_unit_back(dx + q, b->m.q, b->dq, Dk, 1 / sqrt((double)Dk));
    osh_delta_unit_back(dx + q + keys, b->m.k, b->dk, Dk, 1);
}

/* Computes the states of tokens [first, first + n) of the sample. b->now[0] must be the state
 * before the first of these tokens. Writes the state after the i-th of them to b->now[i + 1]. */
static void delta_forward(const osh_grad_args *a, delta_back *b, const osh_tile *seq, int64_t first,
                          int64_t n, int64_t h)
{
    const osh_delta_rule_attr *at = a->attr;
    for (int64_t i = 0; i < n; i++) {
        osh_delta_token t = osh_delta_load(a->in, at, &b->m, seq->row + first + i, h, OSH_F32);
        b->m.S = b->now + (i + 1) * b->each;
        memcpy(b->m.S, b->now + i * b->each, (size_t)b->each * sizeof *b->m.S);
        osh_delta_step(&b->m, at, t.gates);
    }
}

static void delta_head_back(const osh_grad_args *a, delta_back *b, const osh_tile *seq, int64_t h)
{
    int64_t C = b->C, n_kept = osh_div_up(seq->n, C);
    size_t bytes = (size_t)b->each * sizeof *b->now;
    double sums[2] = {0, 0};

    memset(b->now, 0, bytes);
    memset(b->dS, 0, bytes);
    for (int64_t k = 0; k < n_kept; k++) {
        memcpy(b->kept + k * b->each, b->now, bytes);
        if (k + 1 == n_kept) break;
        delta_forward(a, b, seq, k * C, C, h);
        memcpy(b->now, b->now + C * b->each, bytes);
    }
    for (int64_t k = n_kept - 1; k >= 0; k--) {
        int64_t n = osh_min64(C, seq->n - k * C);
        memcpy(b->now, b->kept + k * b->each, bytes);
        delta_forward(a, b, seq, k * C, n, h);
        for (int64_t i = n - 1; i >= 0; i--)
            delta_token_back(a, b, seq->row + k * C + i, h, b->now + i * b->each, sums);
    }
    osh_grad_add(a->din[3], h, sums[0]), osh_grad_add(a->din[4], h, sums[1]);
}

static void key_head_back(const osh_grad_args *a, const osh_tile *seq, int64_t head,
                          const osh_head_room *r)
{
    const osh_delta_rule_attr *at = a->attr;
    int64_t group = at->v_heads / at->k_heads;
    delta_back b = delta_back_at(at, r->longest, r->own);
    for (int64_t h = head * group; h < (head + 1) * group; h++) delta_head_back(a, &b, seq, h);
}

osh_status osh_delta_rule_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    const osh_delta_rule_attr *at = a->attr;
    osh_head_back way = {.heads = at->k_heads, .floats = delta_back_floats, .back = key_head_back};
    return osh_back_by_head(cx, a, &way);
}

size_t osh_delta_rule_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                   int64_t n_tokens, int n_threads)
{
    (void)in_width, (void)out_width;
    return osh_by_head_scratch(delta_back_floats(attr, n_tokens), n_tokens, n_threads);
}
