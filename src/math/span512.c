/* span512.c - implements vector loops over one row in BF16 precision with AVX-512. The results have
 * the same bytes as those of span.c.
 *
 * A row has eight partial sums, as in span.c. The first eight values of each vector of 16 are added
 * to the partial sums, then the last eight. If the last vector of a row has only eight values, it
 * is loaded and stored with a mask. Other vectors have no mask, because a load after a masked store
 * to the same address is slow. No function uses a fused multiply-add, as in span.c (vec.h says
 * why). */
#include "math/span512.h"
#include "base/isa.h"
#include "math/softmax512.h"
#include "math/span512_steps.h"
#include "math/vec.h"

#include <assert.h>
#include <math.h>

#if defined(__x86_64__)
bool osh_span512_takes(osh_dtype dt) { return dt == OSH_BF16 && osh_isa_used() >= OSH_ISA_AVX512; }

typedef struct part {
    int64_t i; // index of the first value of the part in the row
    int n;     // number of vectors
    /* True if the part is the last 8 values of a row whose length is an odd multiple of 8. False if
     * the part consists of vectors of 16 values. */
    bool half;
} part;

/* Cuts elements [0, end) of a row into parts (groups of vectors), and calls step(..., part) for
 * each part. */
#define EACH(end, step, ...)                                                                       \
    do {                                                                                           \
        int64_t at = 0;                                                                            \
        for (; at + SIDE * LANES <= (end); at += SIDE * LANES)                                     \
            step(__VA_ARGS__, (part){at, SIDE, false});                                            \
        for (; at + LANES <= (end); at += LANES) step(__VA_ARGS__, (part){at, 1, false});          \
        if (at < (end)) step(__VA_ARGS__, (part){at, 1, true});                                    \
    } while (0)

WIDE_FN __m512 span_load(const float *p, bool half)
{
    return half ? _mm512_maskz_loadu_ps(0xff, p) : _mm512_loadu_ps(p);
}

WIDE_FN void span_store(float *p, __m512 x, bool half)
{
    if (half) _mm512_mask_storeu_ps(p, 0xff, x);
    else _mm512_storeu_ps(p, x);
}

/* Adds v[i] to sum[i] for i < 8. If `half` is false, then also adds v[8 + i]. */
WIDE_FN void add_halves(__m256 *sum, __m512 v, bool half)
{
    *sum = _mm256_add_ps(*sum, _mm512_castps512_ps256(v));
    if (!half) *sum = _mm256_add_ps(*sum, _mm512_extractf32x8_ps(v, 1));
}

WIDE_FN float sum_total(__m256 sum)
{
    osh_v8f v;
    _mm256_storeu_ps((float *)&v, sum);
    return v8_sum(&v);
}

WIDE_FN void glu_step(float *gate, const float *up, osh_act_kind act, part t)
{
    __m512 x[SIDE];
    EVERY(t.n) x[k] = span_load(gate + t.i + k * LANES, t.half);
    act_of(x, act, t.n);
    EVERY(t.n)
        span_store(gate + t.i + k * LANES,
                   _mm512_mul_ps(x[k], span_load(up + t.i + k * LANES, t.half)), t.half);
}

WIDE void osh_span512_glu(float *gate, const float *up, int64_t n, osh_act_kind act)
{
    EACH(n, glu_step, gate, up, act);
}

WIDE_FN __m512 bf16_widen(const uint16_t *p, __mmask16 in)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in, p)), 16));
}

/* Returns the lanes of `in` that are NaN or infinite. The BF16 value of a lane is in its high
 * half. */
WIDE_FN __mmask16 nonfinite_lanes(__m512 x, __mmask16 in)
{
    __m512i exponent = _mm512_set1_epi32(0x7f800000);
    return _mm512_mask_cmpeq_epi32_mask(in, _mm512_and_si512(_mm512_castps_si512(x), exponent),
                                        exponent);
}

/* Stores values that are already rounded to BF16. */
WIDE_FN void rounded_store(uint16_t *p, __m512 x, __mmask16 in)
{
    __m512i u = _mm512_srli_epi32(_mm512_castps_si512(x), 16);
    _mm256_mask_storeu_epi16(p, in, _mm512_cvtepi32_epi16(u));
}

/* Rounds x to BF16 and stores it. Returns the lanes that are NaN or infinite. */
WIDE_FN __mmask16 bf16_narrow(uint16_t *p, __m512 x, __mmask16 in)
{
    x = nearest_bf16(x);
    rounded_store(p, x, in);
    return nonfinite_lanes(x, in);
}

WIDE_FN __mmask16 span_mask(int64_t left)
{
    return left < LANES ? (__mmask16)((1u << left) - 1) : 0xffff;
}

WIDE_FN __mmask16 glu_bf16(uint16_t *to, const uint16_t *g, const uint16_t *up, osh_act_kind act,
                           __mmask16 in, int n)
{
    __m512 x[SIDE];
    __mmask16 bad = 0;
    EVERY(n) x[k] = bf16_widen(g + k * LANES, in);
    act_of(x, act, n);
    EVERY(n) x[k] = _mm512_mul_ps(x[k], bf16_widen(up + k * LANES, in));
    EVERY(n) bad |= bf16_narrow(to + k * LANES, x[k], in);
    return bad;
}

WIDE bool osh_span512_glu_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                               osh_act_kind act)
{
    __mmask16 bad = 0;
    int64_t i = 0;
    for (; i + SIDE * LANES <= n; i += SIDE * LANES)
        bad |= glu_bf16(to + i, x + i, y + i, act, 0xffff, SIDE);
    for (; i < n; i += LANES) bad |= glu_bf16(to + i, x + i, y + i, act, span_mask(n - i), 1);
    return !bad;
}

WIDE bool osh_span512_add_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n)
{
    __mmask16 bad = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 in = span_mask(n - i);
        bad |= bf16_narrow(to + i, _mm512_add_ps(bf16_widen(x + i, in), bf16_widen(y + i, in)), in);
    }
    return !bad;
}

WIDE_FN void square_step(__m256 *sum, const float *x, part t)
{
    __m512 v[SIDE];
    EVERY(t.n) v[k] = span_load(x + t.i + k * LANES, t.half);
    EVERY(t.n) add_halves(sum, _mm512_mul_ps(v[k], v[k]), t.half);
}

WIDE_FN void norm_step(float *x, const float *w, __m512 r, part t)
{
    __m512 v[SIDE];
    EVERY(t.n) v[k] = round_bf16(_mm512_mul_ps(span_load(x + t.i + k * LANES, t.half), r));
    EVERY(t.n)
        span_store(x + t.i + k * LANES, _mm512_mul_ps(v[k], span_load(w + t.i + k * LANES, t.half)),
                   t.half);
}

WIDE void osh_span512_rms_norm(float *x, const float *w, int64_t n, int64_t n_real, float eps)
{
    __m256 sum = _mm256_setzero_ps();
    EACH(n, square_step, &sum, x);
    __m512 r = constant(1.0f / sqrtf(sum_total(sum) / (float)n_real + eps));
    EACH(n, norm_step, x, w, r);
}

enum { NORM_ROWS = 4 };

/* Computes the norms of `rows` rows. The eight partial sums of a row are a chain of additions, so
 * the chains of several rows run at the same time. nearest_bf16 keeps a NaN, because a NaN that
 * comes from a BF16 value has zeros in its low 16 bits. */
WIDE_FN __mmask16 norm_rows(uint16_t *y, const uint16_t *x, const osh_norm512 *t, int rows)
{
    __m256 sum[NORM_ROWS];
    __m512 r[NORM_ROWS];
    __mmask16 bad = 0;
    EVERY(rows) sum[k] = _mm256_setzero_ps();
    for (int64_t i = 0; i < t->n; i += LANES) {
        __mmask16 in = span_mask(t->n - i);
        EVERY(rows) {
            __m512 v = bf16_widen(x + k * t->n + i, in);
            add_halves(&sum[k], _mm512_mul_ps(v, v), false);
        }
    }
    EVERY(rows) r[k] = constant(1.0f / sqrtf(sum_total(sum[k]) / (float)t->n + t->eps));
    for (int64_t i = 0; i < t->n; i += LANES) {
        __mmask16 in = span_mask(t->n - i);
        __m512 w = _mm512_maskz_loadu_ps(in, t->w + i);
        EVERY(rows) {
            __m512 v = nearest_bf16(_mm512_mul_ps(bf16_widen(x + k * t->n + i, in), r[k]));
            v = nearest_bf16(_mm512_mul_ps(v, w));
            bad |= nonfinite_lanes(v, in);
            rounded_store(y + k * t->n + i, v, in);
        }
    }
    return bad;
}

WIDE bool osh_span512_rms_norm_bf16(uint16_t *y, const uint16_t *x, int64_t n_rows,
                                    const osh_norm512 *t)
{
    __mmask16 bad = 0;
    int64_t r = 0;
    for (; r + NORM_ROWS <= n_rows; r += NORM_ROWS)
        bad |= norm_rows(y + r * t->n, x + r * t->n, t, NORM_ROWS);
    for (; r < n_rows; r++) bad |= norm_rows(y + r * t->n, x + r * t->n, t, 1);
    return !bad;
}

/* Rotates values i to i + 15 of each half of a head x. Rounds each product, like rotate_8 of
 * span.c. */
WIDE_FN __mmask16 rotate_16(uint16_t *y, const uint16_t *x, const osh_turn512 *t, int64_t i)
{
    __mmask16 in = span_mask(t->half - i);
    __m512 a = bf16_widen(x + i, in), b = bf16_widen(x + t->half + i, in);
    __m512 c = _mm512_maskz_loadu_ps(in, t->c + i), s = _mm512_maskz_loadu_ps(in, t->s + i);
    __m512 ac = nearest_bf16(_mm512_mul_ps(a, c)), bc = nearest_bf16(_mm512_mul_ps(b, c));
    __m512 as = nearest_bf16(_mm512_mul_ps(a, s)),
           bs = nearest_bf16(_mm512_mul_ps(_mm512_xor_ps(b, constant(-0.0f)), s));
    a = nearest_bf16(_mm512_add_ps(ac, bs)), b = nearest_bf16(_mm512_add_ps(bc, as));
    rounded_store(y + i, a, in), rounded_store(y + t->half + i, b, in);
    return nonfinite_lanes(a, in) | nonfinite_lanes(b, in);
}

WIDE bool osh_span512_rotate_bf16(uint16_t *y, const uint16_t *x, int64_t n, const osh_turn512 *t)
{
    __mmask16 bad = 0;
    int64_t half = t->half;
    for (int64_t h = 0; h < n; h += t->head_dim) {
        for (int64_t i = 0; i < half; i += LANES)
            bad |= rotate_16(y + h, x + h, t, i);
        for (int64_t i = 2 * half; i < t->head_dim; i += LANES) {
            __mmask16 in = span_mask(t->head_dim - i);
            __m512 v = bf16_widen(x + h + i, in);
            bad |= nonfinite_lanes(v, in);
            rounded_store(y + h + i, v, in);
        }
    }
    return !bad;
}

WIDE_FN void max_step(__m512 *m, const float *s, __m512 by, part t)
{
    __m512 v[SIDE];
    EVERY(t.n) v[k] = _mm512_mul_ps(span_load(s + t.i + k * LANES, t.half), by);
    // if v[k] is NaN, the instruction keeps *m
    EVERY(t.n) *m = _mm512_mask_max_ps(*m, t.half ? 0xff : 0xffff, v[k], *m);
}

WIDE_FN void exp_step(__m256 *sum, float *s, __m512 by, __m512 max, part t)
{
    __m512 v[SIDE];
    EVERY(t.n) v[k] = _mm512_sub_ps(_mm512_mul_ps(span_load(s + t.i + k * LANES, t.half), by), max);
    exp_below(v, t.n);
    EVERY(t.n) span_store(s + t.i + k * LANES, v[k], t.half);
    EVERY(t.n) add_halves(sum, v[k], t.half);
}

WIDE_FN void share_step(float *s, __m512 all, part t)
{
    EVERY(t.n)
        span_store(s + t.i + k * LANES,
                   nearest_bf16(_mm512_div_ps(span_load(s + t.i + k * LANES, t.half), all)),
                   t.half);
}

/* Replaces s by e^(s * scale - max), where max is the largest s * scale. Returns the sum of the new
 * values, in all 16 elements of a vector. */
WIDE_FN __m512 exps(float *s, int64_t n, float scale)
{
    __m512 m = constant(-INFINITY), by = constant(scale);
    EACH(n, max_step, &m, s, by);
    __m512 max = constant(_mm512_reduce_max_ps(m));
    __m256 sum = _mm256_setzero_ps();
    EACH(n, exp_step, &sum, s, by, max);
    return constant(sum_total(sum));
}

WIDE_FN void exact_share_step(float *s, __m512 all, part t)
{
    EVERY(t.n)
        span_store(s + t.i + k * LANES, _mm512_div_ps(span_load(s + t.i + k * LANES, t.half), all),
                   t.half);
}

WIDE void osh_span512_softmax(float *s, int64_t n, float scale, osh_dtype dt)
{
    __m512 all = exps(s, n, scale);
    if (dt == OSH_F32) EACH(n, exact_share_step, s, all);
    else EACH(n, share_step, s, all);
}

WIDE_FN void narrow_step(uint16_t *to, const float *s, __m512 all, part t)
{
    __m256i low[SIDE];
    EVERY(t.n) {
        __m512i p = _mm512_castps_si512(
            nearest_bf16(_mm512_div_ps(span_load(s + t.i + k * LANES, t.half), all)));
        low[k] = _mm512_cvtepi32_epi16(_mm512_srli_epi32(p, 16));
    }
    if (t.half) _mm_storeu_si128((__m128i *)(void *)(to + t.i), _mm256_castsi256_si128(low[0]));
    else EVERY(t.n) _mm256_storeu_si256((__m256i *)(void *)(to + t.i + k * LANES), low[k]);
}

WIDE void osh_span512_probabilities(const osh_scores *q)
{
    float sum[OSH_SOFTMAX_ROWS];
    bool has_exps = osh_isa_used() >= OSH_ISA_AVX512_BF16;
    if (has_exps && osh_softmax512(q, sum)) return;
    for (int r = 0; r < q->rows; r++) {
        float *s = q->s + r * q->ld;
        uint16_t *to = q->to + 2 * r * q->ld;
        __m512 all = has_exps ? constant(sum[r]) : exps(s, q->n, q->scale);
        EACH(q->n, narrow_step, to, s, all);
    }
}
#else
bool osh_span512_takes(osh_dtype dt) { return (void)dt, false; }

void osh_span512_glu(float *gate, const float *up, int64_t n, osh_act_kind act)
{
    (void)gate, (void)up, (void)n, (void)act;
    assert(false); // not reached: callers check osh_span512_takes first
}

bool osh_span512_glu_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                          osh_act_kind act)
{
    (void)to, (void)x, (void)y, (void)n, (void)act;
    assert(false);
    return false;
}

bool osh_span512_add_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n)
{
    (void)to, (void)x, (void)y, (void)n;
    assert(false);
    return false;
}

void osh_span512_rms_norm(float *x, const float *w, int64_t n, int64_t n_real, float eps)
{
    (void)x, (void)w, (void)n, (void)n_real, (void)eps;
    assert(false);
}

bool osh_span512_rms_norm_bf16(uint16_t *y, const uint16_t *x, int64_t n_rows, const osh_norm512 *t)
{
    (void)y, (void)x, (void)n_rows, (void)t;
    assert(false);
    return false;
}

bool osh_span512_rotate_bf16(uint16_t *y, const uint16_t *x, int64_t n, const osh_turn512 *t)
{
    (void)y, (void)x, (void)n, (void)t;
    assert(false);
    return false;
}

void osh_span512_softmax(float *s, int64_t n, float scale, osh_dtype dt)
{
    (void)s, (void)n, (void)scale, (void)dt;
    assert(false);
}

void osh_span512_probabilities(const osh_scores *q)
{
    (void)q;
    assert(false);
}
#endif
