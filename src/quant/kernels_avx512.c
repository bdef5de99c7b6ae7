/* kernels_avx512.c - implements the loops of kernels.c with AVX-512, 16 values at a time. The
 * results have the same bytes as those of kernels.c. A function with a dtype or kind argument is
 * inlined for each value of the argument, so that the argument is a constant in the loop. Masks
 * select the elements of the last, partial vector. */
#include "quant/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "base/num.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c")))
#define INLINE AVX512 __attribute__((always_inline)) static inline

/* ---- 16 values of dtype dt <-> f32; m: mask of the elements that exist; the other elements are 0
 * ---- */
INLINE __m512 load16(const void *x, osh_dtype dt, __mmask16 m)
{
    if (dt == OSH_F32) return _mm512_maskz_loadu_ps(m, x);
    __m256i u = _mm256_maskz_loadu_epi16(m, x);
    if (dt == OSH_F16) return _mm512_cvtph_ps(u);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(u), 16));
}

/* Rounds finite f32 numbers to bf16, ties to even. The results are in the upper 16 bits of each
 * element; the lower 16 bits are undefined. */
INLINE __m512i bf16_bits16(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

INLINE __m512 round16(__m512 x, osh_dtype dt)
{
    if (dt == OSH_BF16)
        return _mm512_castsi512_ps(
            _mm512_and_si512(bf16_bits16(x), _mm512_set1_epi32((int)0xffff0000)));
    if (dt == OSH_F16) return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    return x;
}

INLINE void store16(void *y, __m512 x, osh_dtype dt, __mmask16 m)
{
    if (dt == OSH_F32) {
        _mm512_mask_storeu_ps(y, m, x);
        return;
    }
    __m256i u = dt == OSH_F16 ? _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)
                              : _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_bits16(x), 16));
    _mm256_mask_storeu_epi16(y, m, u);
}

INLINE __mmask16 rest_of(int64_t n) { return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff); }

/* ---- encode ---- */
/* Rounds |y| to a float with `bits` mantissa bits and the given bias, ties to even. Returns the
 * code without sign. For a normal number, the mantissa is rounded and the exponent gets the new
 * bias. A smaller number is rounded to a multiple of 2^(1 - bias - bits). */
INLINE __m512i small_floats16(__m512 y, int bias, int bits)
{
    const int shift = 23 - bits;
    __m512i a = _mm512_and_si512(_mm512_castps_si512(y), _mm512_set1_epi32(0x7fffffff));
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(a, (unsigned)shift), _mm512_set1_epi32(1));
    __m512i half = _mm512_set1_epi32((1 << (shift - 1)) - 1);
    __m512i normal = _mm512_add_epi32(a, _mm512_add_epi32(odd, half));
    normal = _mm512_sub_epi32(_mm512_srli_epi32(normal, (unsigned)shift),
                              _mm512_set1_epi32((127 - bias) << bits));
    __m512 steps = _mm512_set1_ps((float)(1 << (bias - 1 + bits)));
    __m512i tiny = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(a), steps));
    __mmask16 is_tiny = _mm512_cmplt_epi32_mask(a, _mm512_set1_epi32((128 - bias) << 23));
    return _mm512_mask_mov_epi32(normal, is_tiny, tiny);
}

INLINE __m512i code16(__m512 from, const osh_q_code *c)
{
    const osh_dtype round = c->round;
    const osh_q_code_kind kind = c->kind;
    __m512 y = round16(_mm512_div_ps(from, _mm512_set1_ps(c->scale)), round);
    y = round16(_mm512_add_ps(y, _mm512_set1_ps(c->zero)), round);
    y = _mm512_min_ps(_mm512_max_ps(y, _mm512_set1_ps(c->qmin)), _mm512_set1_ps(c->qmax));
    if (kind == OSH_Q_CODE_INT) return _mm512_cvtps_epi32(y);
    __m512i code = kind == OSH_Q_CODE_FP8   ? small_floats16(y, 7, 3)
                   : kind == OSH_Q_CODE_FP6 ? small_floats16(y, 1, 3)
                                            : small_floats16(y, 1, 1);
    /* E2M1: -0 has the code of +0. E2M3: the code has the sign of the value before the division. */
    __mmask16 negative =
        kind == OSH_Q_CODE_FP4 ? _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_LT_OQ)
                               : _mm512_movepi32_mask(
                                     _mm512_castps_si512(kind == OSH_Q_CODE_FP6 ? from : y));
    int sign = kind == OSH_Q_CODE_FP8 ? 0x80 : kind == OSH_Q_CODE_FP6 ? 0x20 : 8;
    return _mm512_mask_or_epi32(code, negative, code, _mm512_set1_epi32(sign));
}

/* Encodes n values. Every caller passes constants in c->kind and c->round, so that the compiler
 * removes the branches on them. */
INLINE void encode_as(uint8_t *codes, const void *x, int64_t n, osh_dtype dt, const osh_q_code *c)
{
    const uint8_t *p = x;
    size_t size = dt == OSH_F32 ? 4 : 2;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i q = code16(load16(p + (size_t)i * size, dt, 0xffff), c);
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm512_cvtepi32_epi8(q));
    }
    if (i < n) {
        __mmask16 m = rest_of(n - i);
        __m512i q = code16(load16(p + (size_t)i * size, dt, m), c);
        _mm_mask_storeu_epi8(codes + i, m, _mm512_cvtepi32_epi8(q));
    }
}

INLINE void encode_kind(uint8_t *codes, const uint8_t *x, const osh_q_run *r, osh_dtype dt,
                        const osh_q_code *c, osh_q_code_kind kind)
{
    osh_q_code k = *c;
    size_t bytes = (size_t)r->seg * (dt == OSH_F32 ? 4 : 2);
    k.kind = kind;
    for (int64_t i = 0; i < r->n; i++) {
        k.scale = r->scale[i], k.zero = r->zero[i];
        encode_as(codes + i * r->seg, x + (size_t)i * bytes, r->seg, dt, &k);
    }
}

INLINE void encode_dtype(uint8_t *codes, const void *x, const osh_q_run *r, osh_dtype dt,
                         osh_dtype round, const osh_q_code *c)
{
    osh_q_code k = *c;
    k.round = round;
    switch (c->kind) {
    case OSH_Q_CODE_FP8: encode_kind(codes, x, r, dt, &k, OSH_Q_CODE_FP8); break;
    case OSH_Q_CODE_FP6: encode_kind(codes, x, r, dt, &k, OSH_Q_CODE_FP6); break;
    case OSH_Q_CODE_FP4: encode_kind(codes, x, r, dt, &k, OSH_Q_CODE_FP4); break;
    case OSH_Q_CODE_INT: encode_kind(codes, x, r, dt, &k, OSH_Q_CODE_INT); break;
    }
}

AVX512 static void encode_run_avx512(uint8_t *codes, const void *x, osh_dtype dt,
                                     const osh_q_run *r, const osh_q_code *c)
{
    bool rounded = c->round == dt && dt != OSH_F32;
    if (c->round != OSH_F32 && !rounded)
        /* Not reached, because all tensors of a layer have the same dtype. */
        osh_q_kernels_c.encode_run(codes, x, dt, r, c);
    else if (dt == OSH_BF16 && rounded)
        encode_dtype(codes, x, r, OSH_BF16, OSH_BF16, c);
    else if (dt == OSH_F16 && rounded)
        encode_dtype(codes, x, r, OSH_F16, OSH_F16, c);
    else if (dt == OSH_BF16)
        encode_dtype(codes, x, r, OSH_BF16, OSH_F32, c);
    else if (dt == OSH_F16)
        encode_dtype(codes, x, r, OSH_F16, OSH_F32, c);
    else
        encode_dtype(codes, x, r, OSH_F32, OSH_F32, c);
}

AVX512 static void encode_avx512(uint8_t *codes, const void *x, osh_dtype dt, int64_t n,
                                 const osh_q_code *c)
{
    encode_run_avx512(codes, x, dt, &(osh_q_run){n, 1, &c->scale, &c->zero}, c);
}

/* ---- decode ---- */
INLINE __m512 value16(__m128i q, osh_q_code_kind kind)
{
    if (kind == OSH_Q_CODE_INT) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q));
    /* The instruction permutexvar uses only the low 4 bits of each index, which are the code. */
    if (kind == OSH_Q_CODE_FP4) {
        const __m512 table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f,
                                            -2, -3, -4, -6);
        return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(q), table);
    }
    /* The bits of the code are moved to their positions in an F16 number. This number is too small
     * by the factor 2^8 (FP8) or 2^14 (FP6). Multiplying by the factor is exact, also for subnormal
     * numbers. */
    __m256i u = _mm256_cvtepu8_epi16(q);
    if (kind == OSH_Q_CODE_FP6) {
        __m256i sign = _mm256_slli_epi16(_mm256_and_si256(u, _mm256_set1_epi16(0x20)), 10);
        __m256i rest = _mm256_slli_epi16(_mm256_and_si256(u, _mm256_set1_epi16(0x1f)), 7);
        return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, rest)),
                             _mm512_set1_ps(0x1p14f));
    }
    __m256i a = _mm256_and_si256(u, _mm256_set1_epi16(0x7f));
    __m256i nan =
        _mm256_and_si256(_mm256_cmpeq_epi16(a, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7e00));
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(u, _mm256_set1_epi16(0x80)), 8);
    __m256i h = _mm256_or_si256(_mm256_or_si256(sign, _mm256_slli_epi16(a, 7)), nan);
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256.0f));
}

INLINE void decode_as(void *y, osh_dtype dt, const uint8_t *codes, int64_t n, osh_q_code_kind kind,
                      const osh_q_code *c)
{
    uint8_t *p = y;
    size_t size = dt == OSH_F32 ? 4 : 2;
    __m512 zero = _mm512_set1_ps(c->zero), scale = _mm512_set1_ps(c->scale);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = rest_of(n - i);
        __m512 v = value16(_mm_maskz_loadu_epi8(m, codes + i), kind);
        store16(p + (size_t)i * size, _mm512_mul_ps(_mm512_sub_ps(v, zero), scale), dt, m);
    }
}

INLINE void decode_kind(void *y, osh_dtype dt, const uint8_t *codes, const osh_q_run *r,
                        osh_q_code_kind kind, const osh_q_code *c)
{
    osh_q_code k = *c;
    size_t bytes = (size_t)r->seg * (dt == OSH_F32 ? 4 : 2);
    for (int64_t i = 0; i < r->n; i++) {
        k.scale = r->scale[i], k.zero = r->zero[i];
        decode_as((uint8_t *)y + (size_t)i * bytes, dt, codes + i * r->seg, r->seg, kind, &k);
    }
}

INLINE void decode_dtype(void *y, osh_dtype dt, const uint8_t *codes, const osh_q_run *r,
                         const osh_q_code *c)
{
    switch (c->kind) {
    case OSH_Q_CODE_FP8: decode_kind(y, dt, codes, r, OSH_Q_CODE_FP8, c); break;
    case OSH_Q_CODE_FP6: decode_kind(y, dt, codes, r, OSH_Q_CODE_FP6, c); break;
    case OSH_Q_CODE_FP4: decode_kind(y, dt, codes, r, OSH_Q_CODE_FP4, c); break;
    case OSH_Q_CODE_INT: decode_kind(y, dt, codes, r, OSH_Q_CODE_INT, c); break;
    }
}

AVX512 static void decode_run_avx512(void *y, osh_dtype dt, const uint8_t *codes,
                                     const osh_q_run *r, const osh_q_code *c)
{
    if (dt == OSH_BF16) decode_dtype(y, OSH_BF16, codes, r, c);
    else if (dt == OSH_F16) decode_dtype(y, OSH_F16, codes, r, c);
    else decode_dtype(y, OSH_F32, codes, r, c);
}

AVX512 static void decode_avx512(void *y, osh_dtype dt, const uint8_t *codes, int64_t n,
                                 const osh_q_code *c)
{
    decode_run_avx512(y, dt, codes, &(osh_q_run){n, 1, &c->scale, &c->zero}, c);
}

/* ---- error ---- */
INLINE void error_as(double sum[2], const uint8_t *a, const uint8_t *b, osh_dtype dt, int64_t n)
{
    size_t size = dt == OSH_F32 ? 4 : 2;
    __m512d err = _mm512_setzero_pd(), ref = err; // each contains 8 partial sums
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = rest_of(n - i);
        __m512 x = load16(a + (size_t)i * size, dt, m), y = load16(b + (size_t)i * size, dt, m);
        __m256 xs[2] = {_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)},
               ys[2] = {_mm512_castps512_ps256(y), _mm512_extractf32x8_ps(y, 1)};
        for (int k = 0; k < 2; k++) {
            __m512d v = _mm512_cvtps_pd(xs[k]), d = _mm512_sub_pd(v, _mm512_cvtps_pd(ys[k]));
            err = _mm512_add_pd(err, _mm512_mul_pd(d, d));
            ref = _mm512_add_pd(ref, _mm512_mul_pd(v, v));
        }
    }
    double lanes[2][8];
    _mm512_storeu_pd(lanes[0], err);
    _mm512_storeu_pd(lanes[1], ref);
    sum[0] = sum[1] = 0;
    for (int k = 0; k < 8; k++) sum[0] += lanes[0][k], sum[1] += lanes[1][k];
}

AVX512 static void error_avx512(double sum[2], const void *a, const void *b, osh_dtype dt,
                                int64_t n)
{
    if (dt == OSH_BF16) error_as(sum, a, b, OSH_BF16, n);
    else if (dt == OSH_F16) error_as(sum, a, b, OSH_F16, n);
    else error_as(sum, a, b, OSH_F32, n);
}

static const osh_q_kernels avx512 = {
    .name = "avx512",
    .range = osh_q_range_avx2,
    .ranges = osh_q_ranges_avx2,
    .params = osh_q_params_avx2,
    .encode = encode_avx512,
    .decode = decode_avx512,
    .encode_run = encode_run_avx512,
    .decode_run = decode_run_avx512,
    .error = error_avx512,
};

const osh_q_kernels *osh_q_kernels_avx512(void)
{
    return &avx512;
}
#else
const osh_q_kernels *osh_q_kernels_avx512(void)
{
    return NULL;
}
#endif
