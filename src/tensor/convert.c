/* convert.c - converts elements to and from f32, and finds NaN and Inf.
 *
 *   to_f32     converts BF16, F16 and FP8 exactly; rounds F64
 *   from_f32   rounds to nearest, ties to even; NaN stays NaN, F16 overflows to Inf,
 *              FP8 saturates at 448
 *
 * base/num.h defines every result. The functions with AVX2, AVX-512 and F16C return the same bits,
 * including NaN payloads. */
#include "base/isa.h"
#include "base/num.h"
#include "tensor/tensor.h"

#include <assert.h>

#if defined(__x86_64__)
/* 1: the AVX2 code is compiled, and is used at run time if osh_isa_used permits AVX2 */
#define HAVE_AVX2_PATH 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define AVX2_F16C __attribute__((target("avx2,f16c")))
#else
#define HAVE_AVX2_PATH 0
#endif

#if HAVE_AVX2_PATH
/* The next functions use AVX2, AVX-512 or F16C. They convert only whole vectors, and return the
 * number of converted elements. The caller converts the remaining elements. */
AVX2 static int64_t bf16_to_f32_avx2(float *to, const uint16_t *from, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(from + i)));
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_slli_epi32(u, 16));
    }
    return i;
}

/* Rounds the f32 in each lane to bf16, and puts the result into the low half of the lane. The
 * result is (u + 0x7fff + lsb) >> 16, where lsb is bit 16 of u. A NaN becomes a quiet NaN. */
AVX2 static inline __m256i bf16_lanes(__m256i u)
{
    const __m256i one = _mm256_set1_epi32(1), bias = _mm256_set1_epi32(0x7fff);
    __m256i hi = _mm256_srli_epi32(u, 16);
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, bias), _mm256_and_si256(hi, one));
    __m256i mag = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
    __m256i nan = _mm256_cmpgt_epi32(mag, _mm256_set1_epi32(0x7f800000));
    __m256i quiet = _mm256_or_si256(hi, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(_mm256_srli_epi32(r, 16), quiet, nan);
}

AVX2 static int64_t bf16_from_f32_avx2(uint16_t *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i a = bf16_lanes(_mm256_loadu_si256((const __m256i *)(from + i)));
        __m256i b = bf16_lanes(_mm256_loadu_si256((const __m256i *)(from + i + 8)));
        // the permutation restores the order, because packus works on each 128-bit half by itself
        __m256i p = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
        _mm256_storeu_si256((__m256i *)(to + i), p);
    }
    return i;
}

AVX512 static int64_t bf16_to_f32_avx512(float *to, const uint16_t *from, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(from + i)));
        _mm512_storeu_si512(to + i, _mm512_slli_epi32(u, 16));
    }
    return i;
}

AVX512 static int64_t bf16_from_f32_avx512(uint16_t *to, const float *from, int64_t n)
{
    const __m512i one = _mm512_set1_epi32(1), bias = _mm512_set1_epi32(0x7fff);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i u = _mm512_loadu_si512(from + i), hi = _mm512_srli_epi32(u, 16);
        __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)),
                                                _mm512_set1_epi32(0x7f800000));
        u = _mm512_srli_epi32(
            _mm512_add_epi32(_mm512_add_epi32(u, bias), _mm512_and_si512(hi, one)), 16);
        u = _mm512_mask_or_epi32(u, nan, hi, _mm512_set1_epi32(0x40));
        _mm256_storeu_si256((__m256i *)(to + i), _mm512_cvtepi32_epi16(u));
    }
    return i;
}

/* Converts with the instruction vcvtph2ps. It makes a signalling NaN quiet, but the scalar code
 * does not. So vectors with a NaN are converted again by scalar code. */
AVX2_F16C static int64_t f16_to_f32_f16c(float *to, const uint16_t *from, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i)));
        _mm256_storeu_ps(to + i, x);
        if (_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)))
            for (int64_t k = i; k < i + 8; k++) to[k] = osh_f32_of_f16(from[k]);
    }
    return i;
}

AVX2_F16C static int64_t f16_from_f32_f16c(uint16_t *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(from + i);
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

/* Returns the number of bytes before the first vector that contains a NaN or Inf. An element is NaN
 * or Inf if all bits of `mask` are set in it. width: number of bytes of an element. */
AVX2 static int64_t finite_bytes_avx2(const uint8_t *p, int64_t n_bytes, uint32_t mask, int width)
{
    const __m256i m = _mm256_set1_epi32((int)mask);
    int64_t i = 0;
    for (; i + 32 <= n_bytes; i += 32) {
        __m256i v = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(p + i)), m);
        __m256i hit = width == 4   ? _mm256_cmpeq_epi32(v, m)
                      : width == 2 ? _mm256_cmpeq_epi16(v, m)
                                   : _mm256_cmpeq_epi8(v, m);
        if (!_mm256_testz_si256(hit, hit)) break;
    }
    return i;
}

AVX512 static int64_t finite_bytes_avx512(const uint8_t *p, int64_t n_bytes, uint32_t mask,
                                          int width)
{
    const __m512i m = _mm512_set1_epi32((int)mask);
    int64_t i = 0;
    for (; i + 64 <= n_bytes; i += 64) {
        __m512i v = _mm512_and_si512(_mm512_loadu_si512(p + i), m);
        __mmask64 hit = width == 4   ? _mm512_cmpeq_epi32_mask(v, m)
                        : width == 2 ? _mm512_cmpeq_epi16_mask(v, m)
                                     : _mm512_cmpeq_epi8_mask(v, m);
        if (hit) break;
    }
    return i;
}

static bool convert_has_avx512(void) { return osh_isa_used() >= OSH_ISA_AVX512; }
/* True if AVX2 and F16C may be used. The ISA level AVX2 includes F16C. */
static bool convert_has_avx2(void) { return osh_isa_used() >= OSH_ISA_AVX2; }
#endif

static void bf16_to_f32(float *to, const uint16_t *from, int64_t n)
{
    int64_t i = 0;
#if HAVE_AVX2_PATH
    if (convert_has_avx512()) i = bf16_to_f32_avx512(to, from, n);
    else if (convert_has_avx2()) i = bf16_to_f32_avx2(to, from, n);
#endif
    for (; i < n; i++) to[i] = osh_f32_of_bf16(from[i]);
}

static void f16_to_f32(float *to, const uint16_t *from, int64_t n)
{
    int64_t i = 0;
#if HAVE_AVX2_PATH
    if (convert_has_avx2()) i = f16_to_f32_f16c(to, from, n);
#endif
    for (; i < n; i++) to[i] = osh_f32_of_f16(from[i]);
}

static void fp8_to_f32(float *to, const uint8_t *from, int64_t n)
{
    float table[256];
    if (n < 256) {
        for (int64_t i = 0; i < n; i++) to[i] = osh_f32_of_fp8(from[i]);
        return;
    }
    for (int b = 0; b < 256; b++) table[b] = osh_f32_of_fp8((uint8_t)b);
    for (int64_t i = 0; i < n; i++) to[i] = table[from[i]];
}

void osh_to_f32(float *to, const void *from, osh_dtype dt, int64_t n)
{
    if (n <= 0) return;
    switch (dt) {
    case OSH_F32:
        memmove(to, from, (size_t)n * sizeof *to);
        break;
    case OSH_BF16:
        bf16_to_f32(to, from, n);
        break;
    case OSH_F16:
        f16_to_f32(to, from, n);
        break;
    case OSH_FP8:
        fp8_to_f32(to, from, n);
        break;
    case OSH_F64:
        for (int64_t i = 0; i < n; i++) to[i] = (float)((const double *)from)[i];
        break;
    default:
        assert(!"a dtype that holds no float");
    }
}

static void bf16_from_f32(uint16_t *to, const float *from, int64_t n)
{
    int64_t i = 0;
#if HAVE_AVX2_PATH
    if (convert_has_avx512()) i = bf16_from_f32_avx512(to, from, n);
    else if (convert_has_avx2()) i = bf16_from_f32_avx2(to, from, n);
#endif
    for (; i < n; i++) to[i] = osh_bf16_of_f32(from[i]);
}

static void f16_from_f32(uint16_t *to, const float *from, int64_t n)
{
    int64_t i = 0;
#if HAVE_AVX2_PATH
    if (convert_has_avx2()) i = f16_from_f32_f16c(to, from, n);
#endif
    for (; i < n; i++) to[i] = osh_f16_of_f32(from[i]);
}

void osh_from_f32(void *to, osh_dtype dt, const float *from, int64_t n)
{
    if (n <= 0) return;
    switch (dt) {
    case OSH_F32:
        memmove(to, from, (size_t)n * sizeof *from);
        break;
    case OSH_BF16:
        bf16_from_f32(to, from, n);
        break;
    case OSH_F16:
        f16_from_f32(to, from, n);
        break;
    case OSH_FP8:
        for (int64_t i = 0; i < n; i++) ((uint8_t *)to)[i] = osh_fp8_of_f32(from[i]);
        break;
    case OSH_F64:
        for (int64_t i = 0; i < n; i++) ((double *)to)[i] = from[i];
        break;
    default:
        assert(!"a dtype that holds no float");
    }
}

/* True if element i at the address p is NaN or Inf. p need not be aligned. */
static bool nonfinite_at(const void *p, osh_dtype dt, int64_t i)
{
    size_t width = osh_dtype_bytes(dt);
    uint64_t v = 0;
    memcpy(&v, (const uint8_t *)p + (size_t)i * width, width);
    switch (dt) {
    case OSH_F64: return (v >> 52 & 0x7ff) == 0x7ff;
    case OSH_F32: return (v & 0x7f800000u) == 0x7f800000u;
    case OSH_BF16: return (v & 0x7f80) == 0x7f80;
    case OSH_F16: return (v & 0x7c00) == 0x7c00;
    default: return (v & 0x7f) == 0x7f; // E4M3FN has one NaN for each sign, and no Inf
    }
}

int64_t osh_find_nonfinite(const void *p, osh_dtype dt, int64_t n)
{
    int64_t i = 0;
    if (!osh_dtype_is_float(dt)) return -1;
#if HAVE_AVX2_PATH
    if (dt != OSH_F64 && convert_has_avx2()) {
        int width = (int)osh_dtype_bytes(dt);
        uint32_t mask = dt == OSH_F32    ? 0x7f800000u
                        : dt == OSH_BF16 ? 0x7f807f80u
                        : dt == OSH_F16  ? 0x7c007c00u
                                         : 0x7f7f7f7fu;
        i = (convert_has_avx512() ? finite_bytes_avx512 : finite_bytes_avx2)(p, n * width, mask,
                                                                             width) /
            width;
    }
#endif
    for (; i < n; i++)
        if (nonfinite_at(p, dt, i)) return i;
    return -1;
}
