/* softmax512.c - computes the probabilities of one row of attention scores with AVX-512 BF16. The
 * results have the same bytes as those of osh_span_softmax.
 *
 * Division by the sum d of a row takes most of the time, so an exponential a is multiplied by y, the
 * nearest float to 1 / d, and the product q is corrected twice:
 *
 *   r = a - q d     q = q + r y
 *
 * Both are fused multiply-adds. After the first correction q is one of the two floats next to a /
 * d. Then r is exact, and the second correction gives the nearest float to a / d (a theorem of
 * Markstein). This is true if r does not underflow. So rows that have an exponential below TINY use
 * divisions. */
#include "math/softmax512.h"
#include "base/num.h"
#include "math/span512_steps.h"
#include "math/vec.h"

#include <assert.h>
#include <math.h>

#if defined(__x86_64__)
#define NARROWS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define NARROWS_FN                                                                                 \
    static inline                                                                                  \
        __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

enum { MOST = 4 }; // independent maxima, so that no comparison waits for the one before it
/* With these limits r is at least 2^-149: it is a multiple of 2^-46 d q, and q >= 2^-99. */
#define TINY 0x1p-75f
#define LARGEST_SUM 0x1p24f

/* Returns the largest value of s * scale, without NaN. scale > 0. */
WIDE_FN float largest_score(const float *s, int64_t n, float scale)
{
    __m512 m[MOST];
    int64_t i = 0;
    for (int k = 0; k < MOST; k++) m[k] = constant(-INFINITY);
    for (; i + MOST * LANES <= n; i += MOST * LANES)
        for (int k = 0; k < MOST; k++)
            m[k] = _mm512_max_ps(_mm512_loadu_ps(s + i + k * LANES), m[k]); // ignores NaN
    for (; i < n; i += LANES) {
        __mmask16 in = n - i < LANES ? 0xff : 0xffff;
        m[0] = _mm512_mask_max_ps(m[0], in, _mm512_maskz_loadu_ps(in, s + i), m[0]);
    }
    m[0] = _mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3]));
    return _mm512_reduce_max_ps(m[0]) * scale;
}

typedef struct row_sums {
    __m256 sum;    // eight partial sums, as in span.c
    __m512i least; // bits of the smallest exponential that is not 0, minus 1
} row_sums;

/* Replaces n vectors of s by e^(s * by - max) and adds them to the sums. `half`: the last vector of
 * a row has only eight values. */
WIDE_FN void exps_of(row_sums *t, float *s, __m512 by, __m512 max, int n, bool half)
{
    __m512 x[SIDE];
    __mmask16 in = half ? 0xff : 0xffff;
    EVERY(n) x[k] = half ? _mm512_maskz_loadu_ps(in, s) : _mm512_loadu_ps(s + k * LANES);
    EVERY(n) x[k] = _mm512_sub_ps(_mm512_mul_ps(x[k], by), max);
    exp_below(x, n);
    if (half) _mm512_mask_storeu_ps(s, in, x[0]);
    else EVERY(n) _mm512_storeu_ps(s + k * LANES, x[k]);
    EVERY(n) {
        __m512i less = _mm512_sub_epi32(_mm512_castps_si512(x[k]), _mm512_set1_epi32(1));
        t->least = _mm512_mask_min_epu32(t->least, in, t->least, less);
    }
    EVERY(n) {
        t->sum = _mm256_add_ps(t->sum, _mm512_castps512_ps256(x[k]));
        if (!half) t->sum = _mm256_add_ps(t->sum, _mm512_extractf32x8_ps(x[k], 1));
    }
}

typedef struct divisor { __m512 d, inverse; } divisor;

WIDE_FN __m512 divided(const float *s, __mmask16 in, const divisor *by)
{
    __m512 a = _mm512_maskz_loadu_ps(in, s), q = _mm512_mul_ps(a, by->inverse);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, by->d, a), by->inverse, q);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, by->d, a), by->inverse, q);
}

/* Writes s / d, rounded to BF16. No quotient is subnormal: the instruction would flush it. */
NARROWS_FN void divide_row(uint16_t *to, const float *s, int64_t n, const divisor *by)
{
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        __m512 q[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) q[k] = divided(s + i + k * LANES, 0xffff, by);
        _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(q[1], q[0]));
        _mm512_storeu_si512(to + i + 2 * LANES, (__m512i)_mm512_cvtne2ps_pbh(q[3], q[2]));
    }
    for (; i < n; i += LANES) {
        __mmask16 in = n - i < LANES ? 0xff : 0xffff;
        _mm256_mask_storeu_epi16(to + i, in, (__m256i)_mm512_cvtneps_pbh(divided(s + i, in, by)));
    }
}

NARROWS bool osh_softmax512(uint16_t *to, float *s, int64_t n, float scale, float *sum)
{
    __m512 by = constant(scale), max = constant(largest_score(s, n, scale));
    row_sums t = {_mm256_setzero_ps(), _mm512_set1_epi32(-1)};
    int64_t i = 0;
    for (; i + SIDE * LANES <= n; i += SIDE * LANES) exps_of(&t, s + i, by, max, SIDE, false);
    for (; i + LANES <= n; i += LANES) exps_of(&t, s + i, by, max, 1, false);
    if (i < n) exps_of(&t, s + i, by, max, 1, true);
    osh_v8f v;
    _mm256_storeu_ps((float *)&v, t.sum);
    *sum = v8_sum(&v);
    uint32_t least = _mm512_reduce_min_epu32(t.least);
    if (least < osh_bits_of_f32(TINY) - 1 || !(*sum <= LARGEST_SUM)) return false;
    divisor d = {constant(*sum), constant(1.0f / *sum)};
    divide_row(to, s, n, &d);
    return true;
}
#else
bool osh_softmax512(uint16_t *to, float *s, int64_t n, float scale, float *sum)
{
    (void)to, (void)s, (void)n, (void)scale, (void)sum;
    assert(false); // not reached: callers check the instruction set first
    return false;
}
#endif
