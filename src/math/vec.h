/* vec.h - defines functions on vectors of eight f32 lanes, in the compiler's vector extension. SSE2
 * and AVX2 run the same source, and so give the same bytes.
 *
 * No function uses a fused multiply-add: SSE2 has none, and the code for SSE2 and AVX2 must round
 * in the same way. Vectors are passed by pointer, because the call convention for vectors by value
 * depends on the instruction set. */
#ifndef OSH_VEC_H
#define OSH_VEC_H
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

enum { OSH_LANES = 8, OSH_LANES_D = 4 };
typedef double osh_v4d __attribute__((vector_size(32)));
typedef int64_t osh_v4l __attribute__((vector_size(32)));
typedef float osh_v8f __attribute__((vector_size(32)));
typedef int32_t osh_v8i __attribute__((vector_size(32)));
typedef uint32_t osh_v8u __attribute__((vector_size(32)));
#define OSH_VEC_FN static inline __attribute__((always_inline, unused))
#define OSH_AVX2 __attribute__((target("avx2")))

static inline int64_t osh_pad8(int64_t n) { return (n + 7) & ~(int64_t)7; }
/* Returns the number of floats for n_threads rows of n elements, one row for each thread. Each row
 * is padded to a multiple of 8. */
static inline int64_t osh_rows_floats(int64_t n, int n_threads) { return osh_pad8(n) * n_threads; }

OSH_VEC_FN void v8_load(osh_v8f *to, const float *p) { memcpy(to, p, sizeof *to); }
OSH_VEC_FN void v8_store(float *p, const osh_v8f *x) { memcpy(p, x, sizeof *x); }
OSH_VEC_FN void v8_set(osh_v8f *to, float f) { *to = (osh_v8f){f, f, f, f, f, f, f, f}; }

/* Computes `to` = mask ? a : b, for each lane. Each lane of the mask must be all ones or all zeros,
 * like the result of a comparison. */
OSH_VEC_FN void v8_select(osh_v8f *to, const osh_v8i *mask, const osh_v8f *a, const osh_v8f *b)
{
    *to = (osh_v8f)((*mask & (osh_v8i)*a) | (~*mask & (osh_v8i)*b));
}

OSH_VEC_FN float v8_sum(const osh_v8f *x) // returns the sum of the lanes, added in a fixed order
{
    float s = 0;
    for (int i = 0; i < OSH_LANES; i++) s += (*x)[i];
    return s;
}

OSH_VEC_FN float v8_max(const osh_v8f *x)
{
    float m = (*x)[0];
    for (int i = 1; i < OSH_LANES; i++)
        if ((*x)[i] > m) m = (*x)[i];
    return m;
}

OSH_VEC_FN void v8_root(osh_v8f *x) // replaces each lane by its square root
{
    for (int i = 0; i < OSH_LANES; i++) (*x)[i] = sqrtf((*x)[i]);
}

/* Rounds x to the nearest whole number, ties to even, for |x| < 2^22. Adding and subtracting 1.5 *
 * 2^23 removes the bits of the fraction. */
OSH_VEC_FN void v8_nearest(osh_v8f *x)
{
    osh_v8f magic;
    v8_set(&magic, 12582912.0f);
    *x = (*x + magic) - magic;
}

/* Replaces x by e^x for x <= 88.37, with a relative error under 2e-7. If x is below -87.33, the
 * result is 0. If x is NaN, the result is NaN. Reduction and polynomial are those of Cephes:
 *
 *   x = n ln 2 + r
 *   e^x = 2^n (1 + r + r^2 P(r)) */
OSH_VEC_FN void v8_exp_below(osh_v8f *x)
{
    osh_v8f lo, n, p, r;
    osh_v8i below;

    v8_set(&lo, -87.33f);
    // mask with all ones in the lanes whose result is 0; the values of n and 2^n in these lanes are
    // not used
    below = *x < lo;
    n = *x * 1.44269504088896341f;
    v8_nearest(&n);
    r = *x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r) * r + r + 1.0f;
    /* The low bits of n + 1.5 * 2^23 are n. The float 2^n has n plus the exponent bias in its
     * exponent field. */
    v8_set(&lo, 12582912.0f);
    osh_v8f m = n + lo;
    // the shift may overflow in the lanes of `below`; the results of these lanes are not used
    osh_v8u e = ((osh_v8u)m - (osh_v8u)lo + 127u) << 23;
    r = p * (osh_v8f)e;
    *x = (osh_v8f)(~below & (osh_v8i)r);
}

/* Replaces x by e^x, for any x. If x is above 88.37, the result is e^88.37. */
OSH_VEC_FN void v8_exp(osh_v8f *x)
{
    osh_v8f hi;
    osh_v8i above;

    v8_set(&hi, 88.37f);
    above = *x > hi;
    v8_select(x, &above, &hi, x);
    v8_exp_below(x);
}

/* Computes x = ln x for x >= 2^-126. The relative error is under 3e-7; near 1, the absolute error
 * is under 1e-7. Writes x as 2^n (1 + r), with 1 + r between sqrt 1/2 and sqrt 2. The polynomial in
 * r is that of Cephes. */
OSH_VEC_FN void v8_log(osh_v8f *x)
{
    static const float part[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                                 -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                                 2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
    osh_v8i bits = (osh_v8i)*x, e = ((bits - 0x3f3504f3) >> 23),
            // `e` is n of the formula above; 0x3f3504f3 are the bits of sqrt 1/2
            rest = bits - (e << 23);
    osh_v8f r = (osh_v8f)rest - 1.0f, z = r * r, p, n;
    v8_set(&p, part[0]);
    for (int i = 1; i < 9; i++) p = p * r + part[i];
    n = __builtin_convertvector(e, osh_v8f);
    p = p * r * z + n * -2.12194440e-4f - z * 0.5f;
    *x = r + p + n * 0.693359375f;
}

/* Computes x = tanh x, with a relative error under 3e-7. Near 0, uses Cephes' polynomial x + x^3
 * P(x^2). For other x, uses 1 - 2 / (e^(2 |x|) + 1) with the sign of x. */
OSH_VEC_FN void v8_tanh(osh_v8f *x)
{
    osh_v8f z = *x * *x, p, e, limit;
    osh_v8u sign = (osh_v8u)*x & 0x80000000u;
    osh_v8f a = (osh_v8f)((osh_v8u)*x ^ sign);
    osh_v8i small;

    v8_set(&limit, 0.625f);
    small = a < limit;
    p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = a + a * (z * p);
    e = a + a;
    v8_exp(&e);
    e = 1.0f - 2.0f / (e + 1.0f);
    v8_select(&p, &small, &p, &e);
    *x = (osh_v8f)((osh_v8u)p | sign);
}

/* Computes the sine and cosine of x for |x| < 5e8, with a relative error under 3e-16. Uses x = n
 * pi/2 + r with |r| <= pi/4, and Taylor series in r up to r^17 (sine) and r^16 (cosine). The
 * constant pi/2 is a sum of five terms of 24 bits, so that the product of n and each term is
 * exact. */
OSH_VEC_FN void v4_sincos(osh_v4d *sine, osh_v4d *cosine, const osh_v4d *x)
{
    static const double part[] = {0x1.921fb4p+0, 0x1.4442dp-24, 0x1.846988p-48, 0x1.8cc516p-72,
                                  0x1.01b838p-96};
    static const double cs[] = {
        1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
        1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
    static const double cc[] = {
        1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
        1.0 / 40320,          -1.0 / 720,         1.0 / 24};
    // `round` is 1.5 * 2^52, so the low bits of x / (pi/2) + round are n
    const double round = 6755399441055744.0;
    osh_v4d sum = *x * 0.63661977236758134308 + round, n = sum - round, r = *x, z, s, c;
    osh_v4l q = (osh_v4l)sum, swap = -(q & 1);

    for (int i = 0; i < 5; i++) r = r - n * part[i];
    z = r * r;
    s = z * cs[0] + cs[1];
    c = z * cc[0] + cc[1];
    for (int i = 2; i < 8; i++) s = s * z + cs[i];
    for (int i = 2; i < 7; i++) c = c * z + cc[i];
    s = r + r * (z * s);
    c = (1.0 - 0.5 * z) + z * z * c;
    /* The sine changes its sign in quadrants 2 and 3, and the cosine in quadrants 1 and 2. */
    osh_v4l us = (osh_v4l)s, uc = (osh_v4l)c, low = q & 2, high = (q + 1) & 2;
    *sine = (osh_v4d)(((swap & uc) | (~swap & us)) ^ (low << 62));
    *cosine = (osh_v4d)(((swap & us) | (~swap & uc)) ^ (high << 62));
}

OSH_VEC_FN void v8_round_bf16(osh_v8f *x)
{
    osh_v8u u = (osh_v8u)*x;
    osh_v8i nan = *x != *x;
    osh_v8f r = (osh_v8f)((u + 0x7fffu + ((u >> 16) & 1)) & 0xffff0000u);
    v8_select(x, &nan, x, &r);
}

/* Rounds x to f16: to 11 significant bits, or to multiples of 2^-24 if |x| is below 2^-14. Adding
 * and subtracting 0.5 rounds to these multiples. */
OSH_VEC_FN void v8_round_f16(osh_v8f *x)
{
    osh_v8u u = (osh_v8u)*x, sign = u & 0x80000000u, a = u & 0x7fffffffu;
    // numbers of at least 65520 become infinite
    osh_v8u inf = (osh_v8u)(a >= 0x477ff000u) & 0x7f800000u;
    osh_v8f r = (osh_v8f)((a + 0xfffu + ((a >> 13) & 1)) & 0xffffe000u), half, s;
    osh_v8i tiny = (osh_v8i)(a < 0x38800000u), big = (osh_v8i)(a >= 0x477ff000u), nan = *x != *x;

    v8_set(&half, 0.5f);
    s = ((osh_v8f)a + half) - half;
    v8_select(&r, &tiny, &s, &r);
    s = (osh_v8f)inf;
    v8_select(&r, &big, &s, &r);
    r = (osh_v8f)((osh_v8u)r | sign);
    v8_select(x, &nan, x, &r);
}

OSH_VEC_FN void v8_round(osh_v8f *x, osh_dtype dt)
{
    if (dt == OSH_BF16) v8_round_bf16(x);
    if (dt == OSH_F16) v8_round_f16(x);
}
#endif
