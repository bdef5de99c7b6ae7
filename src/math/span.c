/* span.c - implements vector loops over one row (span) of values. Each loop has one function body,
 * which is compiled twice: for the lowest instruction set of the build, and for AVX2. */
#include "math/span.h"
#include "base/elementary.h"
#include "base/isa.h"
#include "math/span512.h"
#include "math/vec.h"
#include "tensor/scalar.h"

#include <math.h>

static bool has_avx2(void) { return osh_isa_used() >= OSH_ISA_AVX2; }

OSH_VEC_FN void round_body(float *x, int64_t n, osh_dtype dt)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f v;
        v8_load(&v, x + i);
        v8_round(&v, dt);
        v8_store(x + i, &v);
    }
}
OSH_AVX2 static void round_avx2(float *x, int64_t n, osh_dtype dt) { round_body(x, n, dt); }
void osh_span_round(float *x, int64_t n, osh_dtype dt)
{
    if (dt == OSH_F32) return;
    if (has_avx2()) round_avx2(x, n, dt);
    else round_body(x, n, dt);
}

OSH_VEC_FN void span_add_body(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f a, b;
        v8_load(&a, x + i);
        v8_load(&b, y + i);
        a = a + b;
        v8_store(x + i, &a);
    }
}
OSH_AVX2 static void span_add_avx2(float *x, const float *y, int64_t n) { span_add_body(x, y, n); }
void osh_span_add(float *x, const float *y, int64_t n)
{
    if (has_avx2()) span_add_avx2(x, y, n);
    else span_add_body(x, y, n);
}

/* Computes the glu with silu or with the tanh form of gelu. This gelu is x/2 (1 + tanh u) = x / (1
 * + e^(-2u)). So both activations have the form x / (1 + e^v). */
OSH_VEC_FN void glu_body(float *gate, const float *up, int64_t n, osh_act_kind act, osh_dtype dt)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f x, u, e;
        v8_load(&x, gate + i);
        v8_load(&u, up + i);
        if (act == OSH_ACT_GELU_TANH) e = (x + x * x * x * 0.044715f) * -1.59576912160573071176f;
        else e = -x;
        v8_exp(&e);
        x = x / (e + 1.0f);
        v8_round(&x, dt);
        x = x * u;
        v8_store(gate + i, &x);
    }
}
OSH_AVX2 static void glu_avx2(float *gate, const float *up, int64_t n, osh_act_kind act,
                              osh_dtype dt)
{
    glu_body(gate, up, n, act, dt);
}
void osh_span_glu(float *gate, const float *up, int64_t n, osh_act_kind act, osh_dtype dt)
{
    // computes 1 + erf u of the exact gelu as erfc(-u), because erfc is accurate for very negative
    // u
    if (act == OSH_ACT_GELU) {
        for (int64_t i = 0; i < n; i++) {
            double x = gate[i];
            gate[i] =
                osh_round_to((float)(x / 2 * osh_math_erfc(x * -0.70710678118654752440)), dt) *
                up[i];
        }
    } else if (osh_span512_takes(dt)) {
        osh_span512_glu(gate, up, n, act);
    } else if (has_avx2()) {
        glu_avx2(gate, up, n, act, dt);
    } else {
        glu_body(gate, up, n, act, dt);
    }
}

OSH_VEC_FN void rms_norm_body(float *x, const float *w, int64_t n, int64_t n_real, float eps,
                              osh_dtype dt)
{
    osh_v8f sum, v, g;

    v8_set(&sum, 0);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, x + i);
        sum = sum + v * v;
    }
    float r = 1.0f / sqrtf(v8_sum(&sum) / (float)n_real + eps);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, x + i);
        v8_load(&g, w + i);
        v = v * r;
        v8_round(&v, dt);
        v = v * g;
        v8_store(x + i, &v);
    }
}
OSH_AVX2 static void rms_norm_avx2(float *x, const float *w, int64_t n, int64_t n_real, float eps,
                                   osh_dtype dt)
{
    rms_norm_body(x, w, n, n_real, eps, dt);
}
void osh_span_rms_norm(float *x, const float *w, int64_t n, int64_t n_real, float eps, osh_dtype dt)
{
    if (osh_span512_takes(dt)) osh_span512_rms_norm(x, w, n, n_real, eps);
    else if (has_avx2()) rms_norm_avx2(x, w, n, n_real, eps, dt);
    else rms_norm_body(x, w, n, n_real, eps, dt);
}

/* Rounds like v8_round, but needs fewer instructions for BF16. If x is NaN, its low 16 bits must be
 * zeros, as in a NaN that was widened from BF16. */
OSH_VEC_FN void round_sum(osh_v8f *x, osh_dtype dt)
{
    osh_v8u u = (osh_v8u)*x;
    if (dt == OSH_BF16) *x = (osh_v8f)((u + 0x7fffu + ((u >> 16) & 1)) & 0xffff0000u);
    else v8_round(x, dt);
}

OSH_VEC_FN void softmax_body(float *s, int64_t n, float scale, osh_dtype dt)
{
    osh_v8f v, m, sum;
    osh_v8i greater;

    v8_set(&m, -INFINITY);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, s + i);
        v = v * scale;
        v8_store(s + i, &v);
        greater = v > m;
        v8_select(&m, &greater, &v, &m);
    }
    float max = v8_max(&m);
    v8_set(&sum, 0);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, s + i);
        v = v - max;
        v8_exp_below(&v);
        sum = sum + v;
        v8_store(s + i, &v);
    }
    float total = v8_sum(&sum);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, s + i);
        v = v / total;
        round_sum(&v, dt);
        v8_store(s + i, &v);
    }
}
/* Calls softmax_body with BF16 as a compile-time constant, so that the compiler moves constants out
 * of the loops. */
OSH_VEC_FN void softmax_any(float *s, int64_t n, float scale, osh_dtype dt)
{
    if (dt == OSH_BF16) softmax_body(s, n, scale, OSH_BF16);
    else softmax_body(s, n, scale, dt);
}
OSH_AVX2 static void softmax_avx2(float *s, int64_t n, float scale, osh_dtype dt)
{
    softmax_any(s, n, scale, dt);
}
void osh_span_softmax(float *s, int64_t n, float scale, osh_dtype dt)
{
    if (osh_span512_takes(dt == OSH_F32 ? OSH_BF16 : dt)) osh_span512_softmax(s, n, scale, dt);
    else if (has_avx2()) softmax_avx2(s, n, scale, dt);
    else softmax_any(s, n, scale, dt);
}

OSH_VEC_FN void softcap_body(float *s, int64_t n, float scale, float c, osh_dtype dt)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f v;
        v8_load(&v, s + i);
        v8_round(&v, dt);
        v = v * scale;
        v8_round(&v, dt);
        v = v / c;
        v8_round(&v, dt);
        v8_tanh(&v);
        v8_round(&v, dt);
        v = v * c;
        v8_round(&v, dt);
        v8_store(s + i, &v);
    }
}
OSH_AVX2 static void softcap_avx2(float *s, int64_t n, float scale, float c, osh_dtype dt)
{
    softcap_body(s, n, scale, c, dt);
}
void osh_span_softcap(float *s, int64_t n, float scale, float c, osh_dtype dt)
{
    if (has_avx2()) softcap_avx2(s, n, scale, c, dt);
    else softcap_body(s, n, scale, c, dt);
}

OSH_VEC_FN void layer_norm_body(float *x, const float *w, const float *b, int64_t n, int64_t n_real,
                                float eps)
{
    osh_v8f sum, v, g, h;

    v8_set(&sum, 0);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, x + i);
        sum = sum + v;
    }
    float mean = v8_sum(&sum) / (float)n_real;
    v8_set(&sum, 0);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, x + i);
        v = v - mean;
        v8_store(x + i, &v);
        for (int64_t k = n_real; k < i + OSH_LANES; k++)
            /* Sets the padding of the row to 0, so that it does not change the variance. */
            if (k >= i) x[k] = 0;
        v8_load(&v, x + i);
        sum = sum + v * v;
    }
    float r = 1.0f / sqrtf(v8_sum(&sum) / (float)n_real + eps);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, x + i);
        v8_load(&g, w + i);
        v8_load(&h, b + i);
        v = v * r * g + h;
        v8_store(x + i, &v);
    }
}
OSH_AVX2 static void layer_norm_avx2(float *x, const float *w, const float *b, int64_t n,
                                     int64_t n_real, float eps)
{
    layer_norm_body(x, w, b, n, n_real, eps);
}
void osh_span_layer_norm(float *x, const float *w, const float *b, int64_t n, int64_t n_real,
                         float eps)
{
    if (has_avx2()) layer_norm_avx2(x, w, b, n, n_real, eps);
    else layer_norm_body(x, w, b, n, n_real, eps);
}

OSH_VEC_FN void rotate_8(osh_v8f *a, osh_v8f *b, const osh_v8f *c, const osh_v8f *s, osh_dtype dt)
{
    osh_v8f ac = *a * *c, bs = -*b * *s, bc = *b * *c, as = *a * *s;
    v8_round(&ac, dt);
    v8_round(&bs, dt);
    v8_round(&bc, dt);
    v8_round(&as, dt);
    *a = ac + bs;
    *b = bc + as;
}
OSH_VEC_FN void rotate_body(float *lo, float *hi, const float *c, const float *s, int64_t half,
                            osh_dtype dt)
{
    for (int64_t i = 0; i < half; i += OSH_LANES) {
        size_t bytes = (size_t)osh_min64(OSH_LANES, half - i) * sizeof(float);
        osh_v8f a = {0}, b = {0}, vc = {0}, vs = {0};
        if (bytes == sizeof a) { // memcpy of a constant size is compiled to one load
            v8_load(&a, lo + i), v8_load(&b, hi + i), v8_load(&vc, c + i), v8_load(&vs, s + i);
            rotate_8(&a, &b, &vc, &vs, dt);
            v8_store(lo + i, &a), v8_store(hi + i, &b);
        } else {
            memcpy(&a, lo + i, bytes), memcpy(&b, hi + i, bytes), memcpy(&vc, c + i, bytes),
                memcpy(&vs, s + i, bytes);
            rotate_8(&a, &b, &vc, &vs, dt);
            memcpy(lo + i, &a, bytes), memcpy(hi + i, &b, bytes);
        }
    }
}
OSH_AVX2 static void rotate_avx2(float *lo, float *hi, const float *c, const float *s, int64_t half,
                                 osh_dtype dt)
{
    rotate_body(lo, hi, c, s, half, dt);
}
void osh_span_rotate(float *lo, float *hi, const float *c, const float *s, int64_t half,
                     osh_dtype dt)
{
    if (has_avx2()) rotate_avx2(lo, hi, c, s, half, dt);
    else rotate_body(lo, hi, c, s, half, dt);
}

OSH_VEC_FN void max_body(float *out, const float *x, int64_t n)
{
    osh_v8f v, m;
    osh_v8i greater;

    v8_set(&m, -INFINITY);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, x + i);
        greater = v > m;
        v8_select(&m, &greater, &v, &m);
    }
    *out = v8_max(&m);
}
OSH_AVX2 static void max_avx2(float *out, const float *x, int64_t n) { max_body(out, x, n); }
float osh_span_max(const float *x, int64_t n)
{
    float m;
    if (has_avx2()) max_avx2(&m, x, n);
    else max_body(&m, x, n);
    return m;
}

OSH_VEC_FN void sum_exp_body(float *out, const float *x, int64_t n, float max)
{
    osh_v8f v, sum;

    v8_set(&sum, 0);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, x + i);
        v = v - max;
        v8_exp_below(&v);
        sum = sum + v;
    }
    *out = v8_sum(&sum);
}
OSH_AVX2 static void sum_exp_avx2(float *out, const float *x, int64_t n, float max)
{
    sum_exp_body(out, x, n, max);
}
float osh_span_sum_exp(const float *x, int64_t n, float max)
{
    float s;
    if (has_avx2()) sum_exp_avx2(&s, x, n, max);
    else sum_exp_body(&s, x, n, max);
    return s;
}

OSH_VEC_FN void sum_exp_diff_body(float *out, const float *r, const float *x, int64_t n, float max)
{
    osh_v8f v, d, sum;

    v8_set(&sum, 0);
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        v8_load(&v, r + i);
        v8_load(&d, x + i);
        d = v - d;
        v = v - max;
        v8_exp_below(&v);
        sum = sum + v * d;
    }
    *out = v8_sum(&sum);
}
OSH_AVX2 static void sum_exp_diff_avx2(float *out, const float *r, const float *x, int64_t n,
                                       float max)
{
    sum_exp_diff_body(out, r, x, n, max);
}
float osh_span_sum_exp_diff(const float *r, const float *x, int64_t n, float max)
{
    float s;
    if (has_avx2()) sum_exp_diff_avx2(&s, r, x, n, max);
    else sum_exp_diff_body(&s, r, x, n, max);
    return s;
}

OSH_VEC_FN void sincos_body(float *s, float *c, const double *angle, int64_t n)
{
    for (int64_t i = 0; i < n; i += OSH_LANES_D) {
        osh_v4d x, vs, vc;
        memcpy(&x, angle + i, sizeof x);
        v4_sincos(&vs, &vc, &x);
        for (int k = 0; k < OSH_LANES_D; k++) s[i + k] = (float)vs[k], c[i + k] = (float)vc[k];
    }
}
OSH_AVX2 static void sincos_avx2(float *s, float *c, const double *angle, int64_t n)
{
    sincos_body(s, c, angle, n);
}
void osh_span_sincos(float *s, float *c, const double *angle, int64_t n)
{
    if (has_avx2()) sincos_avx2(s, c, angle, n);
    else sincos_body(s, c, angle, n);
}
