/* span512_steps.h - defines vector steps that span512.c and pairs_flow.c share. Most functions work
 * on n vectors of 16 values at a time. */
#ifndef OSH_SPAN512_STEPS_H
#define OSH_SPAN512_STEPS_H
#if defined(__x86_64__)
#include <immintrin.h>

#include "math/span.h"

#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define WIDE_FN                                                                                    \
    static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl")))

/* LANES: number of f32 values in a vector.
 * SIDE: number of vectors that are processed at the same time. Each instruction is applied to all
 * SIDE vectors before the next instruction. An exponential is a chain of twenty instructions. With
 * a single vector, each instruction would wait for the result of the instruction before it.
 * EVERY: a loop over n vectors, which the compiler unrolls. So n is a compile-time constant at each
 * call. The last vectors of a row are processed one by one. */
enum { LANES = 16, SIDE = 8 };
#ifdef __clang__
#define EVERY(n) _Pragma("clang loop unroll(full)") for (int k = 0; k < (n); k++)
#else
#define EVERY(n) _Pragma("GCC unroll 8") for (int k = 0; k < (n); k++)
#endif

WIDE_FN __m512 constant(float f) { return _mm512_set1_ps(f); }

/* Keeps the order of the instructions. Without KEEP, GCC computes all steps of one vector before
 * the first step of the next vector. */
#define KEEP(x) __asm__("" : "+v"(x))

/* Computes p = p r + c on n vectors. This is one step of Horner's method. */
WIDE_FN void horner(__m512 *p, const __m512 *r, float c, int n)
{
    EVERY(n) p[k] = _mm512_mul_ps(p[k], r[k]);
    EVERY(n) KEEP(p[k]);
    EVERY(n) p[k] = _mm512_add_ps(p[k], constant(c));
    EVERY(n) KEEP(p[k]);
}

/* Replaces x by e^x in n vectors, with the same results as v8_exp_below (math/vec.h). */
WIDE_FN void exp_below(__m512 *x, int n)
{
    __m512 magic = constant(12582912.0f), m[SIDE], r[SIDE], p[SIDE];
    /* e^x = 2^i e^r. The low bits of m are the integer i. The exponent field of the float 2^i is i
     * plus the exponent bias. */
    __m512i bias = _mm512_sub_epi32(_mm512_set1_epi32(127), _mm512_castps_si512(magic));
    EVERY(n) m[k] = _mm512_mul_ps(x[k], constant(1.44269504088896341f));
    EVERY(n) KEEP(m[k]);
    EVERY(n) m[k] = _mm512_add_ps(m[k], magic);
    EVERY(n) KEEP(m[k]);
    EVERY(n) p[k] = _mm512_sub_ps(m[k], magic);
    EVERY(n) KEEP(p[k]);
    // The product is exact, because it has at most 24 bits. So a fused multiply-add gives the same
    // result as a product and a difference.
    EVERY(n) r[k] = _mm512_fnmadd_ps(p[k], constant(0.693359375f), x[k]);
    EVERY(n) KEEP(r[k]);
    EVERY(n) p[k] = _mm512_mul_ps(p[k], constant(-2.12194440e-4f));
    EVERY(n) r[k] = _mm512_sub_ps(r[k], p[k]);
    EVERY(n) KEEP(r[k]);
    EVERY(n) p[k] = constant(1.9875691500e-4f);
    horner(p, r, 1.3981999507e-3f, n);
    horner(p, r, 8.3334519073e-3f, n);
    horner(p, r, 4.1665795894e-2f, n);
    horner(p, r, 1.6666665459e-1f, n);
    horner(p, r, 5.0000001201e-1f, n);
    EVERY(n) p[k] = _mm512_mul_ps(p[k], r[k]);
    EVERY(n) KEEP(p[k]);
    EVERY(n) p[k] = _mm512_mul_ps(p[k], r[k]);
    EVERY(n) KEEP(p[k]);
    EVERY(n) p[k] = _mm512_add_ps(p[k], r[k]);
    EVERY(n) KEEP(p[k]);
    EVERY(n) p[k] = _mm512_add_ps(p[k], constant(1.0f));
    EVERY(n) KEEP(p[k]);
    EVERY(n) {
        __m512i e = _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(m[k]), bias), 23);
        __mmask16 below = _mm512_cmp_ps_mask(x[k], constant(-87.33f), _CMP_LT_OQ);
        x[k] = _mm512_maskz_mul_ps((__mmask16)~below, p[k], _mm512_castsi512_ps(e));
    }
}

/* Rounds x to BF16. If x is NaN, its low 16 bits must be 0. This is so if the NaN was widened from
 * BF16, or if an instruction made it from numbers. */
WIDE_FN __m512 nearest_bf16(__m512 x)
{
    __m512i u = _mm512_castps_si512(x),
            odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32((int)0xffff0000u)));
}

WIDE_FN __m512 round_bf16(__m512 x)
{
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), nearest_bf16(x));
}

/* Computes x = act(x), rounded to BF16, on n vectors. */
WIDE_FN void act_of(__m512 *x, osh_act_kind act, int n)
{
    __m512 e[SIDE], limit = constant(88.37f);
    if (act == OSH_ACT_GELU_TANH) {
        EVERY(n)
            e[k] = _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(x[k], x[k]), x[k]),
                                 constant(0.044715f));
        EVERY(n)
            e[k] = _mm512_mul_ps(_mm512_add_ps(x[k], e[k]), constant(-1.59576912160573071176f));
    } else {
        EVERY(n) e[k] = _mm512_xor_ps(x[k], constant(-0.0f));
    }
    EVERY(n) e[k] = _mm512_min_ps(limit, e[k]); // the result is NaN if `e` is NaN
    exp_below(e, n);
    EVERY(n) e[k] = _mm512_add_ps(e[k], constant(1.0f));
    EVERY(n) x[k] = _mm512_div_ps(x[k], e[k]);
    EVERY(n) x[k] = nearest_bf16(x[k]);
}
#endif
#endif
