/* softmax512.c - computes the softmax of rows of attention scores with AVX-512 BF16. The results
 * have the same bytes as those of osh_span_softmax.
 *
 * A division takes longer than several multiplications. So an exponential `a` is not divided by
 * `d`, the sum of its row. Instead, `a` is multiplied by `y`, the nearest float to 1 / d, and the
 * product `q` is corrected twice:
 *
 *   r = a - q d
 *   q = q + r y
 *
 * Both steps are fused multiply-adds. After the first correction, q is one of the two floats next
 * to a / d. Then r is exact, and the second correction gives the nearest float to a / d (a theorem
 * of Markstein). This is true if r does not underflow. So rows with an exponential below TINY use
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

enum { TOGETHER = OSH_SOFTMAX_ROWS };
/* Limits of the rows that need no division.
 * TINY: smallest exponential `a` that is not 0.
 * LARGEST_SUM: largest sum d.
 * With these limits, q is at least 2^-99. r is a multiple of 2^-46 d q, so |r| is 0 or at least
 * 2^-149. So r does not underflow. */
#define TINY 0x1p-75f
#define LARGEST_SUM 0x1p24f

/* A loop over r from 0 to rows - 1, which the compiler unrolls. Vectors of different rows are then
 * computed at the same time, so few instructions wait for the result of an earlier instruction. */
#ifdef __clang__
#define EACH_ROW(rows) _Pragma("clang loop unroll(full)") for (int r = 0; r < (rows); r++)
#else
#define EACH_ROW(rows) _Pragma("GCC unroll 4") for (int r = 0; r < (rows); r++)
#endif

typedef struct sums { // for each of TOGETHER rows, its maximum and its sums
    __m512 max[TOGETHER];
    __m256 sum[TOGETHER];    // eight partial sums for each row, as in span.c
    /* For each row: the smallest value of b - 1, where b is an unsigned integer with the bits of an
     * exponential. (An exponential of 0 has no effect, because 0 - 1 is the largest
     * integer.) */
    __m512i least[TOGETHER];
} sums;

WIDE_FN __mmask16 lanes_of(int64_t left) { return left < LANES ? 0xff : 0xffff; }

/* Sets t->max to the largest s * scale of each row, without regard to NaN. The scale is greater
 * than 0. */
WIDE_FN void largest_scores(sums *t, const osh_scores *q, int rows)
{
    EACH_ROW(rows) t->max[r] = constant(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= q->n; i += LANES)
        EACH_ROW(rows)
            t->max[r] = _mm512_max_ps(_mm512_loadu_ps(q->s + r * q->ld + i), t->max[r]);
    EACH_ROW(rows)
        if (i < q->n)
            t->max[r] = _mm512_mask_max_ps(
                t->max[r], 0xff, _mm512_maskz_loadu_ps(0xff, q->s + r * q->ld + i), t->max[r]);
    EACH_ROW(rows) t->max[r] = constant(_mm512_reduce_max_ps(t->max[r]) * q->scale);
}

/* In each row, replaces n vectors of s by e^(s * scale - max), and adds the new values to the sums.
 * The first vector begins with element `i` of the row.
 * in: mask of the used lanes of each vector. If it is 0xff, only eight lanes are used, and n is
 * 1. */
WIDE_FN void exps_of(sums *t, const osh_scores *q, int64_t i, __mmask16 in, int rows, int n)
{
    __m512 x[SIDE], by = constant(q->scale);
    float *at[SIDE];
    EVERY(rows * n) at[k] = q->s + k / n * q->ld + i + k % n * LANES;
    EVERY(rows * n) x[k] = in == 0xff ? _mm512_maskz_loadu_ps(in, at[k]) : _mm512_loadu_ps(at[k]);
    EVERY(rows * n) x[k] = _mm512_sub_ps(_mm512_mul_ps(x[k], by), t->max[k / n]);
    exp_below(x, rows * n);
    EVERY(rows * n) {
        int r = k / n;
        __m512i less = _mm512_sub_epi32(_mm512_castps_si512(x[k]), _mm512_set1_epi32(1));
        t->sum[r] = _mm256_add_ps(t->sum[r], _mm512_castps512_ps256(x[k]));
        if (in == 0xff) {
            _mm512_mask_storeu_ps(at[k], in, x[k]);
            t->least[r] = _mm512_mask_min_epu32(t->least[r], in, t->least[r], less);
        } else {
            _mm512_storeu_ps(at[k], x[k]);
            t->least[r] = _mm512_min_epu32(t->least[r], less);
            t->sum[r] = _mm256_add_ps(t->sum[r], _mm512_extractf32x8_ps(x[k], 1));
        }
    }
}

typedef struct divisor { __m512 d, inverse; } divisor;

WIDE_FN __m512 divided(const float *s, __mmask16 in, const divisor *by)
{
    __m512 a = in == 0xffff ? _mm512_loadu_ps(s) : _mm512_maskz_loadu_ps(in, s);
    __m512 q = _mm512_mul_ps(a, by->inverse);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, by->d, a), by->inverse, q);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, by->d, a), by->inverse, q);
}

/* Writes s / d, rounded to BF16. No quotient may be subnormal, because the instruction that rounds
 * replaces subnormal numbers by 0. */
NARROWS_FN void divide_rows(const osh_scores *q, const divisor *by, int rows)
{
    int64_t i = 0;
    for (; i + 2 * LANES <= q->n; i += 2 * LANES) {
        __m512 low[TOGETHER], high[TOGETHER];
        EACH_ROW(rows) {
            low[r] = divided(q->s + r * q->ld + i, 0xffff, &by[r]);
            high[r] = divided(q->s + r * q->ld + i + LANES, 0xffff, &by[r]);
        }
        EACH_ROW(rows)
            _mm512_storeu_si512(q->to + 2 * r * q->ld + i,
                                (__m512i)_mm512_cvtne2ps_pbh(high[r], low[r]));
    }
    for (; i < q->n; i += LANES) {
        __mmask16 in = lanes_of(q->n - i);
        EACH_ROW(rows) {
            __m512 x = divided(q->s + r * q->ld + i, in, &by[r]);
            _mm256_mask_storeu_epi16(q->to + 2 * r * q->ld + i, in,
                                     (__m256i)_mm512_cvtneps_pbh(x));
        }
    }
}

NARROWS_FN bool softmax_rows(const osh_scores *q, float *sum, int rows)
{
    sums t;
    divisor by[TOGETHER];
    int64_t i = 0;
    bool ok = true;
    largest_scores(&t, q, rows);
    EACH_ROW(rows) t.sum[r] = _mm256_setzero_ps(), t.least[r] = _mm512_set1_epi32(-1);
    for (; i + 2 * LANES <= q->n; i += 2 * LANES) exps_of(&t, q, i, 0xffff, rows, 2);
    if (i + LANES <= q->n) exps_of(&t, q, i, 0xffff, rows, 1), i += LANES;
    if (i < q->n) exps_of(&t, q, i, 0xff, rows, 1);
    EACH_ROW(rows) {
        osh_v8f v;
        _mm256_storeu_ps((float *)&v, t.sum[r]);
        sum[r] = v8_sum(&v);
        ok &= _mm512_reduce_min_epu32(t.least[r]) >= osh_bits_of_f32(TINY) - 1 &&
              sum[r] <= LARGEST_SUM;
        by[r] = (divisor){constant(sum[r]), constant(1.0f / sum[r])};
    }
    if (ok) divide_rows(q, by, rows);
    return ok;
}

NARROWS bool osh_softmax512(const osh_scores *q, float *sum)
{
    if (q->rows == TOGETHER) return softmax_rows(q, sum, TOGETHER);
    return softmax_rows(q, sum, 1);
}
#else
bool osh_softmax512(const osh_scores *q, float *sum)
{
    (void)q, (void)sum;
    assert(false); // not reached: callers check the instruction set first
    return false;
}
#endif
