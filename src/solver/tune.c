/* tune.c - does a step of Adam on a quantized weight.
 *
 *   q = round(clamp(v, lo, hi))
 *   s = rnd(s0 (1 + d))
 *   w = rnd((q - z) s)
 *
 * rnd rounds to the dtype of the scales. Gradients ignore roundings. With g = dL/dw:
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
 * Everything is f32, in vectors of eight codes. Each row is computed by one thread, so the bytes do
 * not depend on the number of threads. */
#include "solver/tune.h"

#include "base/elementary.h"
#include "base/isa.h"
#include "math/vec.h"
#include "ops/kernel.h"
#include "solver/cuda/solver.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 1 << 16 }; // number of elements that a thread processes at a time

static osh_tune_adam tune_adam_at(const osh_tune_step *s)
{
    double n = (double)s->n;
    return (osh_tune_adam){s->code_rate, s->rate, (float)(1 - osh_math_pow(0.9, n)),
                           (float)(1 - osh_math_pow(0.95, n))};
}

static osh_status tune_there_missing(osh_ctx *cx)
{
    return osh_fail(cx, OSH_E_INTERNAL, "this program has no kernels for tuning");
}

/* Updates Adam's moving averages with the gradient g. Returns the change of the optimized number
 * for a learning rate of 1. */
static float tune_adam_move(const osh_tune_adam *a, float *mean, float *square, float g)
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
    osh_tune_adam adam;
    float *room; // own: scratch, [threads, I]
} codes_job;

/* The codes [at, at + n), which share the scale s and the zero point z. */
typedef struct group {
    int64_t at, n;
    float s, z;
} group;

static group tune_group_at(const osh_tune_codes *c, int64_t row, int64_t g)
{
    int64_t k = row * c->G + g, n = c->I / c->G;
    return (group){row * c->I + g * n, n, osh_tune_scale(c, k), c->zero ? c->zero[k] : 0};
}

/* Eight codes whose step is computed together, and the numbers that the step needs. */
typedef struct eight {
    osh_v8f v, mean, square, grad;
    float scale, zero, lo, hi, rate, mean_part, square_part;
} eight;

OSH_VEC_FN void eight_load(eight *e, const osh_tune_codes *c, int64_t at)
{
    v8_load(&e->v, c->v + at), v8_load(&e->grad, c->grad + at);
    v8_load(&e->mean, c->mean + at), v8_load(&e->square, c->square + at);
}

OSH_VEC_FN void eight_store(const eight *e, const osh_tune_codes *c, int64_t at)
{
    osh_v8f none = {0};
    v8_store(c->v + at, &e->v), v8_store(c->grad + at, &none);
    v8_store(c->mean + at, &e->mean), v8_store(c->square + at, &e->square);
}

/* Sets *x to the whole numbers nearest to v, limited to [lo, hi]. */
OSH_VEC_FN void eight_codes(osh_v8f *x, const osh_v8f *v, float lo, float hi)
{
    osh_v8f least, most;
    v8_set(&least, lo), v8_set(&most, hi);
    osh_v8i out = *v < least;
    v8_select(x, &out, &least, v);
    out = *x > most, v8_select(x, &out, &most, x);
    v8_nearest(x);
}

/* Does a step of Adam on the eight codes. Adds their g (q - z) to *sum. */
OSH_VEC_FN void eight_move(eight *e, osh_v8f *sum)
{
    osh_v8f q, g, root, none = {0};
    eight_codes(&q, &e->v, e->lo, e->hi);
    *sum = *sum + e->grad * (q - e->zero);
    osh_v8i in = (e->v >= none + e->lo) & (e->v <= none + e->hi);
    g = (osh_v8f)((osh_v8i)(e->grad * e->scale) & in);
    e->mean = 0.9f * e->mean + 0.1f * g;
    e->square = 0.95f * e->square + 0.05f * g * g;
    root = e->square / e->square_part;
    v8_root(&root);
    e->v = e->v - e->rate * (e->mean / e->mean_part / (root + 1e-12f));
}

/* Does a step of Adam on the codes of a group. Returns the sum of g (q - z) over these codes. */
OSH_VEC_FN float group_move_body(const osh_tune_codes *c, const group *p, const osh_tune_step *step,
                                 const osh_tune_adam *by)
{
    eight e = {.scale = p->s,
               .zero = p->z,
               .lo = c->lo,
               .hi = c->hi,
               .rate = step->code_rate,
               .mean_part = by->mean_part,
               .square_part = by->square_part};
    osh_v8f sum = {0};
    int64_t i = p->at, end = p->at + p->n;
    for (; i + OSH_LANES <= end; i += OSH_LANES) {
        eight_load(&e, c, i);
        eight_move(&e, &sum);
        eight_store(&e, c, i);
    }
    if (i < end) { // the last codes, with lanes of zeros after them
        float room[4][OSH_LANES] = {{0}};
        const osh_tune_codes part = {.v = room[0], .mean = room[1], .square = room[2],
                                     .grad = room[3]};
        float *const all[4] = {c->v, c->mean, c->square, c->grad};
        size_t bytes = (size_t)(end - i) * sizeof(float);
        for (int k = 0; k < 4; k++) memcpy(room[k], all[k] + i, bytes);
        eight_load(&e, &part, 0);
        eight_move(&e, &sum);
        eight_store(&e, &part, 0);
        for (int k = 0; k < 4; k++) memcpy(all[k] + i, room[k], bytes);
    }
    return v8_sum(&sum);
}
OSH_AVX2 static float group_move_avx2(const osh_tune_codes *c, const group *p,
                                      const osh_tune_step *step, const osh_tune_adam *by)
{
    return group_move_body(c, p, step, by);
}

/* Sets `to` to the weights (q - z) s of a group. */
OSH_VEC_FN void group_decode_body(float *to, const osh_tune_codes *c, const group *p)
{
    int64_t i = 0;
    for (; i + OSH_LANES <= p->n; i += OSH_LANES) {
        osh_v8f v, q;
        v8_load(&v, c->v + p->at + i);
        eight_codes(&q, &v, c->lo, c->hi);
        q = (q - p->z) * p->s;
        v8_store(to + i, &q);
    }
    for (; i < p->n; i++) to[i] = (osh_tune_code(c, p->at + i) - p->z) * p->s;
}
OSH_AVX2 static void group_decode_avx2(float *to, const osh_tune_codes *c, const group *p)
{
    group_decode_body(to, c, p);
}

/* Does a step of Adam on the codes of group g of a row, and then a step on their scale. */
static void tune_group_move(const codes_job *j, int64_t row, int64_t g)
{
    const osh_tune_codes *c = j->c;
    group p = tune_group_at(c, row, g);
    int64_t k = row * c->G + g;
    float sum = osh_isa_used() >= OSH_ISA_AVX2 ? group_move_avx2(c, &p, j->step, &j->adam)
                                               : group_move_body(c, &p, j->step, &j->adam);
    c->d[k] -=
        j->step->rate * tune_adam_move(&j->adam, &c->d_mean[k], &c->d_square[k], sum * c->s0[k]);
}

static osh_status tune_codes_row(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const codes_job *j = user;
    const osh_tune_codes *c = j->c;
    float *to = j->room + worker * c->I;
    (void)cx;
    for (int64_t g = 0; g < c->G; g++) {
        if (j->step) tune_group_move(j, row, g);
        group p = tune_group_at(c, row, g);
        if (osh_isa_used() >= OSH_ISA_AVX2)
            group_decode_avx2(to + g * p.n, c, &p);
        else
            group_decode_body(to + g * p.n, c, &p);
    }
    osh_from_f32((char *)c->w->data + (size_t)(row * c->I) * osh_dtype_bytes(c->w->dtype),
                 c->w->dtype, to, c->I);
    return OSH_OK;
}

osh_status osh_tune_codes_step(osh_ctx *cx, const osh_tune_codes *c, const osh_tune_step *step)
{
    osh_status rc = OSH_OK;
    osh_status (*there)(osh_ctx *, const osh_tune_codes *, const osh_tune_adam *) =
        OSH_CUDA_FN(osh_tune_codes_cuda);
    codes_job j = {.c = c, .step = step};
    if (step) j.adam = tune_adam_at(step);
    if (c->w->device) return there ? there(cx, c, step ? &j.adam : NULL) : tune_there_missing(cx);
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
    osh_status (*there)(osh_ctx *, const osh_tune_norm *, const osh_tune_adam *) =
        OSH_CUDA_FN(osh_tune_norm_cuda);
    osh_tune_adam a = {0};
    if (step) a = tune_adam_at(step);
    if (n->w->device) return there ? there(cx, n, step ? &a : NULL) : tune_there_missing(cx);
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
    if (x->device) return osh_ada_there_add(cx, x->device, sum, j.x, j.n);
    return osh_parallel_for(cx, osh_div_up(j.n, CHUNK), tune_add_chunk, &j);
}
