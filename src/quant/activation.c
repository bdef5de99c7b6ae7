/* activation.c - observes the ranges of static activations, and fake-quantizes activations in the
 * forward pass (llmcompressor/observers/min_max.py; compressed_tensors forward.py forward_quantize,
 * helpers.py compute_dynamic_scales_and_zp).
 *
 *   ranges              see observers/
 *   fake quantization   y = rnd((code - zp) * s); s and zp are stored (static) or
 *                       computed from x (dynamic) */
#include "quant/arith.h"
#include "quant/calibrate.h"
#include "quant/kernels.h"
#include "quant/observer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"

void osh_act_observer_feed(osh_act_observer *o, const osh_q_args *a, float lo, float hi,
                           osh_dtype dt)
{
    const osh_observer *row = osh_observer_of(a);
    if (o->seen && row->update) row->update(&o->min, &o->max, lo, hi, a, dt);
    else o->min = lo, o->max = hi;
    o->seen = true;
}

/* Returns a copy of `a` for a search of ranges. With this copy, the search treats each head of a
 * sample as one row of a weight. If the search ends early, it ends for all heads at the same
 * step. */
static osh_q_args by_heads(const osh_q_args *a)
{
    osh_q_args rows = *a;
    rows.strategy = OSH_Q_CHANNEL;
    return rows;
}

/* Adds the values x [n] of one head of a sample to the histogram of o. `range`: smallest and
 * largest of these values. */
static osh_status count_sample(osh_ctx *cx, osh_act_observer *o, const osh_q_args *a,
                               const osh_tensor *x, const float range[2])
{
    osh_status rc = OSH_OK;
    if (!osh_observer_counts(a) || !isfinite(range[0]) || !isfinite(range[1])) goto done;
    if (!o->counts) {
        OSH_NEW(cx, o->counts, 1);
        OSH_TRY(osh_histogram_init(cx, o->counts, osh_observer_bins(a), OSH_CALIBRATE_GROW));
    }
    osh_histogram_widen(o->counts, range[0], range[1]);
    osh_histogram_count(o->counts, x->data, x->dtype, osh_tensor_numel(x));
done:
    return rc;
}

/* Transposes x [tokens, heads, head_dim] to `rows` [heads, tokens, head_dim]. */
static void copy_by_head(uint8_t *rows, const osh_tensor *x, int64_t heads)
{
    int64_t tokens = x->shape[0];
    size_t one = (size_t)(x->shape[1] / heads) * osh_dtype_bytes(x->dtype);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < tokens; t++)
            memcpy(rows + (size_t)(h * tokens + t) * one,
                   (const uint8_t *)x->data + (size_t)(t * heads + h) * one, one);
}

static osh_status rows_by_head(osh_ctx *cx, uint8_t **rows, const osh_tensor *x, int64_t heads)
{
    *rows = NULL;
    if (heads == 1) return OSH_OK;
    *rows = osh_alloc(cx, (size_t)osh_tensor_numel(x) * osh_dtype_bytes(x->dtype));
    if (!*rows) return osh_fail(cx, OSH_E_NOMEM, "no memory for heads");
    copy_by_head(*rows, x, heads);
    return OSH_OK;
}

osh_status osh_act_observe_range(osh_ctx *cx, float *range, osh_act_observer *o, int64_t heads,
                                 const osh_tensor *x, const osh_q_args *a)
{
    osh_status rc = OSH_OK;
    uint8_t *rows = NULL; // own [heads, tokens, head_dim]: the sample, transposed
    int64_t n = osh_tensor_numel(x) / heads;
    size_t size = osh_dtype_bytes(x->dtype);
    osh_q_args rule = heads == 1 ? *a : by_heads(a);
    bool finite = true;
    OSH_TRY(rows_by_head(cx, &rows, x, heads));
    const uint8_t *at = heads > 1 ? rows : x->data;
    for (int64_t h = 0; h < heads; h++) {
        osh_q_kernels_best()->range(&range[h], &range[heads + h], at + (size_t)(h * n) * size,
                                    x->dtype, n);
        finite &= isfinite(range[h]) && isfinite(range[heads + h]);
    }
    osh_range_job j = {.a = &rule, .arithmetic = OSH_ARITH_REFERENCE, .dt = x->dtype,
                       .from = x->dtype, .w = at, .O = heads > 1 ? heads : x->shape[0],
                       .I = heads > 1 ? n : x->shape[1], .min = range, .max = range + heads};
    if (finite && !osh_observer_counts(a)) OSH_TRY(osh_observer_search(cx, &j));
    for (int64_t h = 0; h < heads; h++) {
        osh_tensor head = osh_tensor_view(x->dtype, 1, &n, (uint8_t *)at + (size_t)(h * n) * size);
        OSH_TRY(count_sample(cx, &o[h], a, &head, (float[]){range[h], range[heads + h]}));
    }
done:
    osh_free(cx, rows);
    return rc;
}

osh_status osh_act_observe(osh_ctx *cx, osh_act_observer *o, int64_t heads, const osh_tensor *x,
                           const osh_q_args *a)
{
    osh_status rc = OSH_OK;
    float *range = NULL; // own: [2, heads]
    OSH_NEW(cx, range, 2 * heads);
    OSH_TRY(osh_act_observe_range(cx, range, o, heads, x, a));
    for (int64_t h = 0; h < heads; h++)
        osh_act_observer_feed(&o[h], a, range[h], range[heads + h], x->dtype);
done:
    osh_free(cx, range);
    return rc;
}

/* Arguments of second_look_chunk, which computes losses of one sample in the second pass over the
 * samples. */
typedef struct looking {
    osh_act_observer *o; // [heads]
    const osh_q_args *a;
    const uint8_t *at; // the sample, transposed, [heads, n]
    osh_dtype dt;
    int64_t n, candidates;
    /* For each head: losses [candidates] of the group to which the sample belongs. The losses of
     * the sample are added to them. NULL if all values of the head are 0. */
    double **losses; // view
} looking;

static osh_status second_look_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const looking *l = user;
    const osh_observer *row = osh_observer_of(l->a);
    int64_t head = chunk / l->candidates, i = chunk % l->candidates;
    const osh_act_observer *o = &l->o[head];
    double lo, hi;
    (void)cx, (void)worker;
    if (!l->losses[head]) return OSH_OK;
    osh_tensor x = osh_tensor_view(
        l->dt, 1, &l->n, (uint8_t *)l->at + (size_t)(head * l->n) * osh_dtype_bytes(l->dt));
    row->candidate(&lo, &hi, o->counts, l->a, i);
    l->losses[head][i] += row->exact(&x, l->a, lo, hi);
    return OSH_OK;
}

/* Sets *to (view) to the losses [candidates] of the group to which the sample belongs. If all
 * values that `o` observed are 0, there are no candidate ranges, and *to becomes NULL. */
static osh_status observer_losses(osh_ctx *cx, double **to, osh_act_observer *o, int64_t candidates,
                                  const osh_act_sample *at)
{
    osh_status rc = OSH_OK;
    const osh_where host = {NULL, OSH_LIFE_LONG};
    osh_tensor *state;
    *to = NULL;
    if (!o->counts || !(o->counts->width > 0)) goto done;
    if (!o->losses) {
        osh_groups groups = at ? at->groups : (osh_groups){0};
        OSH_TRY(osh_stat_new(cx, &o->losses, &osh_stat_sums, groups, candidates, host));
        OSH_TRY(osh_stat_new_part(cx, o->losses, host));
    }
    OSH_TRY(osh_stat_at(cx, &state, o->losses, at ? at->sample : 0));
    *to = state->data;
done:
    return rc;
}

osh_status osh_act_observe_again(osh_ctx *cx, osh_act_observer *o, int64_t heads,
                                 const osh_tensor *x, const osh_q_args *a,
                                 const osh_act_sample *at)
{
    osh_status rc = OSH_OK;
    uint8_t *rows = NULL; // own [heads, tokens, head_dim]: the sample, transposed
    looking l = {.o = o, .a = a, .dt = x->dtype, .n = osh_tensor_numel(x) / heads,
                 .candidates = osh_observer_of(a)->candidates(a)};
    OSH_TRY(rows_by_head(cx, &rows, x, heads));
    l.at = heads > 1 ? rows : x->data;
    OSH_NEW(cx, l.losses, heads);
    for (int64_t h = 0; h < heads; h++)
        OSH_TRY(observer_losses(cx, &l.losses[h], &o[h], l.candidates, at));
    OSH_TRY(osh_parallel_for(cx, heads * l.candidates, second_look_chunk, &l));
done:
    osh_free(cx, l.losses);
    osh_free(cx, rows);
    return rc;
}

void osh_act_observed(float *lo, float *hi, const osh_act_observer *o, const osh_q_args *a,
                      osh_dtype dt)
{
    double l, u;
    *lo = o->min, *hi = o->max;
    if (!o->counts) return;
    l = *lo = o->counts->min, u = *hi = o->counts->max;
    if (o->losses) osh_calibrate_least_of(&l, &u, o->counts, a, o->losses->all->data);
    else if (o->counts->width > 0) osh_observer_of(a)->choose(&l, &u, o->counts, a);
    *lo = osh_q_round_to((float)l, dt), *hi = osh_q_round_to((float)u, dt);
}

osh_status osh_act_observer_finish(osh_ctx *cx, osh_act_observer *o)
{
    return o->losses ? osh_stat_finish(cx, o->losses) : OSH_OK;
}

void osh_act_observer_deinit(osh_ctx *cx, osh_act_observer *o)
{
    if (o->counts) osh_histogram_deinit(cx, o->counts);
    osh_free(cx, o->counts);
    osh_stat_free(cx, o->losses);
    o->counts = NULL, o->losses = NULL;
}

size_t osh_act_observer_bytes(const osh_q_args *a, const osh_groups *groups)
{
    if (!osh_observer_counts(a)) return 0;
    size_t losses = 0;
    if (osh_observer_twice(a))
        losses = osh_stat_bytes(&osh_stat_sums, groups, osh_observer_of(a)->candidates(a));
    return osh_mem_gross(sizeof(osh_histogram)) +
           osh_histogram_bytes(osh_observer_bins(a), OSH_CALIBRATE_GROW) + losses;
}

size_t osh_act_observe_bytes(const osh_q_args *a, int64_t tokens, int64_t width, int64_t heads,
                             osh_dtype dt)
{
    osh_q_args rule = by_heads(a);
    /* Number of bytes of the array `range` of osh_act_observe, and also of the array `losses` of
     * osh_act_observe_again. */
    size_t range = osh_mem_gross((size_t)(2 * heads) * sizeof(float));
    size_t search = osh_observer_counts(a) ? 0
                    : heads == 1 ? osh_observer_bytes(a, tokens, width, dt)
                                 : osh_observer_bytes(&rule, heads, tokens * (width / heads), dt);
    return range + search +
           (heads > 1 ? osh_mem_gross((size_t)(tokens * width) * osh_dtype_bytes(dt)) : 0);
}

typedef struct fake {
    const osh_q_kernels *k;
    const osh_q_args *a;
    osh_q_code code; // The members `scale` and `zero` are only set for static activations.
    uint8_t *x;      // the activations [N, I] in dtype dt
    osh_dtype dt;
    int64_t N, I, seg;
    int64_t chunk_rows;
    bool fixed; // true: scale and zero point are stored; false: they are computed from x
    /* Scale and zero point of each head, which has `seg` columns. NULL: the scale and zero point in
     * `code` are for all columns. */
    const osh_tensor *scales, *zeros; // views
    /* Global scale (NVFP4). The scale of a group is multiplied by the global scale, and the product
     * is rounded to FP8. 0: there is no global scale. */
    float global;
} fake;

enum { CODES = 1024 }; // number of values that are encoded at a time; their codes are on the stack

static void fake_segment(const fake *f, uint8_t *x, int64_t n, const osh_q_code *code)
{
    uint8_t codes[CODES];
    size_t size = osh_dtype_bytes(f->dt);
    for (int64_t i = 0; i < n; i += CODES) {
        int64_t m = n - i < CODES ? n - i : CODES;
        f->k->encode(codes, x + (size_t)i * size, f->dt, m, code);
        f->k->decode(x + (size_t)i * size, f->dt, codes, m, code);
    }
}

static osh_status finite_range(osh_ctx *cx, const fake *f, float *lo, float *hi, const uint8_t *x,
                               int64_t n)
{
    f->k->range(lo, hi, x, f->dt, n);
    if (isfinite(*lo) && isfinite(*hi)) return OSH_OK;
    return osh_fail(cx, OSH_E_NUMERIC, "an activation is NaN or infinite");
}

static osh_status fake_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const fake *f = user;
    osh_status rc = OSH_OK;
    size_t size = osh_dtype_bytes(f->dt);
    osh_q_code code = f->code;
    int64_t first = chunk * f->chunk_rows,
            last = first + f->chunk_rows < f->N ? first + f->chunk_rows : f->N;

    for (int64_t r = first; r < last; r++)
        for (int64_t c = 0; c < f->I; c += f->seg) {
            uint8_t *x = f->x + (size_t)(r * f->I + c) * size;
            float lo, hi;
            OSH_TRY(finite_range(cx, f, &lo, &hi, x, f->seg));
            if (f->global)
                code.scale = osh_f32_of_fp8(osh_q_scale_e4m3(lo, hi, f->global, f->dt)) / f->global;
            else if (!f->fixed) osh_q_code_scale(&code, lo, hi, f->a, f->dt, false);
            if (f->scales) code.scale = osh_tensor_at(f->scales, c / f->seg);
            if (f->scales) code.zero = f->zeros ? ((const int8_t *)f->zeros->data)[c / f->seg] : 0;
            fake_segment(f, x, f->seg, &code);
        }
done:
    return rc;
}

/* Fails if a stored scale of activations is not positive, or if the zero points are not I8. */
static osh_status check_static(osh_ctx *cx, const osh_tensor *scale, const osh_tensor *zero)
{
    osh_status rc = OSH_OK;
    if (scale->dtype != OSH_BF16 && scale->dtype != OSH_F16 && scale->dtype != OSH_F32)
        OSH_FAIL(cx, OSH_E_FORMAT, "a static scale is %s, want BF16, F16 or F32",
                 osh_dtype_name(scale->dtype));
    if (zero && zero->dtype != OSH_I8)
        OSH_FAIL(cx, OSH_E_FORMAT, "a static zero point is %s, want I8",
                 osh_dtype_name(zero->dtype));
    for (int64_t i = 0; i < osh_tensor_numel(scale); i++) {
        float s = osh_tensor_at(scale, i);
        if (!(s > 0 && isfinite(s)))
            OSH_FAIL(cx, OSH_E_NUMERIC, "a static scale is %g, want a positive number", (double)s);
    }
done:
    return rc;
}

osh_status osh_q_fake_quant_act(osh_ctx *cx, osh_tensor *x, const osh_q_args *a,
                                const osh_tensor *scale, const osh_tensor *zero)
{
    osh_status rc = OSH_OK;
    fake f = {.k = osh_q_kernels_best(),
              .a = a,
              .code = osh_q_code_of(a, x->dtype),
              .x = x->data,
              .dt = x->dtype};

    if (x->ndim != 2 || (x->dtype != OSH_BF16 && x->dtype != OSH_F16 && x->dtype != OSH_F32))
        OSH_FAIL(cx, OSH_E_INTERNAL, "activations are a %d-dimensional %s tensor", x->ndim,
                 osh_dtype_name(x->dtype));
    f.N = x->shape[0], f.I = x->shape[1];
    if (!f.N || !f.I) goto done;
    f.seg = osh_q_in_groups(a) ? a->group_size : f.I;
    if (f.I % f.seg)
        OSH_FAIL(cx, OSH_E_USAGE, "%lld features, which groups of %lld do not divide",
                 (long long)f.I, (long long)f.seg);
    f.fixed = a->dynamic == OSH_Q_STATIC || a->strategy == OSH_Q_TENSOR;
    if (a->dynamic == OSH_Q_LOCAL) {
        if (!scale || osh_tensor_numel(scale) != 1 || !(osh_tensor_at(scale, 0) > 0))
            OSH_FAIL(cx, OSH_E_FORMAT, "input_global_scale is not one positive number");
        f.global = osh_tensor_at(scale, 0), f.code.round = OSH_F32;
    } else if (a->strategy == OSH_Q_ATTN_HEAD) {
        int64_t heads = scale ? osh_tensor_numel(scale) : 0;
        if (heads < 1 || f.I % heads || (zero && osh_tensor_numel(zero) != heads))
            OSH_FAIL(cx, OSH_E_FORMAT, "%lld scales of heads do not fit %lld features",
                     (long long)heads, (long long)f.I);
        OSH_TRY(check_static(cx, scale, zero));
        f.seg = f.I / heads, f.scales = scale, f.zeros = zero;
    } else if (a->dynamic == OSH_Q_STATIC) {
        if (!scale || osh_tensor_numel(scale) != 1 || (zero && osh_tensor_numel(zero) != 1))
            OSH_FAIL(cx, OSH_E_FORMAT, "input_scale is not one number");
        OSH_TRY(check_static(cx, scale, zero));
        f.code.scale = osh_tensor_at(scale, 0);
        f.code.zero = zero ? ((const int8_t *)zero->data)[0] : 0;
    } else if (a->strategy == OSH_Q_TENSOR) {
        /* In dynamic quantization, strategy `tensor` means one range for the whole sample. */
        float lo, hi;
        OSH_TRY(finite_range(cx, &f, &lo, &hi, f.x, f.N * f.I));
        osh_q_code_scale(&f.code, lo, hi, a, f.dt, true);
    }
    f.chunk_rows = f.I < 1 << 16 ? (1 << 16) / f.I : 1;
    OSH_TRY(osh_parallel_for(cx, (f.N + f.chunk_rows - 1) / f.chunk_rows, fake_chunk, &f));
done:
    if (rc) osh_note(cx, "quantizing activations");
    return rc;
}
