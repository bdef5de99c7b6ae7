/* kernels_avx2.c - implements the loops of kernels.c with AVX2 and F16C. The results have the same
 * bytes. The program chooses these loops at run time; all its other code is plain x86-64. A
 * function with a dtype argument is inlined for each dtype, so that the dtype is a constant in the
 * loop. */
#include "quant/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "base/num.h"

#define AVX2 __attribute__((target("avx2,f16c")))
#define INLINE AVX2 __attribute__((always_inline)) static inline

/* ---- 8 values of dtype dt <-> f32 ---- */
INLINE __m256 load8(const void *x, osh_dtype dt)
{
    if (dt == OSH_BF16)
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(x)), 16));
    if (dt == OSH_F16) return _mm256_cvtph_ps(_mm_loadu_si128(x));
    return _mm256_loadu_ps(x);
}

/* Rounds finite f32 numbers to bf16, ties to even. The results are in the upper 16 bits of each
 * element; the lower 16 bits are undefined. */
INLINE __m256i bf16_bits(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

INLINE __m256 round8(__m256 x, osh_dtype dt)
{
    if (dt == OSH_BF16)
        return _mm256_castsi256_ps(
            _mm256_and_si256(bf16_bits(x), _mm256_set1_epi32((int)0xffff0000)));
    if (dt == OSH_F16) return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    return x;
}

INLINE void store8(void *y, __m256 x, osh_dtype dt)
{
    if (dt == OSH_BF16) {
        __m256i u = _mm256_srli_epi32(bf16_bits(x), 16);
        u = _mm256_permute4x64_epi64(_mm256_packus_epi32(u, u), 0x08);
        _mm_storeu_si128(y, _mm256_castsi256_si128(u));
    } else if (dt == OSH_F16)
        _mm_storeu_si128(y, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    else
        _mm256_storeu_ps(y, x);
}

/* Rounds y to E4M3 (|y| <= 448) or to E2M3 (|y| <= 7.5), and ties to even. Returns the codes, with
 * sign bits from `signs`. For a normal number, the f32 mantissa is rounded to 3 bits and the
 * exponent gets another bias. A number below n = 2^(1 - bias), the smallest normal number, is
 * rounded to a multiple of n / 8. */
INLINE __m256i small_floats_of(__m256 y, __m256 signs, int bias, int sign_bit)
{
    __m256i u = _mm256_castps_si256(y);
    __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(_mm256_castps_si256(signs), 31), sign_bit);
    __m256i a = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(a, 20), _mm256_set1_epi32(1));
    __m256i normal = _mm256_add_epi32(a, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff)));
    normal = _mm256_sub_epi32(_mm256_srli_epi32(normal, 20), _mm256_set1_epi32((127 - bias) << 3));
    __m256i tiny = _mm256_cvtps_epi32(
        _mm256_mul_ps(_mm256_castsi256_ps(a), _mm256_set1_ps((float)(8 << (bias - 1)))));
    __m256i is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32((128 - bias) << 23), a);
    return _mm256_or_si256(sign, _mm256_blendv_epi8(normal, tiny, is_tiny));
}

/* Returns the E2M1 codes of y. There are seven thresholds. The index of a code is the number of
 * thresholds that |y| exceeds. The sign is set for y < 0. */
INLINE __m256i fp4_codes(__m256 y)
{
    __m256 a = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), y);
    // Each comparison that is true adds -1 to n.
    __m256i n = _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(0.25f), _CMP_GT_OQ));
    n = _mm256_add_epi32(n,
                         _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(0.75f), _CMP_GE_OQ)));
    n = _mm256_add_epi32(n,
                         _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(1.25f), _CMP_GT_OQ)));
    n = _mm256_add_epi32(n,
                         _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(1.75f), _CMP_GE_OQ)));
    n = _mm256_add_epi32(n,
                         _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(2.5f), _CMP_GT_OQ)));
    n = _mm256_add_epi32(n,
                         _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(3.5f), _CMP_GE_OQ)));
    n = _mm256_add_epi32(n, _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(5), _CMP_GT_OQ)));
    __m256i negative = _mm256_castps_si256(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_LT_OQ));
    return _mm256_or_si256(_mm256_sub_epi32(_mm256_setzero_si256(), n),
                           _mm256_and_si256(negative, _mm256_set1_epi32(8)));
}

INLINE __m256i code8(const void *x, osh_dtype dt, osh_dtype round, osh_q_code_kind kind,
                     const osh_q_code *c)
{
    __m256 from = load8(x, dt), y = round8(_mm256_div_ps(from, _mm256_set1_ps(c->scale)), round);
    y = round8(_mm256_add_ps(y, _mm256_set1_ps(c->zero)), round);
    y = _mm256_min_ps(_mm256_max_ps(y, _mm256_set1_ps(c->qmin)), _mm256_set1_ps(c->qmax));
    return kind == OSH_Q_CODE_FP8   ? small_floats_of(y, y, 7, 7)
           : kind == OSH_Q_CODE_FP6 ? small_floats_of(y, from, 1, 5)
           : kind == OSH_Q_CODE_FP4 ? fp4_codes(y)
                                    : _mm256_cvtps_epi32(y);
}

INLINE void code32(uint8_t *codes, const uint8_t *x, osh_dtype dt, osh_dtype round,
                   osh_q_code_kind kind, const osh_q_code *c)
{
    size_t step = 8 * (dt == OSH_F32 ? 4 : 2);
    __m256i q0 = code8(x, dt, round, kind, c), q1 = code8(x + step, dt, round, kind, c);
    __m256i q2 = code8(x + 2 * step, dt, round, kind, c),
            q3 = code8(x + 3 * step, dt, round, kind, c);
    __m256i lo = _mm256_packs_epi32(q0, q1), hi = _mm256_packs_epi32(q2, q3);
    __m256i q = kind == OSH_Q_CODE_FP8 ? _mm256_packus_epi16(lo, hi) : _mm256_packs_epi16(lo, hi);
    /* The pack instructions work inside 128-bit lanes. So the groups of four codes (32 bits) are in
     * the order 0 2 4 6 1 3 5 7. */
    q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)codes, q);
}

/* Encodes 16 values, which are one group of NVFP4. */
INLINE void code16(uint8_t *codes, const uint8_t *x, osh_dtype dt, const osh_q_code *c)
{
    size_t step = 8 * (dt == OSH_F32 ? 4 : 2);
    __m256i q0 = code8(x, dt, c->round, c->kind, c), q1 = code8(x + step, dt, c->round, c->kind, c);
    __m256i q = _mm256_permute4x64_epi64(_mm256_packs_epi32(q0, q1), 0xd8);
    __m128i lo = _mm256_castsi256_si128(q), hi = _mm256_extracti128_si256(q, 1);
    lo = c->kind == OSH_Q_CODE_FP8 ? _mm_packus_epi16(lo, hi) : _mm_packs_epi16(lo, hi);
    _mm_storeu_si128((__m128i *)(void *)codes, lo);
}

/* Encodes n values. Every caller passes constants in c->kind and c->round, so that the compiler
 * removes the branches on them. */
INLINE void encode_as(uint8_t *codes, const void *x, int64_t n, osh_dtype dt, const osh_q_code *c)
{
    const uint8_t *p = x;
    size_t size = dt == OSH_F32 ? 4 : 2;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) code32(codes + i, p + (size_t)i * size, dt, c->round, c->kind, c);
    for (; i + 16 <= n; i += 16) code16(codes + i, p + (size_t)i * size, dt, c);
    if (i < n) {
        uint8_t in[32 * 4] = {0}, out[32];
        memcpy(in, p + (size_t)i * size, (size_t)(n - i) * size);
        code32(out, in, dt, c->round, c->kind, c);
        memcpy(codes + i, out, (size_t)(n - i));
    }
}

INLINE void encode_kind(uint8_t *codes, const void *x, int64_t n, osh_dtype dt, osh_dtype round,
                        const osh_q_code *c)
{
    osh_q_code k = *c;
    k.round = round;
    if (c->kind == OSH_Q_CODE_FP8) k.kind = OSH_Q_CODE_FP8, encode_as(codes, x, n, dt, &k);
    else if (c->kind == OSH_Q_CODE_FP6) k.kind = OSH_Q_CODE_FP6, encode_as(codes, x, n, dt, &k);
    else if (c->kind == OSH_Q_CODE_FP4) k.kind = OSH_Q_CODE_FP4, encode_as(codes, x, n, dt, &k);
    else k.kind = OSH_Q_CODE_INT, encode_as(codes, x, n, dt, &k);
}

AVX2 static void encode_avx2(uint8_t *codes, const void *x, osh_dtype dt, int64_t n,
                             const osh_q_code *c)
{
    bool rounded = c->round == dt && dt != OSH_F32;
    if (c->round != OSH_F32 && !rounded)
        /* Not reached, because all tensors of a layer have the same dtype. */
        osh_q_kernels_c.encode(codes, x, dt, n, c);
    else if (dt == OSH_BF16 && rounded)
        encode_kind(codes, x, n, OSH_BF16, OSH_BF16, c);
    else if (dt == OSH_F16 && rounded)
        encode_kind(codes, x, n, OSH_F16, OSH_F16, c);
    else if (dt == OSH_BF16)
        encode_kind(codes, x, n, OSH_BF16, OSH_F32, c);
    else if (dt == OSH_F16)
        encode_kind(codes, x, n, OSH_F16, OSH_F32, c);
    else
        encode_kind(codes, x, n, OSH_F32, OSH_F32, c);
}

/* ---- range ---- */
INLINE __m256i keys16(const uint16_t *p)
{
    __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_xor_si256(u,
                            _mm256_and_si256(_mm256_srai_epi16(u, 15), _mm256_set1_epi16(0x7fff)));
}

INLINE __m256i keys32(const uint32_t *p)
{
    __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_xor_si256(
        u, _mm256_and_si256(_mm256_srai_epi32(u, 31), _mm256_set1_epi32(0x7fffffff)));
}

/* Returns the smallest of 16 signed 16-bit numbers. The instruction minpos only finds the smallest
 * of 8 unsigned numbers. */
INLINE int16_t smallest16(__m256i k)
{
    __m128i m = _mm_min_epi16(_mm256_castsi256_si128(k), _mm256_extracti128_si256(k, 1));
    m = _mm_minpos_epu16(_mm_xor_si128(m, _mm_set1_epi16((short)0x8000)));
    return (int16_t)(_mm_extract_epi16(m, 0) ^ 0x8000);
}

INLINE void range16(uint16_t ends[2], const uint16_t *p, int64_t n)
{
    __m256i lo = keys16(p), hi = lo, lo2 = lo, hi2 = lo;
    int64_t i = 16;
    for (; i + 32 <= n; i += 32) {
        __m256i a = keys16(p + i), b = keys16(p + i + 16);
        lo = _mm256_min_epi16(lo, a), hi = _mm256_max_epi16(hi, a);
        lo2 = _mm256_min_epi16(lo2, b), hi2 = _mm256_max_epi16(hi2, b);
    }
    for (; i < n; i += 16) {
        // the last vector may overlap the vector before it
        __m256i a = keys16(i + 16 <= n ? p + i : p + n - 16);
        lo = _mm256_min_epi16(lo, a), hi = _mm256_max_epi16(hi, a);
    }
    int16_t l = smallest16(_mm256_min_epi16(lo, lo2));
    int16_t h =
        (int16_t)~smallest16(_mm256_xor_si256(_mm256_max_epi16(hi, hi2), _mm256_set1_epi16(-1)));
    ends[0] = (uint16_t)(l < 0 ? l ^ 0x7fff : l);
    ends[1] = (uint16_t)(h < 0 ? h ^ 0x7fff : h);
}

AVX2 static void range32(float ends[2], const uint32_t *p, int64_t n)
{
    __m256i lo = keys32(p), hi = lo;
    int32_t k[2][8], l, h;
    for (int64_t i = 8; i < n; i += 8) {
        __m256i a = keys32(i + 8 <= n ? p + i : p + n - 8);
        lo = _mm256_min_epi32(lo, a), hi = _mm256_max_epi32(hi, a);
    }
    _mm256_storeu_si256((__m256i *)(void *)k[0], lo);
    _mm256_storeu_si256((__m256i *)(void *)k[1], hi);
    l = k[0][0], h = k[1][0];
    for (int j = 1; j < 8; j++) {
        l = k[0][j] < l ? k[0][j] : l;
        h = k[1][j] > h ? k[1][j] : h;
    }
    ends[0] = osh_f32_of_bits((uint32_t)(l < 0 ? l ^ 0x7fffffff : l));
    ends[1] = osh_f32_of_bits((uint32_t)(h < 0 ? h ^ 0x7fffffff : h));
}

AVX2 void osh_q_range_avx2(float *min, float *max, const void *x, osh_dtype dt, int64_t n)
{
    if (n < (dt == OSH_F32 ? 8 : 16)) {
        osh_q_kernels_c.range(min, max, x, dt, n);
    } else if (dt == OSH_F32) {
        float ends[2];
        range32(ends, x, n);
        *min = ends[0], *max = ends[1];
    } else {
        uint16_t ends[2];
        range16(ends, x, n);
        *min = dt == OSH_BF16 ? osh_f32_of_bf16(ends[0]) : osh_f32_of_f16(ends[0]);
        *max = dt == OSH_BF16 ? osh_f32_of_bf16(ends[1]) : osh_f32_of_f16(ends[1]);
    }
}

AVX2 void osh_q_ranges_avx2(float *min, float *max, const void *x, osh_dtype dt, int64_t seg,
                            int64_t n)
{
    const uint16_t *p = x;
    if (dt == OSH_F32 || seg < 16) {
        osh_q_kernels_c.ranges(min, max, x, dt, seg, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t ends[2];
        range16(ends, p + i * seg, seg);
        if (dt == OSH_BF16)
            osh_q_widen(&min[i], &max[i], osh_f32_of_bf16(ends[0]), osh_f32_of_bf16(ends[1]));
        else
            osh_q_widen(&min[i], &max[i], osh_f32_of_f16(ends[0]), osh_f32_of_f16(ends[1]));
    }
}

/* ---- scales and zero points: one_param of arith.c, 8 at a time ---- */
/* Converts n ranges to scales and zero points, 8 at a time. Every caller passes constants in the
 * members of c, so that the compiler removes the branches on them. */
INLINE int64_t params_as(void *scale, int8_t *zp, const float *min, const float *max, int64_t n,
                         const osh_q_scale_rule *c)
{
    const osh_dtype dt = c->dt, step = c->step;
    const bool symmetric = c->symmetric;
    const __m256 none = _mm256_setzero_ps(), qmin = _mm256_set1_ps(c->qmin),
                 qmax = _mm256_set1_ps(c->qmax);
    const __m256 eps = _mm256_set1_ps(dt == OSH_BF16  ? 0x1p-7f
                                      : dt == OSH_F16 ? 0x1p-10f
                                                      : 0x1p-23f);
    const __m256 range = _mm256_set1_ps(symmetric ? (c->qmax - c->qmin) / 2 : c->qmax - c->qmin);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 mn = _mm256_min_ps(_mm256_loadu_ps(min + i), none);
        __m256 mx = _mm256_max_ps(_mm256_loadu_ps(max + i), none), s, z = none;
        if (symmetric) {
            s = _mm256_max_ps(_mm256_sub_ps(none, mn), mx);
            s = round8(_mm256_div_ps(s, range), dt);
        } else {
            s = round8(_mm256_div_ps(round8(_mm256_sub_ps(mx, mn), step), range), dt);
            z = round8(_mm256_sub_ps(qmin, round8(_mm256_div_ps(mn, s), step)), step);
            // 0 / 0 gives a NaN, which becomes the zero point 0
            __m256 number = _mm256_cmp_ps(z, z, _CMP_ORD_Q);
            z = _mm256_and_ps(number, _mm256_min_ps(_mm256_max_ps(z, qmin), qmax));
        }
        s = _mm256_blendv_ps(s, eps, _mm256_cmp_ps(s, none, _CMP_EQ_OQ));
        store8((uint8_t *)scale + (size_t)i * (dt == OSH_F32 ? 4 : 2), s, dt);
        if (!zp) continue;
        __m256i q = _mm256_cvtps_epi32(z);
        __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
        _mm_storel_epi64((__m128i *)(void *)(zp + i), _mm_packs_epi16(h, h));
    }
    return i;
}

AVX2 int64_t osh_q_params_avx2(void *scale, int8_t *zp, const float *min, const float *max,
                               int64_t n, const osh_q_scale_rule *r)
{
    osh_dtype dt = r->dt;
    if (dt == OSH_BF16 && r->step == OSH_BF16)
        return params_as(scale, zp, min, max, n,
                         &(osh_q_scale_rule){r->qmin, r->qmax, r->symmetric, OSH_BF16, OSH_BF16});
    if (dt == OSH_F16 && r->step == OSH_F16)
        return params_as(scale, zp, min, max, n,
                         &(osh_q_scale_rule){r->qmin, r->qmax, r->symmetric, OSH_F16, OSH_F16});
    if (dt == OSH_F32)
        return params_as(scale, zp, min, max, n,
                         &(osh_q_scale_rule){r->qmin, r->qmax, r->symmetric, OSH_F32, OSH_F32});
    return 0;
}

/* ---- decode ---- */
INLINE __m256 value8(const uint8_t *codes, osh_q_code_kind kind)
{
    __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)codes);
    // the table contains each value times 2, which is a whole number
    if (kind == OSH_Q_CODE_FP4) {
        const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, 1, 2, 3, 4, 6, 8, 12);
        __m128i v = _mm_shuffle_epi8(twice, _mm_and_si128(q, _mm_set1_epi8(15)));
        __m256i sign =
            _mm256_slli_epi32(_mm256_and_si256(_mm256_cvtepu8_epi32(q), _mm256_set1_epi32(8)), 28);
        __m256 a = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)), _mm256_set1_ps(0.5f));
        return _mm256_xor_ps(a, _mm256_castsi256_ps(sign));
    }
    if (kind == OSH_Q_CODE_INT) return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
    /* The bits of the code are moved to their positions in an F16 number. This number is too small
     * by the factor 2^8 (FP8) or 2^14 (FP6). Multiplying by the factor is exact, also for subnormal
     * numbers. */
    __m128i u = _mm_cvtepu8_epi16(q);
    if (kind == OSH_Q_CODE_FP6) {
        __m128i e2m3 = _mm_or_si128(_mm_slli_epi16(_mm_and_si128(u, _mm_set1_epi16(0x20)), 10),
                                    _mm_slli_epi16(_mm_and_si128(u, _mm_set1_epi16(0x1f)), 7));
        return _mm256_mul_ps(_mm256_cvtph_ps(e2m3), _mm256_set1_ps(0x1p14f));
    }
    __m128i a = _mm_and_si128(u, _mm_set1_epi16(0x7f));
    __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(a, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7e00));
    __m128i h = _mm_or_si128(_mm_slli_epi16(_mm_and_si128(u, _mm_set1_epi16(0x80)), 8),
                             _mm_slli_epi16(a, 7));
    h = _mm_or_si128(h, nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(256.0f));
}

INLINE void decode_as(void *y, osh_dtype dt, const uint8_t *codes, int64_t n, osh_q_code_kind kind,
                      const osh_q_code *c)
{
    uint8_t *p = y;
    size_t size = dt == OSH_F32 ? 4 : 2;
    __m256 zero = _mm256_set1_ps(c->zero), scale = _mm256_set1_ps(c->scale);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        store8(p + (size_t)i * size,
               _mm256_mul_ps(_mm256_sub_ps(value8(codes + i, kind), zero), scale), dt);
    if (i < n) {
        uint8_t in[8] = {0}, out[32];
        memcpy(in, codes + i, (size_t)(n - i));
        store8(out, _mm256_mul_ps(_mm256_sub_ps(value8(in, kind), zero), scale), dt);
        memcpy(p + (size_t)i * size, out, (size_t)(n - i) * size);
    }
}

INLINE void decode_kind(void *y, osh_dtype dt, const uint8_t *codes, int64_t n, const osh_q_code *c)
{
    if (c->kind == OSH_Q_CODE_FP8) decode_as(y, dt, codes, n, OSH_Q_CODE_FP8, c);
    else if (c->kind == OSH_Q_CODE_FP6) decode_as(y, dt, codes, n, OSH_Q_CODE_FP6, c);
    else if (c->kind == OSH_Q_CODE_FP4) decode_as(y, dt, codes, n, OSH_Q_CODE_FP4, c);
    else decode_as(y, dt, codes, n, OSH_Q_CODE_INT, c);
}

AVX2 static void decode_avx2(void *y, osh_dtype dt, const uint8_t *codes, int64_t n,
                             const osh_q_code *c)
{
    if (dt == OSH_BF16) decode_kind(y, OSH_BF16, codes, n, c);
    else if (dt == OSH_F16) decode_kind(y, OSH_F16, codes, n, c);
    else decode_kind(y, OSH_F32, codes, n, c);
}

/* ---- error ---- */
INLINE void add_squares8(__m256d *err, __m256d *ref, __m128 a, __m128 b)
{
    __m256d x = _mm256_cvtps_pd(a), d = _mm256_sub_pd(x, _mm256_cvtps_pd(b));
    *err = _mm256_add_pd(*err, _mm256_mul_pd(d, d));
    *ref = _mm256_add_pd(*ref, _mm256_mul_pd(x, x));
}

INLINE void error_as(double sum[2], const uint8_t *a, const uint8_t *b, osh_dtype dt, int64_t n)
{
    size_t size = dt == OSH_F32 ? 4 : 2;
    __m256d err[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()}, ref[2] = {err[0], err[0]};
    for (int64_t i = 0; i < n; i += 8) {
        uint8_t last[2][8 * 4] = {0}; // padded with zeros
        const uint8_t *p = a + (size_t)i * size, *q = b + (size_t)i * size;
        if (i + 8 > n) {
            p = memcpy(last[0], p, (size_t)(n - i) * size);
            q = memcpy(last[1], q, (size_t)(n - i) * size);
        }
        __m256 x = load8(p, dt), y = load8(q, dt);
        add_squares8(&err[0], &ref[0], _mm256_castps256_ps128(x), _mm256_castps256_ps128(y));
        add_squares8(&err[1], &ref[1], _mm256_extractf128_ps(x, 1), _mm256_extractf128_ps(y, 1));
    }
    double lanes[2][8];
    for (int k = 0; k < 2; k++) {
        _mm256_storeu_pd(lanes[0] + 4 * k, err[k]);
        _mm256_storeu_pd(lanes[1] + 4 * k, ref[k]);
    }
    sum[0] = sum[1] = 0;
    for (int k = 0; k < 8; k++) sum[0] += lanes[0][k], sum[1] += lanes[1][k];
}

AVX2 static void error_avx2(double sum[2], const void *a, const void *b, osh_dtype dt, int64_t n)
{
    if (dt == OSH_BF16) error_as(sum, a, b, OSH_BF16, n);
    else if (dt == OSH_F16) error_as(sum, a, b, OSH_F16, n);
    else error_as(sum, a, b, OSH_F32, n);
}

static const osh_q_kernels avx2;

static void encode_run_avx2(uint8_t *codes, const void *x, osh_dtype dt, const osh_q_run *r,
                            const osh_q_code *c)
{
    osh_q_encode_each(codes, x, dt, r, c, &avx2);
}

static void decode_run_avx2(void *y, osh_dtype dt, const uint8_t *codes, const osh_q_run *r,
                            const osh_q_code *c)
{
    osh_q_decode_each(y, dt, codes, r, c, &avx2);
}

static const osh_q_kernels avx2 = {
    .name = "avx2",
    .range = osh_q_range_avx2,
    .ranges = osh_q_ranges_avx2,
    .params = osh_q_params_avx2,
    .encode = encode_avx2,
    .decode = decode_avx2,
    .encode_run = encode_run_avx2,
    .decode_run = decode_run_avx2,
    .error = error_avx2,
};

const osh_q_kernels *osh_q_kernels_avx2(void)
{
    return &avx2;
}
#else
const osh_q_kernels *osh_q_kernels_avx2(void)
{
    return NULL;
}
#endif
