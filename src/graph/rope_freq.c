/* rope_freq.c - computes inverse frequencies f[i] as modeling_rope_utils.py of transformers does.
 *
 *   default   f[i] = 1 / theta^(2i / dim)
 *   linear    f[i] is divided by factor
 *   llama3    f[i] is divided by factor for long waves and unchanged for short waves. For waves in
 *             between, f[i] becomes a mean of f[i] / factor and f[i]
 *   dynamic   f[i] is unchanged for short samples. For longer samples the op raises theta
 *   yarn      f[i] becomes a mean of f[i] / factor and f[i], whose weights depend on i. cos and sin
 *             are scaled
 *   longrope  f[i] is divided by short_factor[i], or by long_factor[i] for long samples. cos and
 *             sin are scaled
 *   alpha     theta is multiplied by alpha^(dim / (dim - 2)) (Hunyuan's dynamic)
 *
 * Like torch, this file computes in f32 and rounds after each step. Only theta^x is computed in
 * double and rounded once; it differs from torch's result by at most 1 ulp. */
#include "graph/rope_freq.h"
#include "base/elementary.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* sets p[i] to theta^(2i / dim), rounded to f32 */
static void rope_powers(float *p, double theta, int64_t dim)
{
    for (int64_t i = 0; i < dim / 2; i++)
        p[i] = (float)osh_math_pow((double)(float)theta, (double)((float)(2 * i) / (float)dim));
}

static void fill_llama3(float *f, const float *p, int64_t n, const osh_rope *r, double original)
{
    float factor = (float)r->factor, low = (float)r->low_freq_factor;
    float old = (float)original, span = (float)(r->high_freq_factor - r->low_freq_factor);
    float low_wave = (float)(original / r->low_freq_factor),
          high_wave = (float)(original / r->high_freq_factor);
    for (int64_t i = 0; i < n; i++) {
        float inv = 1.0f / p[i];
        /* torch divides a scalar by a tensor as scalar * (1 / tensor) */
        float wave = (1.0f / inv) * (float)(2 * pi);
        float x = wave > low_wave ? inv / factor : inv;
        if (!(wave < high_wave) && !(wave > low_wave)) {
            float smooth = ((1.0f / wave) * old - low) / span;
            float a = (1.0f - smooth) * x / factor, b = smooth * x;
            x = a + b;
        }
        f[i] = x;
    }
}

static double yarn_mscale(double scale, double mscale)
{
    return scale <= 1 ? 1.0 : 0.1 * mscale * osh_math_log(scale) + 1.0;
}

/* Returns the index (a real number) of the dimension whose angle makes n full turns within
 * `positions` tokens. */
static double yarn_dim(double n, int64_t dim, double theta, double positions)
{
    return (double)dim * osh_math_log(positions / (n * 2 * pi)) / (2 * osh_math_log(theta));
}

static void fill_yarn(osh_rope_attr *attr, const float *p, const osh_rope *r, double original,
                      double max_positions)
{
    int64_t dim = attr->rotary_dim;
    double factor = r->factor > 0 ? r->factor : max_positions / original;
    double low = yarn_dim(r->beta_fast > 0 ? r->beta_fast : 32, dim, r->theta, original);
    double high = yarn_dim(r->beta_slow > 0 ? r->beta_slow : 1, dim, r->theta, original);
    if (r->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, (double)(dim - 1));
    if (low == high) high += 0.001;

    if (r->attention_factor >= 0)
        attr->attention_scaling = r->attention_factor;
    else if (r->mscale != 0 && r->mscale_all_dim != 0)
        attr->attention_scaling =
            yarn_mscale(factor, r->mscale) / yarn_mscale(factor, r->mscale_all_dim);
    else
        attr->attention_scaling = yarn_mscale(factor, 1);

    for (int64_t i = 0; i < dim / 2; i++) {
        float whole = 1.0f / p[i], stretched = 1.0f / ((float)factor * p[i]);
        float ramp = fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0.0f), 1.0f);
        float keep = 1.0f - ramp;
        float a = stretched * (1.0f - keep), b = whole * keep;
        attr->inv_freq[i] = a + b;
    }
}

double osh_rope_mscale(const osh_rope *r)
{
    return r->type == OSH_ROPE_DEFAULT || r->mscale_all_dim == 0
               ? 1
               : yarn_mscale(r->factor, r->mscale_all_dim);
}

static osh_status rope_check(osh_ctx *cx, const osh_rope *r, int64_t head_dim, double original,
                        const char *path)
{
    if (head_dim < 2 || head_dim % 2 || head_dim / 2 > OSH_ROPE_MAX_FREQS)
        return osh_fail(cx, OSH_E_UNSUPPORTED, "%s: %s is %lld, want an even number up to %d", path,
                        r->partial_rotary_factor == 1 ? "head_dim"
                                                      : "head_dim times partial_rotary_factor",
                        (long long)head_dim, 2 * OSH_ROPE_MAX_FREQS);
    if (!(r->theta > 1))
        return osh_fail(cx, OSH_E_FORMAT, "%s: rope_theta is %g, want more than 1", path, r->theta);
    if (r->type != OSH_ROPE_DEFAULT && !(r->factor > 0) && r->type != OSH_ROPE_YARN)
        return osh_fail(cx, OSH_E_FORMAT, "%s: the rope factor is %g, want a positive number", path,
                        r->factor);
    if (!(original > 0))
        return osh_fail(cx, OSH_E_FORMAT, "%s: original_max_position_embeddings is not positive",
                        path);
    if ((r->type == OSH_ROPE_DYNAMIC || r->alpha > 0) && head_dim == 2)
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "%s: rope type dynamic needs a head_dim of more than 2", path);
    int64_t factors = r->type == OSH_ROPE_LONGROPE ? cJSON_GetArraySize(r->short_factor) : 0;
    if (factors && (factors != head_dim / 2 || cJSON_GetArraySize(r->long_factor) != factors))
        return osh_fail(
            cx, OSH_E_FORMAT, "%s: short_factor has %lld numbers, long_factor %d, want %lld", path,
            (long long)factors, cJSON_GetArraySize(r->long_factor), (long long)head_dim / 2);
    if (r->type == OSH_ROPE_LLAMA3 &&
        !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
        return osh_fail(
            cx, OSH_E_FORMAT,
            "%s: rope type llama3 wants 0 < low_freq_factor < high_freq_factor, found %g and %g",
            path, r->low_freq_factor, r->high_freq_factor);
    return OSH_OK;
}

/* Sets f[i] = 1 / (factors[i] p[i]) for all factors. */
static void divide_by_factors(float *f, const float *p, const cJSON *factors)
{
    const cJSON *v;
    cJSON_ArrayForEach(v, factors)
    {
        *f++ = 1.0f / ((float)v->valuedouble * *p);
        p++;
    }
}

static void fill_longrope(osh_rope_attr *attr, const float *p, const osh_rope *r, double original)
{
    attr->long_from = (int64_t)original;
    divide_by_factors(attr->inv_freq, p, r->short_factor);
    divide_by_factors(attr->long_freq, p, r->long_factor);
    attr->attention_scaling =
        r->factor <= 1 ? 1 : sqrt(1 + osh_math_log(r->factor) / osh_math_log(original));
    if (r->attention_factor >= 0) attr->attention_scaling = r->attention_factor;
}

osh_status osh_rope_attr_fill(osh_ctx *cx, osh_rope_attr *attr, const osh_rope *rope,
                              int64_t head_dim, int64_t max_positions, const char *path)
{
    double original =
        (double)(rope->original_max_position_embeddings ? rope->original_max_position_embeddings
                                                        : max_positions);
    double theta = rope->theta;
    int64_t rotary_dim = (int64_t)((double)head_dim * rope->partial_rotary_factor),
            turned = rotary_dim / 2;
    /* The type "proportional" pairs an element of the first half of the head with one of the second
     * half, and does not rotate the last pairs. */
    if (rope->type == OSH_ROPE_PROPORTIONAL) rotary_dim = head_dim;
    float p[OSH_ROPE_MAX_FREQS];
    osh_status rc = rope_check(cx, rope, rotary_dim, original, path);
    if (rc) return rc;
    if (rope->alpha > 0)
        theta *= osh_math_pow(rope->alpha, (double)head_dim / (double)(head_dim - 2));

    *attr = (osh_rope_attr){.head_dim = head_dim,
                            .rotary_dim = rotary_dim,
                            .attention_scaling = 1,
                            .theta = theta,
                            .factor = rope->factor,
                            .max_pos = max_positions};
    attr->dynamic = rope->type == OSH_ROPE_DYNAMIC;
    rope_powers(p, theta, rotary_dim);
    if (rope->type == OSH_ROPE_LLAMA3)
        fill_llama3(attr->inv_freq, p, rotary_dim / 2, rope, original);
    else if (rope->type == OSH_ROPE_YARN)
        fill_yarn(attr, p, rope, original, (double)max_positions);
    else if (rope->type == OSH_ROPE_LONGROPE)
        fill_longrope(attr, p, rope, original);
    else
        for (int64_t i = 0; i < rotary_dim / 2; i++) {
            float inv = i < turned ? 1.0f / p[i] : 0;
            bool divided = rope->type == OSH_ROPE_LINEAR || rope->type == OSH_ROPE_PROPORTIONAL;
            attr->inv_freq[i] = divided ? inv / (float)rope->factor : inv;
        }
    return OSH_OK;
}
