/* ada_rows.c - implements the vector loops of AdaRound, AdaQuant and AutoRound on one row. */
#include "solver/cpu/ada_rows.h"

#include "base/isa.h"
#include "math/vec.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#endif

static bool ada_has_avx2(void) { return osh_isa_used() >= OSH_ISA_AVX2; }

/* ---- the grid ---- */

/* Sets `step` to the distance between neighbouring values of the grid near x. In a float grid this
 * distance depends on the binade of x. */
OSH_VEC_FN void v8_grid_step(osh_v8f *step, const osh_v8f *x, const osh_ada_row_step *t)
{
    osh_v8f least;
    osh_v8i below;
    v8_set(&least, t->least > 0 ? t->least : 1);
    *step = (osh_v8f)((osh_v8i)*x & 0x7f800000) * t->fraction;
    below = *step < least;
    v8_select(step, &below, &least, step);
}

/* Rounds x to the nearest value of a float grid, ties to even. x must be between lo and hi. Keeps
 * the sign if x becomes 0. The function adds 1.5 * 2^23 steps to x and subtracts them again. This
 * rounds x to a multiple of a step. */
OSH_VEC_FN void v8_grid_nearest(osh_v8f *x, const osh_ada_row_step *t)
{
    osh_v8f step, r;
    v8_grid_step(&step, x, t);
    step = step * 12582912.0f;
    r = (*x + step) - step;
    *x = (osh_v8f)((osh_v8i)r | ((osh_v8i)*x & INT32_MIN));
}

/* ---- AdaRound, one row ---- */

/* Sets m->soft to sigmoid(v) for n elements of a row. */
OSH_VEC_FN void sigmoid_body(const osh_ada_room *m, int64_t at, int64_t n)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f v;
        v8_load(&v, m->x + at + i);
        v = -v;
        v8_exp(&v);
        v = 1.0f / (1.0f + v);
        v8_store(m->soft + at + i, &v);
    }
}
OSH_AVX2 static void sigmoid_avx2(const osh_ada_room *m, int64_t at, int64_t n)
{
    sigmoid_body(m, at, n);
}
static void sigmoid_row(const osh_ada_room *m, int64_t at, int64_t n)
{
    if (ada_has_avx2()) sigmoid_avx2(m, at, n);
    else sigmoid_body(m, at, n);
}

/* Computes m->e for n elements of a row from m->soft. m->e becomes w^ if t->plain is 1, else w^ -
 * w. */
OSH_VEC_FN void soft_error_body(const osh_ada_room *m, int64_t at, int64_t n,
                                const osh_ada_row_step *t)
{
    osh_v8f zero, one, lo, hi;
    v8_set(&zero, 0), v8_set(&one, 1), v8_set(&lo, t->lo), v8_set(&hi, t->hi);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f h, base, s, z, w;
        osh_v8i out;
        v8_load(&h, m->soft + at + i), v8_load(&base, m->base + at + i), v8_load(&w, m->w + at + i);
        v8_load(&s, m->s + i), v8_load(&z, m->z + i);
        h = h * 1.2f - 0.1f;
        out = h < zero, v8_select(&h, &out, &zero, &h);
        out = h > one, v8_select(&h, &out, &one, &h);
        if (t->least > 0) {
            osh_v8f u = w / s, step;
            v8_grid_step(&step, &u, t);
            h = h * step;
        }
        h = base + h;
        out = h < lo, v8_select(&h, &out, &lo, &h);
        out = h > hi, v8_select(&h, &out, &hi, &h);
        h = (h - z) * s;
        h = h - w * (1 - t->plain);
        v8_store(m->e + at + i, &h);
    }
}
OSH_AVX2 static void soft_error_avx2(const osh_ada_room *m, int64_t at, int64_t n,
                                     const osh_ada_row_step *t)
{
    soft_error_body(m, at, n, t);
}
void osh_ada_soft_error(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t)
{
    sigmoid_row(m, at, n);
    if (ada_has_avx2()) soft_error_avx2(m, at, n, t);
    else soft_error_body(m, at, n, t);
}

/* Subtracts a step of Adam from x. g: the gradient. */
OSH_VEC_FN void v8_adam(osh_v8f *x, float *mean, float *square, const osh_v8f *g,
                        const osh_ada_row_step *t)
{
    osh_v8f a, b, root;
    v8_load(&a, mean), v8_load(&b, square);
    a = a * 0.9f + *g * 0.1f;
    b = b * 0.999f + *g * *g * 0.001f;
    v8_store(mean, &a), v8_store(square, &b);
    root = b;
    v8_root(&root);
    *x = *x - a * t->rate / (root * t->root_part + 1e-8f);
}

/* Does one step of AdaRound on a row. Returns the sum of 1 - |2 h - 1|^beta over the row, computed
 * before the step. */
OSH_VEC_FN double round_step_body(const osh_ada_room *m, int64_t at, int64_t n,
                                  const osh_ada_row_step *t)
{
    osh_v8f zero, one, lo, hi, least, sum;
    v8_set(&zero, 0), v8_set(&one, 1), v8_set(&lo, t->lo), v8_set(&hi, t->hi),
        v8_set(&least, 1e-30f);
    v8_set(&sum, 0);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f soft, h, base, s, g, v, q, slope, step = one;
        osh_v8i in, inside, up;
        v8_load(&soft, m->soft + at + i), v8_load(&base, m->base + at + i), v8_load(&s, m->s + i);
        v8_load(&g, m->grad + at + i), v8_load(&v, m->x + at + i);
        h = soft * 1.2f - 0.1f;
        inside = (h > zero) & (h < one);
        if (t->least > 0) {
            v8_load(&q, m->w + at + i);
            q = q / s;
            v8_grid_step(&step, &q, t);
        }
        q = base + h * step;
        in = (q >= lo) & (q <= hi);
        g = (osh_v8f)((osh_v8i)(g * t->by * s * step) & in);
        if (t->reg > 0) {
            osh_v8f a = h + h - 1.0f, power;
            up = a < zero;
            osh_v8f minus = -a;
            v8_select(&a, &up, &minus, &a);
            in = a > one, v8_select(&a, &in, &one, &a);
            in = a < least, v8_select(&power, &in, &least, &a);
            v8_log(&power);
            power = power * (t->beta - 1.0f);
            v8_exp(&power);
            sum = sum + (1.0f - power * a);
            slope = power * (-2.0f * t->beta * t->reg);
            minus = -slope;
            v8_select(&slope, &up, &minus, &slope);
            g = g + slope;
        }
        g = (osh_v8f)((osh_v8i)(g * (soft * (1.0f - soft) * 1.2f)) & inside);
        v8_adam(&v, m->mean + at + i, m->square + at + i, &g, t);
        v8_store(m->x + at + i, &v);
    }
    double all = 0;
    for (int i = 0; i < OSH_LANES; i++) all += sum[i];
    return all;
}
OSH_AVX2 static double round_step_avx2(const osh_ada_room *m, int64_t at, int64_t n,
                                       const osh_ada_row_step *t)
{
    return round_step_body(m, at, n, t);
}
double osh_ada_round_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t)
{
    return ada_has_avx2() ? round_step_avx2(m, at, n, t) : round_step_body(m, at, n, t);
}

/* ---- AdaQuant, one row ---- */

/* Computes q and u for eight weights. u is w / s. q is the code, as a value of the grid. Integer
 * codes are rounded and then clipped; float codes are clipped and then rounded.
 * at[0]: index of the first element of the row.
 * at[1]: index in the row of the first of the eight columns.
 * `in`: a lane has all bits set if its code was not clipped. */
OSH_VEC_FN void near_code(osh_v8f *q, osh_v8f *u, osh_v8i *in, const osh_ada_room *m,
                          const int64_t at[2], const osh_ada_row_step *t)
{
    osh_v8f lo, hi, far, x, s, z;
    osh_v8i out;
    v8_load(&x, (t->offset > 0 ? m->w : m->x) + at[0] + at[1]), v8_load(&s, m->s + at[1]),
        v8_load(&z, m->z + at[1]);
    v8_set(&lo, t->lo), v8_set(&hi, t->hi), v8_set(&far, 4096);
    *u = x / s;
    *q = *u;
    if (t->offset > 0) v8_load(&x, m->x + at[0] + at[1]), *q = *q + x;
    if (t->least > 0) {
        *in = (*q >= lo) & (*q <= hi);
        out = *q < lo, v8_select(q, &out, &lo, q);
        out = *q > hi, v8_select(q, &out, &hi, q);
        v8_grid_nearest(q, t);
        return;
    }
    out = *q > far, v8_select(q, &out, &far, q);
    far = -far;
    out = *q < far, v8_select(q, &out, &far, q);
    v8_nearest(q);
    *q = *q + z;
    *in = (*q >= lo) & (*q <= hi);
    out = *q < lo, v8_select(q, &out, &lo, q);
    out = *q > hi, v8_select(q, &out, &hi, q);
}

#if defined(__x86_64__)
static bool ada_has_avx512(void) { return osh_isa_used() >= OSH_ISA_AVX512; }

/* Does the work of v8_grid_nearest for 16 values. */
AVX512 static inline __m512 grid_nearest_16(__m512 x, const osh_ada_row_step *t)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512 power = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0x7f800000)));
    __m512 step = _mm512_mul_ps(power, _mm512_set1_ps(t->fraction));
    step = _mm512_max_ps(_mm512_set1_ps(t->least), step);
    step = _mm512_mul_ps(step, _mm512_set1_ps(12582912.0f));
    __m512i r = _mm512_castps_si512(_mm512_sub_ps(_mm512_add_ps(x, step), step));
    return _mm512_castsi512_ps(
        _mm512_or_si512(r, _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN))));
}

/* Does the work of near_code for 16 weights. Returns the mask of the codes that were not clipped.
 * The code of a NaN is NaN.
 * there: mask of the lanes that contain a column of the row. All other lanes are after the end of
 * the row. */
AVX512 static inline __mmask16 near_code_16(__m512 *q, __m512 *u, const osh_ada_room *m,
                                            const int64_t at[2], __mmask16 there,
                                            const osh_ada_row_step *t)
{
    const __m512 lo = _mm512_set1_ps(t->lo), hi = _mm512_set1_ps(t->hi),
                 magic = _mm512_set1_ps(12582912.0f);
    bool offset = t->offset > 0;
    __mmask16 in;
    __m512 x = _mm512_maskz_loadu_ps(there, (offset ? m->w : m->x) + at[0] + at[1]);
    *u = _mm512_div_ps(x, _mm512_mask_loadu_ps(_mm512_set1_ps(1), there, m->s + at[1]));
    *q = offset ? _mm512_add_ps(*u, _mm512_maskz_loadu_ps(there, m->x + at[0] + at[1])) : *u;
    if (t->least > 0) {
        in = _mm512_cmp_ps_mask(*q, lo, _CMP_GE_OQ) & _mm512_cmp_ps_mask(*q, hi, _CMP_LE_OQ);
        *q = grid_nearest_16(_mm512_min_ps(hi, _mm512_max_ps(lo, *q)), t);
        return in;
    }
    *q = _mm512_max_ps(_mm512_set1_ps(-4096), _mm512_min_ps(_mm512_set1_ps(4096), *q));
    /* Adding and subtracting `magic` rounds to whole numbers, as v8_nearest does. */
    *q = _mm512_sub_ps(_mm512_add_ps(*q, magic), magic);
    *q = _mm512_add_ps(*q, _mm512_maskz_loadu_ps(there, m->z + at[1]));
    in = _mm512_cmp_ps_mask(*q, lo, _CMP_GE_OQ) & _mm512_cmp_ps_mask(*q, hi, _CMP_LE_OQ);
    *q = _mm512_min_ps(hi, _mm512_max_ps(lo, *q));
    return in;
}

AVX512 static void near_error_avx512(const osh_ada_room *m, int64_t at, int64_t n,
                                     const osh_ada_row_step *t)
{
    const __m512 less = _mm512_set1_ps(1 - t->plain);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 there = n - i < 16 ? 0xff : 0xffff;
        __m512 q, u, w = _mm512_maskz_loadu_ps(there, m->w + at + i);
        near_code_16(&q, &u, m, (int64_t[]){at, i}, there, t);
        q = _mm512_sub_ps(q, _mm512_maskz_loadu_ps(there, m->z + i));
        q = _mm512_mul_ps(q, _mm512_maskz_loadu_ps(there, m->s + i));
        _mm512_mask_storeu_ps(m->e + at + i, there, _mm512_sub_ps(q, _mm512_mul_ps(w, less)));
    }
}

AVX512 static void sign_step_avx512(const osh_ada_room *m, int64_t at, int64_t n,
                                    const osh_ada_row_step *t)
{
    const __m512 rate = _mm512_set1_ps(t->rate), half = _mm512_set1_ps(0.5f),
                 zero = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 there = n - i < 16 ? 0xff : 0xffff;
        __m512 q, u, v = _mm512_maskz_loadu_ps(there, m->x + at + i);
        __m512 g =
            _mm512_mul_ps(_mm512_maskz_loadu_ps(there, m->grad + at + i), _mm512_set1_ps(t->by));
        __mmask16 in = near_code_16(&q, &u, m, (int64_t[]){at, i}, there, t);
        __m512 whole = _mm512_sub_ps(q, _mm512_maskz_loadu_ps(there, m->z + i));
        __m512 slope = _mm512_mask_sub_ps(whole, in, whole, u);
        _mm512_mask_storeu_ps(m->soft + at + i, there, _mm512_mul_ps(slope, g));
        if (t->has_zero) {
            __m512 s = _mm512_maskz_loadu_ps(there, m->s + i),
                   dz = _mm512_mul_ps(g, _mm512_sub_ps(zero, s));
            _mm512_mask_storeu_ps(m->e + at + i, there, _mm512_mask_mov_ps(dz, in, zero));
        }
        g = _mm512_castsi512_ps(_mm512_xor_si512(
            _mm512_castps_si512(g),
            _mm512_and_si512(_mm512_castps_si512(_mm512_maskz_loadu_ps(there, m->s + i)),
                             _mm512_set1_epi32(INT32_MIN))));
        __mmask16 above = _mm512_mask_cmp_ps_mask(in, g, zero, _CMP_GT_OQ);
        __mmask16 below = _mm512_mask_cmp_ps_mask(in, g, zero, _CMP_LT_OQ);
        v = _mm512_sub_ps(v, _mm512_maskz_mov_ps(above, rate));
        v = _mm512_add_ps(v, _mm512_maskz_mov_ps(below, rate));
        v = _mm512_max_ps(_mm512_sub_ps(zero, half), _mm512_min_ps(half, v));
        _mm512_mask_storeu_ps(m->x + at + i, there, v);
    }
}
#else
static bool ada_has_avx512(void) { return false; }
#define near_error_avx512 near_error_body
#define sign_step_avx512 sign_step_body
#endif

OSH_VEC_FN void near_error_body(const osh_ada_room *m, int64_t at, int64_t n,
                                const osh_ada_row_step *t)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f s, z, q, u, w;
        osh_v8i in;
        v8_load(&s, m->s + i), v8_load(&z, m->z + i), v8_load(&w, m->w + at + i);
        near_code(&q, &u, &in, m, (int64_t[]){at, i}, t);
        q = (q - z) * s;
        q = q - w * (1 - t->plain);
        v8_store(m->e + at + i, &q);
    }
}
OSH_AVX2 static void near_error_avx2(const osh_ada_room *m, int64_t at, int64_t n,
                                     const osh_ada_row_step *t)
{
    near_error_body(m, at, n, t);
}
void osh_ada_near_error(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t)
{
    if (ada_has_avx512()) near_error_avx512(m, at, n, t);
    else if (ada_has_avx2()) near_error_avx2(m, at, n, t);
    else near_error_body(m, at, n, t);
}

/* Sets `to` to dloss / ds of each element: g (round(u) - u), or g (q - z) if the code was clipped.
 * g is dloss / dw^. q, u and `in` are results of near_code. */
OSH_VEC_FN void store_scale_slope(float *to, const osh_v8f *q, const osh_v8f *u, const osh_v8f *z,
                                  const osh_v8i *in, const osh_v8f *g)
{
    osh_v8f whole = *q - *z, part = whole - *u, slope;
    v8_select(&slope, in, &part, &whole);
    slope = slope * *g;
    v8_store(to, &slope);
}

/* Does one step of AdaQuant on the weights of a row. Sets m->grad to dloss / ds of each element,
 * computed before the step. */
OSH_VEC_FN void quant_step_body(const osh_ada_room *m, int64_t at, int64_t n,
                                const osh_ada_row_step *t)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f x, z, q, u, g, dx;
        osh_v8i in;
        v8_load(&x, m->x + at + i), v8_load(&z, m->z + i), v8_load(&g, m->grad + at + i);
        near_code(&q, &u, &in, m, (int64_t[]){at, i}, t);
        g = g * t->by;
        dx = (osh_v8f)((osh_v8i)g & in);
        store_scale_slope(m->grad + at + i, &q, &u, &z, &in, &g);
        v8_adam(&x, m->mean + at + i, m->square + at + i, &dx, t);
        v8_store(m->x + at + i, &x);
    }
}
OSH_AVX2 static void quant_step_avx2(const osh_ada_room *m, int64_t at, int64_t n,
                                     const osh_ada_row_step *t)
{
    quant_step_body(m, at, n, t);
}
void osh_ada_quant_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t)
{
    if (ada_has_avx2()) quant_step_avx2(m, at, n, t);
    else quant_step_body(m, at, n, t);
}

/* ---- AutoRound, one row ---- */

/* Does one step of AutoRound on the offsets v of a row. Sets m->soft to dloss / ds of each element.
 * If t->has_zero is true, sets m->e to dloss / dz of each element. */
OSH_VEC_FN void sign_step_body(const osh_ada_room *m, int64_t at, int64_t n,
                               const osh_ada_row_step *t)
{
    osh_v8f zero, half;
    v8_set(&zero, 0), v8_set(&half, 0.5f);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f v, s, z, q, u, g, ds, dz, low = -half;
        osh_v8i in, out;
        v8_load(&v, m->x + at + i), v8_load(&s, m->s + i), v8_load(&z, m->z + i),
            v8_load(&g, m->grad + at + i);
        near_code(&q, &u, &in, m, (int64_t[]){at, i}, t);
        g = g * t->by;
        dz = (osh_v8f)(~in & (osh_v8i)(-g * s));
        store_scale_slope(m->soft + at + i, &q, &u, &z, &in, &g);
        if (t->has_zero) v8_store(m->e + at + i, &dz);
        /* a negative scale reverses the sign of the gradient */
        g = (osh_v8f)(((osh_v8i)g ^ ((osh_v8i)s & INT32_MIN)) & in);
        out = g > zero, ds = (osh_v8f)(out & (osh_v8i)(zero + t->rate));
        out = g < zero, dz = (osh_v8f)(out & (osh_v8i)(zero + t->rate));
        v = v - ds + dz;
        out = v > half, v8_select(&v, &out, &half, &v);
        out = v < low, v8_select(&v, &out, &low, &v);
        v8_store(m->x + at + i, &v);
    }
}
OSH_AVX2 static void sign_step_avx2(const osh_ada_room *m, int64_t at, int64_t n,
                                    const osh_ada_row_step *t)
{
    sign_step_body(m, at, n, t);
}
void osh_ada_sign_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t)
{
    if (ada_has_avx512()) sign_step_avx512(m, at, n, t);
    else if (ada_has_avx2()) sign_step_avx2(m, at, n, t);
    else sign_step_body(m, at, n, t);
}
