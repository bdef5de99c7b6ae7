/* tune.c - does a step of Adam on a quantized weight.
 *
 *   q = round(clamp(v, lo, hi))
 *   s = rnd(s0 (1 + d))
 *   w = rnd((q - z) s)
 *
 * rnd rounds to the dtype of the scales. Gradients ignore roundings: with g = dL/dw
 *
 *   dL/dv = g s if lo <= v <= hi, else 0
 *   dL/dd = s0 * sum of g (q - z) over the scale's columns
 *
 * The weight of a norm is w = rnd((w0 + offset) (1 + d) - offset), with dL/dd = g (w0 + offset).
 * Step n = 1, 2, 3, ...:
 *
 *   mean   = 0.9 mean + 0.1 g
 *   square = 0.95 square + 0.05 g^2
 *   x     -= rate (mean / (1 - 0.9^n)) / (sqrt(square / (1 - 0.95^n)) + 1e-12)
 *
 * Everything is f32 in plain loops: a step needs only about 20 floating-point operations per
 * weight, while the forward and backward passes need 12 per weight and token. Each row is computed
 * by one thread, so the bytes do not depend on the number of threads. */
#include "solver/tune.h"

#include "base/elementary.h"
#include "ops/kernel.h"

#include <math.h>

enum { CHUNK = 1 << 16 }; // number of elements that a thread processes at a time

typedef struct adam {
    float mean_part, square_part; // 1 - 0.9^n and 1 - 0.95^n, for step number n
} adam;

static adam tune_adam_at(const osh_tune_step *s)
{
    double n = (double)s->n;
    return (adam){(float)(1 - osh_math_pow(0.9, n)), (float)(1 - osh_math_pow(0.95, n))};
}

/* Updates Adam's moving averages with the gradient g. Returns the change of the optimized number
 * for a learning rate of 1. */
static float tune_adam_move(const adam *a, float *mean, float *square, float g)
{
    *mean = 0.9f * *mean + 0.1f * g;
    *square = 0.95f * *square + 0.05f * g * g;
    return *mean / a->mean_part / (sqrtf(*square / a->square_part) + 1e-12f);
}

static float tune_clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

int8_t osh_tune_code(const osh_tune_codes *c, int64_t at)
{
    return (int8_t)nearbyintf(tune_clamp(c->v[at], c->lo, c->hi));
}

float osh_tune_scale(const osh_tune_codes *c, int64_t at)
{
    return osh_round_to(c->s0[at] * (1 + c->d[at]), c->w->dtype);
}

typedef struct codes_job {
    const osh_tune_codes *c;
    const osh_tune_step *step; // parameters of the step; NULL: no step is done
    adam adam;
    float *room; // own: scratch, [threads, I]
} codes_job;

/* Does a step of Adam on codes [at, at + n), and then a step on scale k, which these codes
 * share. */
static void tune_group_move(const codes_job *j, int64_t k, int64_t at, int64_t n)
{
    const osh_tune_codes *c = j->c;
    float s = osh_tune_scale(c, k), z = c->zero ? c->zero[k] : 0;
    double sum = 0;
    for (int64_t i = at; i < at + n; i++) {
        float g = c->grad[i], v = c->v[i];
        sum += (double)g * (osh_tune_code(c, i) - z);
        g = v >= c->lo && v <= c->hi ? g * s : 0;
        c->v[i] = v - j->step->code_rate * tune_adam_move(&j->adam, &c->mean[i], &c->square[i], g);
        c->grad[i] = 0;
    }
    c->d[k] -= j->step->rate *
               tune_adam_move(&j->adam, &c->d_mean[k], &c->d_square[k], (float)(sum * c->s0[k]));
}

static osh_status tune_codes_row(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const codes_job *j = user;
    const osh_tune_codes *c = j->c;
    int64_t n = c->I / c->G;
    float *to = j->room + worker * c->I;
    (void)cx;
    for (int64_t g = 0; g < c->G; g++) {
        int64_t k = row * c->G + g, at = row * c->I + g * n;
        if (j->step) tune_group_move(j, k, at, n);
        float s = osh_tune_scale(c, k), z = c->zero ? c->zero[k] : 0;
        for (int64_t i = 0; i < n; i++) to[g * n + i] = (osh_tune_code(c, at + i) - z) * s;
    }
    osh_from_f32((char *)c->w->data + (size_t)(row * c->I) * osh_dtype_bytes(c->w->dtype),
                 c->w->dtype, to, c->I);
    return OSH_OK;
}

osh_status osh_tune_codes_step(osh_ctx *cx, const osh_tune_codes *c, const osh_tune_step *step)
{
    osh_status rc = OSH_OK;
    codes_job j = {.c = c, .step = step};
    if (step) j.adam = tune_adam_at(step);
    OSH_NEW(cx, j.room, osh_threads(cx) * c->I);
    OSH_TRY(osh_parallel_for(cx, c->O, tune_codes_row, &j));
done:
    osh_free(cx, j.room);
    return rc;
}

osh_status osh_tune_norm_step(osh_ctx *cx, const osh_tune_norm *n, const osh_tune_step *step)
{
    osh_status rc = OSH_OK;
    float *to = NULL; // own
    adam a = {0};
    if (step) a = tune_adam_at(step);
    OSH_NEW(cx, to, n->n);
    for (int64_t i = 0; i < n->n; i++) {
        float w = n->w0[i] + n->offset;
        if (step)
            n->d[i] -= step->rate * tune_adam_move(&a, &n->mean[i], &n->square[i], n->grad[i] * w);
        n->grad[i] = 0;
        to[i] = n->d[i] == 0 ? n->w0[i] : w * (1 + n->d[i]) - n->offset;
    }
    osh_from_f32(n->w->data, n->w->dtype, to, n->n);
done:
    osh_free(cx, to);
    return rc;
}

typedef struct add_job {
    float *sum;
    const float *x;
    int64_t n;
} add_job;

static osh_status tune_add_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const add_job *j = user;
    int64_t end = osh_min64(j->n, (chunk + 1) * CHUNK);
    (void)cx, (void)worker;
    for (int64_t i = chunk * CHUNK; i < end; i++) j->sum[i] += j->x[i];
    return OSH_OK;
}

osh_status osh_tune_add(osh_ctx *cx, float *sum, const osh_tensor *x)
{
    add_job j = {sum, x->data, osh_tensor_numel(x)};
    return osh_parallel_for(cx, osh_div_up(j.n, CHUNK), tune_add_chunk, &j);
}
