/* attention_grad.c - computes the gradients of attention. A chunk of parallel work is one kv head
 * of one sample. It computes the heads that read this kv head. The heads are computed one after the
 * other, in tiles of 128 queries. For each tile, the scores and the probabilities p of the forward
 * pass are computed again. Then OpenBLAS computes sums over the keys up to the last query of the
 * tile:
 *
 *   dp  = dy v^T
 *   ds  = p (dp - rowsum(p dp)) slope
 *   dq += ds k
 *   dk += ds^T q
 *   dv += p^T dy
 *
 * dy: gradient of the output. slope: derivative of a score with respect to the product q k. It is
 * scale, or scale (1 - (score / cap)^2) if scores are capped. A row in which a sink has probability
 * p_s adds -p_s rowsum(p dp) to the gradient of the sink. If the op has sinks, samples are computed
 * one after the other, because the gradient of a sink must be summed in the order of the samples.
 *
 * pairs_attention_grad.c rounds dy, p and ds to BF16, and multiplies BF16 values. It is used
 * instead if the caller sets osh_grad_args.rough, the tensors are BF16, and the CPU has BF16
 * instructions. */
#include "ops/cpu/attention_grad.h"

#include "base/isa.h"
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "math/pairs.h"
#include "math/span.h"
#include "math/vec.h"
#include "tensor/device.h"

#include <math.h>
#include <string.h>

enum { QUERIES = 128 };

typedef struct attention_grad_job {
    const osh_grad_args *a;
    const osh_tile *seq; // view: for each sample, the range of its rows
    int64_t longest;     // number of tokens of the longest sample
    float *room;         // own: scratch, attention_grad_floats floats for each thread
} attention_grad_job;

typedef struct back_room {
    float *k, *v, *dk, *dv;  // keys, values and their gradients for the kv head, [longest, Dh] each
    /* Queries, gradients of the outputs, gradients of the queries, [QUERIES, Dh] each. */
    float *q, *dy, *dq;
    /* Each [QUERIES, ld].
     * p: probabilities.
     * ds: gradients of the products q k^T. */
    float *p, *ds;
    /* Scratch [ld]: for each key, the derivative of its score in the current row (slope, see the
     * top of this file). */
    float *slope;
    osh_score_rule rule;
    int64_t ld;
    double to_sink;          // gradient of the sink of the head
} back_room;

static int64_t attention_grad_floats(int64_t Dh, int64_t longest)
{
    return (4 * longest + 3 * QUERIES) * Dh + (2 * QUERIES + 1) * osh_pad8(longest);
}

static back_room back_room_of(const attention_grad_job *j, int worker)
{
    const osh_attention_attr *at = j->a->attr;
    int64_t Dh = at->head_dim, L = j->longest, ld = osh_pad8(L);
    float *p = j->room + worker * attention_grad_floats(Dh, L), *q = p + 4 * L * Dh,
          *s = q + 3 * QUERIES * Dh;

    return (back_room){p, p + L * Dh, p + 2 * L * Dh, p + 3 * L * Dh,
                       q, q + QUERIES * Dh, q + 2 * QUERIES * Dh,
                       s, s + QUERIES * ld, s + 2 * QUERIES * ld,
                       osh_score_rule_of(at), ld, 0};
}

osh_score_rule osh_score_rule_of(const osh_attention_attr *at)
{
    double scale = at->scale > 0 ? at->scale : 1 / sqrt((double)at->head_dim);
    return (osh_score_rule){(float)scale, (float)at->softcap, -INFINITY};
}

static void head_load(float *to, const osh_tensor *x, int64_t row, int64_t n, int64_t at,
                      int64_t Dh)
{
    for (int64_t r = 0; r < n; r++)
        osh_to_f32(to + r * Dh, osh_elem(x, (row + r) * osh_width(x) + at), x->dtype, Dh);
}

void osh_attention_grad_give(const osh_grad_args *a, int k, const float *x, int64_t row, int64_t n,
                             int64_t at)
{
    int64_t Dh = ((const osh_attention_attr *)a->attr)->head_dim;
    osh_tensor *to = a->din[k];
    for (int64_t r = 0; to && r < n; r++, x += Dh) {
        float *y = (float *)to->data + (row + r) * osh_width(to) + at;
        if (a->fresh >> k & 1) memcpy(y, x, (size_t)Dh * sizeof *y);
        for (int64_t d = 0; !(a->fresh >> k & 1) && d < Dh; d++) y[d] += x[d];
    }
}

/* Computes the softmax of a row with a sink. m is the largest score:
 *
 *   p_m = 1 / sum e^(s - m)
 *   b   = e^(sink - m) p_m
 *
 * The probability of the sink is b / (1 + b). The other probabilities are those without the sink,
 * divided by 1 + b. */
float osh_attention_grad_row(const osh_score_rule *rule, float *s, float *slope, int64_t i,
                             int64_t n_keys, int64_t first)
{
    int64_t padded = osh_pad8(n_keys), top = first;
    float scale = rule->cap > 0 ? 1 : rule->scale;

    for (int64_t j = n_keys; j < padded; j++) s[j] = 0;
    if (rule->cap > 0) osh_span_softcap(s, padded, rule->scale, rule->cap, OSH_F32);
    for (int64_t j = first; j <= i; j++) {
        float t = rule->cap > 0 ? s[j] / rule->cap : 0;
        slope[j] = rule->scale * (1 - t * t);
    }
    for (int64_t j = 0; j < first; j++) s[j] = -INFINITY;
    for (int64_t j = i + 1; j < padded; j++) s[j] = -INFINITY;
    if (rule->sink == -INFINITY) {
        osh_span_softmax(s, padded, scale, OSH_F32);
        return 0;
    }
    for (int64_t j = first; j <= i; j++) top = s[j] > s[top] ? j : top;
    double m = (double)s[top] * scale;
    osh_span_softmax(s, padded, scale, OSH_F32);
    // b = e^(sink - m) p_m is infinite if the probability of the sink is 1
    double beside = exp(rule->sink - m) * s[top];
    for (int64_t j = first; j <= i; j++) s[j] = (float)(s[j] / (1 + beside));
    return isinf(beside) ? 1 : (float)(beside / (1 + beside));
}

OSH_VEC_FN void slopes_body(float *ds, const float *p, const float *slope, float mean, int64_t n)
{
    int64_t i = 0;
    for (; i + OSH_LANES <= n; i += OSH_LANES) {
        osh_v8f s, q, d;
        v8_load(&s, ds + i), v8_load(&q, p + i), v8_load(&d, slope + i);
        s = q * (s - mean) * d;
        v8_store(ds + i, &s);
    }
    for (; i < n; i++) ds[i] = p[i] * (ds[i] - mean) * slope[i];
}
OSH_AVX2 static void slopes_avx2(float *ds, const float *p, const float *slope, float mean,
                                 int64_t n)
{
    slopes_body(ds, p, slope, mean, n);
}
void osh_attention_grad_slopes(float *ds, const float *p, const float *slope, float mean, int64_t n)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) slopes_avx2(ds, p, slope, mean, n);
    else slopes_body(ds, p, slope, mean, n);
}

/* Computes dq of n queries of one head. The first query is at position `pos` of the sample. Also
 * adds the terms of these queries to dk, to dv, and to me->to_sink (the gradient of the sink). */
static void attention_tile_back(back_room *me, int64_t pos, int64_t n, const osh_attention_attr *at)
{
    int64_t Dh = at->head_dim, n_keys = pos + n, ld = me->ld;

    osh_gemm_nt((osh_into){me->p, ld, false}, (osh_mat){me->q, Dh}, (osh_mat){me->k, Dh},
                (osh_mnk){n, n_keys, Dh});
    osh_gemm_nt((osh_into){me->ds, ld, false}, (osh_mat){me->dy, Dh}, (osh_mat){me->v, Dh},
                (osh_mnk){n, n_keys, Dh});
    for (int64_t r = 0; r < n; r++) {
        float *p = me->p + r * ld, *ds = me->ds + r * ld, *slope = me->slope;
        // the query sees the keys [first, end)
        int64_t first = osh_first_key(at, pos + r), end = pos + r + 1;
        double mean = 0;
        float share = osh_attention_grad_row(&me->rule, p, slope, pos + r, n_keys, first);
        for (int64_t j = first; j < end; j++) mean += (double)p[j] * ds[j];
        osh_attention_grad_slopes(ds + first, p + first, slope + first, (float)mean, end - first);
        memset(ds, 0, (size_t)first * sizeof *ds);
        memset(ds + end, 0, (size_t)(n_keys - end) * sizeof *ds);
        me->to_sink -= share * mean;
    }
    osh_gemm_nn((osh_into){me->dq, Dh, false}, (osh_mat){me->ds, ld}, (osh_mat){me->k, Dh},
                (osh_mnk){n, Dh, n_keys});
    osh_gemm_tn((osh_into){me->dk, Dh, true}, (osh_mat){me->ds, ld}, (osh_mat){me->q, Dh},
                (osh_mnk){n_keys, Dh, n});
    osh_gemm_tn((osh_into){me->dv, Dh, true}, (osh_mat){me->p, ld}, (osh_mat){me->dy, Dh},
                (osh_mnk){n_keys, Dh, n});
}

static osh_status attention_grad_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const attention_grad_job *j = user;
    const osh_grad_args *a = j->a;
    const osh_attention_attr *at = a->attr;
    const osh_tile *s = &j->seq[chunk / at->n_kv_heads];
    int64_t Dh = at->head_dim, kv = chunk % at->n_kv_heads, group = at->n_heads / at->n_kv_heads;
    back_room me = back_room_of(j, worker);

    (void)cx;
    head_load(me.k, a->in[1], s->row, s->n, kv * Dh, Dh);
    head_load(me.v, a->in[2], s->row, s->n, kv * Dh, Dh);
    memset(me.dk, 0, (size_t)(s->n * Dh) * sizeof *me.dk);
    memset(me.dv, 0, (size_t)(s->n * Dh) * sizeof *me.dv);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        me.to_sink = 0;
        if (a->in[3]) osh_load_weight(&me.rule.sink, a->in[3], h, 1, a->in[0]->dtype);
        for (int64_t pos = 0; pos < s->n; pos += QUERIES) {
            int64_t n = osh_min64(QUERIES, s->n - pos);
            head_load(me.q, a->in[0], s->row + pos, n, h * Dh, Dh);
            head_load(me.dy, a->dout[0], s->row + pos, n, h * Dh, Dh);
            attention_tile_back(&me, pos, n, at);
            osh_attention_grad_give(a, 0, me.dq, s->row + pos, n, h * Dh);
        }
        osh_grad_add(a->din[3], h, me.to_sink);
    }
    osh_attention_grad_give(a, 1, me.dk, s->row, s->n, kv * Dh);
    osh_attention_grad_give(a, 2, me.dv, s->row, s->n, kv * Dh);
    return OSH_OK;
}

/* Runs attention_grad_chunk for each kv head of all samples. */
static osh_status attention_grad_by_blas(osh_ctx *cx, attention_grad_job *j, int64_t n_seqs)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = j->a->attr;
    int64_t together = j->a->din[3] ? 1 : n_seqs;
    const osh_tile *seq = j->seq;
    size_t floats = (size_t)(osh_threads(cx) * attention_grad_floats(at->head_dim, j->longest));

    OSH_TRY(osh_blas_open(cx));
    if (!(j->room = osh_alloc(cx, floats * sizeof *j->room))) OSH_TRY(OSH_E_NOMEM);
    for (int64_t s = 0; s < n_seqs; s += together) {
        j->seq = seq + s;
        OSH_TRY(osh_parallel_for(cx, together * at->n_kv_heads, attention_grad_chunk, j));
    }
done:
    osh_free(cx, j->room);
    return rc;
}

osh_status osh_attention_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), n_seqs = 0;
    osh_tile *seq = NULL; // own
    attention_grad_job j = {.a = a};

    if (a->din[3] && a->fresh >> 3 & 1) OSH_TRY(osh_tensor_zero(cx, a->din[3]));
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++) j.longest = seq[s].n > j.longest ? seq[s].n : j.longest;
    j.seq = seq;
    if (a->rough && osh_pairs_take(a->in[0]) && osh_pairs_take(a->in[1]) &&
        osh_pairs_take(a->in[2]))
        OSH_TRY(osh_pairs_attention_grad(cx, a, seq, n_seqs, j.longest));
    else OSH_TRY(attention_grad_by_blas(cx, &j, n_seqs));
done:
    osh_free(cx, seq);
    return rc;
}

size_t osh_attention_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, int n_threads)
{
    (void)in_width, (void)out_width;
    int64_t Dh = ((const osh_attention_attr *)attr)->head_dim;
    size_t wide = (size_t)(n_threads * attention_grad_floats(Dh, n_tokens)) * sizeof(float);
    size_t rough =
        osh_pairs_used() ? osh_pairs_attention_grad_scratch(Dh, n_tokens, n_threads) : 0;
    return (wide > rough ? wide : rough) + (size_t)(n_tokens + 1) * sizeof(osh_tile);
}
