/* span512.c - see span512.h. Sums run over the same eight lanes as in span.c: of 16 values the first eight are added,
 * then the others. A last half vector is masked; whole ones are not, as what a masked store leaves is slow to load
 * again. No fused multiply-add, as there (vec.h). */
#include "ops/cpu/span512.h"
#include "base/isa.h"
#include "ops/cpu/vec.h"

#include <assert.h>
#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define WIDE_FN static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl")))

bool osh_span512_takes(osh_dtype dt) { return dt == OSH_BF16 && osh_isa_used() >= OSH_ISA_AVX512; }

enum { LANES = 16 };

/* 16 values, or 8 at the end of a row of an odd multiple of 8: half is a constant where this is inlined. */
WIDE_FN __m512 load(const float *p, bool half)
{
    return half ? _mm512_maskz_loadu_ps(0xff, p) : _mm512_loadu_ps(p);
}

WIDE_FN void store(float *p, __m512 x, bool half)
{
    if (half) _mm512_mask_storeu_ps(p, 0xff, x);
    else _mm512_storeu_ps(p, x);
}

/* step(args, i, half) for all of [0, n). */
#define EACH(n, step, ...)                                                                                             \
    do {                                                                                                               \
        int64_t at = 0;                                                                                                \
        for (; at + LANES <= (n); at += LANES) step(__VA_ARGS__, at, false);                                           \
        if (at < (n)) step(__VA_ARGS__, at, true);                                                                     \
    } while (0)

WIDE_FN __m512 constant(float f) { return _mm512_set1_ps(f); }

/* v8_exp_below, 16 lanes. */
WIDE_FN __m512 exp_below(__m512 x)
{
    __mmask16 below = _mm512_cmp_ps_mask(x, constant(-87.33f), _CMP_LT_OQ);
    __m512 magic = constant(12582912.0f);
    __m512 m = _mm512_add_ps(_mm512_mul_ps(x, constant(1.44269504088896341f)), magic), n = _mm512_sub_ps(m, magic);
    __m512 r = _mm512_sub_ps(x, _mm512_mul_ps(n, constant(0.693359375f)));
    r = _mm512_sub_ps(r, _mm512_mul_ps(n, constant(-2.12194440e-4f)));
    __m512 p = _mm512_add_ps(_mm512_mul_ps(r, constant(1.9875691500e-4f)), constant(1.3981999507e-3f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), constant(8.3334519073e-3f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), constant(4.1665795894e-2f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), constant(1.6666665459e-1f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), constant(5.0000001201e-1f));
    p = _mm512_add_ps(_mm512_add_ps(_mm512_mul_ps(_mm512_mul_ps(p, r), r), r), constant(1.0f));
    __m512i bias = _mm512_sub_epi32(_mm512_set1_epi32(127), _mm512_castps_si512(magic)); // m holds n in its low bits
    __m512i e = _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(m), bias), 23);
    return _mm512_maskz_mul_ps((__mmask16)~below, p, _mm512_castsi512_ps(e));
}

WIDE_FN __m512 nearest_bf16(__m512 x) // not of NaN
{
    __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32((int)0xffff0000u)));
}

WIDE_FN __m512 round_bf16(__m512 x)
{
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), nearest_bf16(x));
}

/* sum [8] + both halves of v, one after the other. */
WIDE_FN void add_halves(__m256 *sum, __m512 v, bool half)
{
    *sum = _mm256_add_ps(*sum, _mm512_castps512_ps256(v));
    if (!half) *sum = _mm256_add_ps(*sum, _mm512_extractf32x8_ps(v, 1));
}

WIDE_FN float total(__m256 sum)
{
    osh_v8f v;
    _mm256_storeu_ps((float *)&v, sum);
    return v8_sum(&v);
}

WIDE_FN __m512 glu_of(__m512 x, __m512 up, osh_act_kind act)
{
    __m512 e, limit = constant(88.37f);
    if (act == OSH_ACT_GELU_TANH) {
        e = _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(x, x), x), constant(0.044715f));
        e = _mm512_mul_ps(_mm512_add_ps(x, e), constant(-1.59576912160573071176f));
    } else {
        e = _mm512_xor_ps(x, constant(-0.0f));
    }
    e = exp_below(_mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(e, limit, _CMP_GT_OQ), limit));
    x = round_bf16(_mm512_div_ps(x, _mm512_add_ps(e, constant(1.0f))));
    return _mm512_mul_ps(x, up);
}

WIDE_FN void glu_step(float *gate, const float *up, osh_act_kind act, int64_t i, bool half)
{
    store(gate + i, glu_of(load(gate + i, half), load(up + i, half), act), half);
}

WIDE void osh_span512_glu(float *gate, const float *up, int64_t n, osh_act_kind act)
{
    EACH(n, glu_step, gate, up, act);
}

WIDE_FN __m512 widen(const uint16_t *p, __mmask16 in)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in, p)), 16));
}

WIDE_FN void narrow(uint16_t *p, __m512 x, __mmask16 in)
{
    __m512i u = _mm512_srli_epi32(_mm512_castps_si512(round_bf16(x)), 16);
    _mm256_mask_storeu_epi16(p, in, _mm512_cvtepi32_epi16(u));
}

WIDE_FN __mmask16 mask_of(int64_t left) { return left < LANES ? (__mmask16)((1u << left) - 1) : 0xffff; }

WIDE void osh_span512_glu_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n, osh_act_kind act)
{
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 in = mask_of(n - i);
        narrow(to + i, glu_of(widen(x + i, in), widen(y + i, in), act), in);
    }
}

WIDE void osh_span512_add_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 in = mask_of(n - i);
        narrow(to + i, _mm512_add_ps(widen(x + i, in), widen(y + i, in)), in);
    }
}

WIDE_FN void square_step(__m256 *sum, const float *x, int64_t i, bool half)
{
    __m512 v = load(x + i, half);
    add_halves(sum, _mm512_mul_ps(v, v), half);
}

WIDE_FN void norm_step(float *x, const float *w, __m512 r, int64_t i, bool half)
{
    __m512 v = round_bf16(_mm512_mul_ps(load(x + i, half), r));
    store(x + i, _mm512_mul_ps(v, load(w + i, half)), half);
}

WIDE void osh_span512_rms_norm(float *x, const float *w, int64_t n, int64_t n_real, float eps)
{
    __m256 sum = _mm256_setzero_ps();
    EACH(n, square_step, &sum, x);
    __m512 r = constant(1.0f / sqrtf(total(sum) / (float)n_real + eps));
    EACH(n, norm_step, x, w, r);
}

WIDE_FN void max_step(__m512 *m, const float *s, __m512 by, int64_t i, bool half)
{
    __m512 v = _mm512_mul_ps(load(s + i, half), by);
    *m = _mm512_mask_mov_ps(*m, _mm512_mask_cmp_ps_mask(half ? 0xff : 0xffff, v, *m, _CMP_GT_OQ), v);
}

WIDE_FN void exp_step(__m256 *sum, float *s, __m512 by, __m512 max, int64_t i, bool half)
{
    __m512 v = exp_below(_mm512_sub_ps(_mm512_mul_ps(load(s + i, half), by), max));
    add_halves(sum, v, half);
    store(s + i, v, half);
}

WIDE_FN void share_step(float *s, __m512 all, int64_t i, bool half)
{
    store(s + i, nearest_bf16(_mm512_div_ps(load(s + i, half), all)), half);
}

/* s = e^(s * scale - max), and returns their sum in each lane. */
WIDE_FN __m512 exps(float *s, int64_t n, float scale)
{
    __m512 m = constant(-INFINITY), by = constant(scale);
    EACH(n, max_step, &m, s, by);
    __m512 max = constant(_mm512_reduce_max_ps(m));
    __m256 sum = _mm256_setzero_ps();
    EACH(n, exp_step, &sum, s, by, max);
    return constant(total(sum));
}

WIDE void osh_span512_softmax(float *s, int64_t n, float scale)
{
    __m512 all = exps(s, n, scale);
    EACH(n, share_step, s, all);
}

WIDE_FN void narrow_step(uint16_t *to, const float *s, __m512 all, int64_t i, bool half)
{
    __m512i p = _mm512_castps_si512(nearest_bf16(_mm512_div_ps(load(s + i, half), all)));
    __m256i low = _mm512_cvtepi32_epi16(_mm512_srli_epi32(p, 16));
    if (half) _mm_storeu_si128((__m128i *)(void *)(to + i), _mm256_castsi256_si128(low));
    else _mm256_storeu_si256((__m256i *)(void *)(to + i), low);
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
    assert(false); // never where osh_span512_takes is false
}

void osh_span512_glu_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n, osh_act_kind act)
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

void osh_span512_softmax(float *s, int64_t n, float scale)
{
    (void)s, (void)n, (void)scale;
    assert(false);
}

void osh_span512_probabilities(uint16_t *to, float *s, int64_t n, float scale)
{
    (void)to, (void)s, (void)n, (void)scale;
    assert(false);
}
#endif
