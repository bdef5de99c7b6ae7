/* span512.c - vector loops over one row in BF16 precision with AVX-512. The results have the same
 * bytes as those of span.c.
 *
 * A sum of a row is eight partial sums, as in span.c: the first eight values of a vector of 16 are
 * added to them, then the last eight. If the last vector of a row has only eight values, it is
 * loaded and stored with a mask. Other vectors have no mask, because a load after a masked store to
 * the same address is slow. Like span.c, no function uses a fused multiply-add (see vec.h). */
#include "math/span512.h"
#include "base/isa.h"
#include "math/span512_steps.h"
#include "math/vec.h"

#include <assert.h>
#include <math.h>

#if defined(__x86_64__)
bool osh_span512_takes(osh_dtype dt) { return dt == OSH_BF16 && osh_isa_used() >= OSH_ISA_AVX512; }

typedef struct part {
    int64_t i; // index of the first value of the part in the row
    int n;     // number of vectors
    /* True: the part is the last 8 values of a row whose length is an odd multiple of 8. False: the
     * part consists of 16-value vectors. */
    bool half;
} part;

/* Cuts elements [0, end) of a row into parts (groups of vectors) and calls step(..., part) for
 * each. */
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

/* sum[i] += v[i] for i < 8; then sum[i] += v[8 + i], if `half` is false. */
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

WIDE_FN void bf16_narrow(uint16_t *p, __m512 x, __mmask16 in)
{
    __m512i u = _mm512_srli_epi32(_mm512_castps_si512(round_bf16(x)), 16);
    _mm256_mask_storeu_epi16(p, in, _mm512_cvtepi32_epi16(u));
}

WIDE_FN __mmask16 span_mask(int64_t left)
{
    return left < LANES ? (__mmask16)((1u << left) - 1) : 0xffff;
}

WIDE_FN void glu_bf16(uint16_t *to, const uint16_t *g, const uint16_t *up, osh_act_kind act,
                      __mmask16 in, int n)
{
    __m512 x[SIDE];
    EVERY(n) x[k] = bf16_widen(g + k * LANES, in);
    act_of(x, act, n);
    EVERY(n) x[k] = _mm512_mul_ps(x[k], bf16_widen(up + k * LANES, in));
    EVERY(n) bf16_narrow(to + k * LANES, x[k], in);
}

WIDE void osh_span512_glu_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                               osh_act_kind act)
{
    int64_t i = 0;
    for (; i + SIDE * LANES <= n; i += SIDE * LANES)
        glu_bf16(to + i, x + i, y + i, act, 0xffff, SIDE);
    for (; i < n; i += LANES) glu_bf16(to + i, x + i, y + i, act, span_mask(n - i), 1);
}

WIDE void osh_span512_add_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 in = span_mask(n - i);
        bf16_narrow(to + i, _mm512_add_ps(bf16_widen(x + i, in), bf16_widen(y + i, in)), in);
    }
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

WIDE_FN void max_step(__m512 *m, const float *s, __m512 by, part t)
{
    __m512 v[SIDE];
    EVERY(t.n) v[k] = _mm512_mul_ps(span_load(s + t.i + k * LANES, t.half), by);
    EVERY(t.n) *m = _mm512_mask_max_ps(*m, t.half ? 0xff : 0xffff, v[k], *m); // ignores NaN
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

/* Replaces s by e^(s * scale - max), where max is the maximum of s * scale. Returns a vector of 16
 * copies of the sum of the results. */
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

WIDE void osh_span512_probabilities(uint16_t *to, float *s, int64_t n, float scale)
{
    __m512 all = exps(s, n, scale);
    EACH(n, narrow_step, to, s, all);
}
#else
bool osh_span512_takes(osh_dtype dt) { return (void)dt, false; }

void osh_span512_glu(float *gate, const float *up, int64_t n, osh_act_kind act)
{
    (void)gate, (void)up, (void)n, (void)act;
    assert(false); // not reached: callers check osh_span512_takes first
}

void osh_span512_glu_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                          osh_act_kind act)
{
    (void)to, (void)x, (void)y, (void)n, (void)act;
    assert(false);
}

void osh_span512_add_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n)
{
    (void)to, (void)x, (void)y, (void)n;
    assert(false);
}

void osh_span512_rms_norm(float *x, const float *w, int64_t n, int64_t n_real, float eps)
{
    (void)x, (void)w, (void)n, (void)n_real, (void)eps;
    assert(false);
}

void osh_span512_softmax(float *s, int64_t n, float scale, osh_dtype dt)
{
    (void)s, (void)n, (void)scale, (void)dt;
    assert(false);
}

void osh_span512_probabilities(uint16_t *to, float *s, int64_t n, float scale)
{
    (void)to, (void)s, (void)n, (void)scale;
    assert(false);
}
#endif
