/* arith.c - converts weights [O, I] to scales, zero points and codes, and back
 * (compressed_tensors/quantization/utils/helpers.py calculate_qparams,
 * lifecycle/forward_helpers.py; llmcompressor observers memoryless_minmax).
 *
 *   symmetric     s = rnd(amax / (R/2))
 *   asymmetric    s = rnd(rnd(mx - mn) / R)
 *                 zp = RNE(clamp(rnd(qmin - rnd(mn / s))))
 *   s == 0        s = eps of the dtype; zp is computed with s = 0, before s is replaced
 *
 *   E8M0 (MX)     s = 2^n, n such that the largest code reaches at least amax / 1.75
 *   E4M3 (NVFP4)  s = e4m3(global rnd(amax / 6)); a code is w / (s / global), in f32
 *
 * R = qmax - qmin, and mn <= 0 <= mx. rnd rounds to the weight's dtype; with OSH_ARITH_F32 only the
 * stored scale is rounded. In an asymmetric group of zeros, mn / s is 0 / 0, which is NaN. The zero
 * point of such a group is 0, as after torch's cast on x86. */
#include "quant/arith.h"

#include <math.h>

#include "base/num.h"
#include "quant/kernels.h"
#include "quant/observer.h"

void osh_qparams_deinit(osh_ctx *cx, osh_qparams *p)
{
    if (!p) return;
    osh_tensor_free(cx, p->scale);
    osh_tensor_free(cx, p->zero);
    p->scale = p->zero = NULL;
}

osh_status osh_q_scale_shape(osh_ctx *cx, osh_q_shape *shape, const osh_q_args *a, int64_t O,
                             int64_t I, const char *what)
{
    osh_status rc = OSH_OK;
    *shape = (osh_q_shape){2, {O, 1}};
    if (O < 1 || I < 1)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is empty: [%lld, %lld]", what, (long long)O, (long long)I);
    switch (a->strategy) {
    case OSH_Q_TENSOR:
        shape->ndim = 1, shape->dim[0] = 1;
        break;
    case OSH_Q_CHANNEL:
        break;
    case OSH_Q_GROUP:
    case OSH_Q_TENSOR_GROUP:
        if (a->group_size < 1 || I % a->group_size)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s has %lld input features, which groups of %lld do not divide", what,
                     (long long)I, (long long)a->group_size);
        shape->dim[1] = I / a->group_size;
        break;
    case OSH_Q_BLOCK:
        shape->dim[0] = (O + a->block[0] - 1) / a->block[0];
        shape->dim[1] = (I + a->block[1] - 1) / a->block[1];
        break;
    default:
        OSH_FAIL(cx, OSH_E_USAGE, "%s: strategy token is for activations", what);
    }
done:
    return rc;
}

/* The layout of the scales of a weight w [O, I]: element w[r, c] has the scale with index
 * r / band * per_band + c / seg. */
typedef struct grid {
    int64_t O, I, band, seg, per_band;
} grid;

static grid scale_grid_of(const osh_q_args *a, int64_t O, int64_t I)
{
    grid g = {O, I, osh_q_scale_rows(a, O), osh_q_scale_cols(a, I), 1};
    g.per_band = (I + g.seg - 1) / g.seg;
    return g;
}

/* Computes one scale and its zero point from the range [mn, mx]. If `zero_f32` is true, the
 * difference qmin - rnd(mn / s) is not rounded to the dtype. The reference does not round this
 * difference for 0-dimensional tensors, which occur in dynamic quantization with strategy
 * tensor. */
static void one_param(float *scale, int8_t *zp, float mn, float mx, const osh_q_scale_rule *q,
                      bool zero_f32)
{
    float s;
    osh_dtype dt = q->dt, step = q->step;
    mn = mn < 0 ? mn : 0;
    mx = mx > 0 ? mx : 0;
    if (q->symmetric) {
        s = osh_q_round_to((-mn > mx ? -mn : mx) / ((q->qmax - q->qmin) / 2), dt);
        if (zp) *zp = 0;
    } else {
        s = osh_q_round_to(osh_q_round_to(mx - mn, step) / (q->qmax - q->qmin), dt);
        float z = osh_q_round_to(q->qmin - osh_q_round_to(mn / s, step), zero_f32 ? OSH_F32 : step);
        z = z < q->qmin ? q->qmin : z > q->qmax ? q->qmax : z;
        if (zp) *zp = isnan(z) ? 0 : (int8_t)nearbyintf(z);
    }
    if (s == 0) s = dt == OSH_BF16 ? 0x1p-7f : dt == OSH_F16 ? 0x1p-10f : 0x1p-23f;
    *scale = s;
}

static osh_q_scale_rule scale_rule_of(const osh_q_args *a, osh_dtype dt, osh_dtype step)
{
    osh_q_code q = osh_q_code_of(a, dt);
    return (osh_q_scale_rule){q.qmin, q.qmax, a->symmetric, dt, step};
}

void osh_q_code_scale(osh_q_code *code, float min, float max, const osh_q_args *a, osh_dtype dt,
                      bool zero_f32)
{
    osh_q_scale_rule rule = scale_rule_of(a, dt, dt);
    int8_t zero = 0;
    if (a->scale_dtype == OSH_Q_SCALE_E8M0) code->scale = osh_q_scale_e8m0(min, max, a, dt);
    else one_param(&code->scale, &zero, min, max, &rule, zero_f32);
    code->zero = zero;
}

void osh_q_scale_zp(void *scale, int8_t *zp, const float *min, const float *max, int64_t n,
                    const osh_q_scaling *how)
{
    const osh_q_args *a = how->args;
    osh_dtype dt = how->dt;
    osh_q_scale_rule rule = scale_rule_of(a, dt, how->ar == OSH_ARITH_F32 ? OSH_F32 : dt);
    bool power = a->scale_dtype == OSH_Q_SCALE_E8M0;
    int64_t i = power ? 0 : osh_q_kernels_best()->params(scale, zp, min, max, n, &rule);
    for (; i < n; i++) {
        float s;
        if (power) s = osh_q_scale_e8m0(min[i], max[i], a, dt);
        else one_param(&s, zp ? zp + i : NULL, min[i], max[i], &rule, false);
        if (dt == OSH_BF16)
            ((uint16_t *)scale)[i] = osh_bf16_of_f32(s);
        else if (dt == OSH_F16)
            ((uint16_t *)scale)[i] = osh_f16_of_f32(s);
        else
            ((float *)scale)[i] = s;
    }
}

/* Arguments of the functions that process some rows (a chunk) of the weight w. A chunk consists of
 * whole bands, which are rows that share scales. If all rows share scales, a chunk is a part of the
 * only band. */
typedef struct job {
    grid g;
    const osh_q_args *a;
    osh_arithmetic ar;
    osh_dtype dt, from; // dt: dtype of the scales; from: dtype of w
    const osh_q_kernels *k;
    int64_t chunk_rows;
    /* True: scales are computed when the ranges of all chunks are known. False: each chunk computes
     * its scales. */
    bool whole;
    const uint8_t *w; // [O, I]
    /* Smallest and largest value for each scale, [scales]. With strategy tensor: for each chunk,
     * [chunks]. */
    float *min, *max;
    const osh_qparams *p;
    uint8_t *codes;  // [O, I]
    osh_tensor *out; // tensor to which codes are decoded
    const char *what;
} job;

enum { CHUNK_ELEMENTS = 1 << 18 };

static int64_t chunk_rows_of(const grid *g, int64_t unit)
{
    int64_t rows = CHUNK_ELEMENTS / g->I / unit * unit;
    return rows < unit ? unit : rows;
}

static int64_t n_chunks_of(const job *j)
{
    return (j->g.O + j->chunk_rows - 1) / j->chunk_rows;
}

static void job_widen(float *min, float *max, const job *j, int64_t row, int64_t col, int64_t n)
{
    float lo, hi;
    size_t size = osh_dtype_bytes(j->from);
    j->k->range(&lo, &hi, j->w + (size_t)(row * j->g.I + col) * size, j->from, n);
    osh_q_widen(min, max, lo, hi);
}

/* Rounds the ranges with indices [first, last) to j->dt. Fails if a range is not finite. */
static osh_status round_ranges(osh_ctx *cx, const job *j, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        if (j->from != j->dt)
            j->min[i] = osh_q_round_to(j->min[i], j->dt),
            j->max[i] = osh_q_round_to(j->max[i], j->dt);
        if (!isfinite(j->min[i]) || !isfinite(j->max[i]))
            return osh_fail(cx, OSH_E_NUMERIC, "%s holds a NaN or an infinity", j->what);
    }
    return OSH_OK;
}

/* Computes the scales and zero points with indices [first, last) from their ranges. */
static void params_of(const job *j, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last && j->p->global; i++)
        ((uint8_t *)j->p->scale->data)[i] =
            osh_q_scale_e4m3(j->min[i], j->max[i], j->p->global, j->dt);
    if (j->p->global) return;
    size_t size = osh_dtype_bytes(j->dt);
    int8_t *zero = j->p->zero ? (int8_t *)j->p->zero->data + first : NULL;
    osh_q_scale_zp((uint8_t *)j->p->scale->data + (size_t)first * size, zero, j->min + first,
                   j->max + first, last - first, &(osh_q_scaling){j->a, j->dt, j->ar});
}

static osh_status range_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const job *j = user;
    const grid *g = &j->g;
    int64_t first = chunk * j->chunk_rows,
            last = first + j->chunk_rows < g->O ? first + j->chunk_rows : g->O;

    /* True if the fast loop can be used: all segments (elements of a row that share a scale) have
     * equal length, and each segment has its own smallest and largest value. */
    bool even = g->band == 1 && g->I % g->seg == 0 && j->a->strategy != OSH_Q_TENSOR;
    if (even)
        j->k->ranges(j->min + first * g->per_band, j->max + first * g->per_band,
                     j->w + (size_t)(first * g->I) * osh_dtype_bytes(j->from), j->from, g->seg,
                     (last - first) * g->per_band);
    for (int64_t r = first; r < last && !even; r++)
        for (int64_t s = 0; s < g->per_band; s++) {
            int64_t col = s * g->seg, n = g->seg < g->I - col ? g->seg : g->I - col;
            int64_t at = j->a->strategy == OSH_Q_TENSOR ? chunk : r / g->band * g->per_band + s;
            job_widen(&j->min[at], &j->max[at], j, r, col, n);
        }
    // the caller computes the scales later, from the ranges of all chunks or from searched ranges
    if (j->whole) return OSH_OK;
    int64_t begin = first / g->band * g->per_band, end = ((last - 1) / g->band + 1) * g->per_band;
    osh_status rc = round_ranges(cx, j, begin, end);
    if (!rc) params_of(j, begin, end);
    return rc;
}

static osh_status check_dense_weight(osh_ctx *cx, const osh_tensor *w, const char *what)
{
    if (w->ndim == 2 && (w->dtype == OSH_BF16 || w->dtype == OSH_F16 || w->dtype == OSH_F32))
        return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s is a %d-dimensional %s tensor, want BF16, F16 or F32 [out, in]", what,
                    w->ndim, osh_dtype_name(w->dtype));
}

osh_status osh_q_weight_amax(osh_ctx *cx, float *amax, const osh_tensor *w, const osh_q_args *a,
                             const char *what)
{
    osh_status rc = OSH_OK;
    int64_t seg = osh_observer_searches(a) ? a->group_size : osh_tensor_numel(w),
            n = osh_tensor_numel(w) / seg;
    float *min = NULL, *max = NULL; // own: [n]
    OSH_NEW(cx, min, n);
    OSH_NEW(cx, max, n);
    for (int64_t i = 0; i < n; i++) {
        const char *at = (const char *)w->data + (size_t)(i * seg) * osh_dtype_bytes(w->dtype);
        osh_q_kernels_best()->range(&min[i], &max[i], at, w->dtype, seg);
        if (!isfinite(min[i]) || !isfinite(max[i]))
            OSH_FAIL(cx, OSH_E_NUMERIC, "%s holds a NaN or an infinity", what);
    }
    osh_range_job j = {.a = a, .arithmetic = OSH_ARITH_REFERENCE, .dt = w->dtype, .from = w->dtype,
                       .w = w->data, .O = w->shape[0], .I = w->shape[1], .min = min, .max = max};
    OSH_TRY(osh_observer_search(cx, &j));
    *amax = 0;
    for (int64_t i = 0; i < n; i++) {
        if (-min[i] > *amax) *amax = -min[i];
        if (max[i] > *amax) *amax = max[i];
    }
done:
    osh_free(cx, min);
    osh_free(cx, max);
    return rc;
}

osh_status osh_q_weight_params(osh_ctx *cx, osh_qparams *p, const osh_tensor *w,
                               const osh_q_args *a, osh_arithmetic ar, const char *what)
{
    return osh_q_target_params(cx, p, w, &(osh_q_scaling){a, w->dtype, ar}, what);
}

osh_status osh_q_target_params(osh_ctx *cx, osh_qparams *p, const osh_tensor *w,
                               const osh_q_scaling *how, const char *what)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = how->args;
    osh_dtype dt = how->dt;
    osh_q_shape shape;
    int64_t n;
    float amax = 0;
    osh_qparams q = {.global = p->global, .importance = p->importance}; // own
    job j = {.a = a, .ar = how->ar, .dt = dt, .from = w->dtype, .k = osh_q_kernels_best(),
             .w = w->data, .what = what};

    OSH_TRY(check_dense_weight(cx, w, what));
    OSH_TRY(osh_q_scale_shape(cx, &shape, a, w->shape[0], w->shape[1], what));
    j.g = scale_grid_of(a, w->shape[0], w->shape[1]);
    j.chunk_rows = chunk_rows_of(&j.g, a->strategy == OSH_Q_TENSOR ? 1 : j.g.band);
    bool relative = a->strategy == OSH_Q_TENSOR_GROUP;
    if (relative && !q.global) OSH_TRY(osh_q_weight_amax(cx, &amax, w, a, what));
    if (relative && !q.global) q.global = osh_q_global_scale(amax, w->dtype);
    OSH_TRY(osh_tensor_new(cx, &q.scale, relative ? OSH_FP8 : dt, shape.ndim, shape.dim));
    if (!a->symmetric) OSH_TRY(osh_tensor_new(cx, &q.zero, OSH_I8, shape.ndim, shape.dim));
    n = osh_tensor_numel(q.scale);
    if (a->strategy == OSH_Q_TENSOR && n_chunks_of(&j) > n) n = n_chunks_of(&j);
    j.p = &q;
    j.whole = a->strategy == OSH_Q_TENSOR || osh_observer_searches(a);
    OSH_NEW(cx, j.min, n);
    OSH_NEW(cx, j.max, n);
    OSH_TRY(osh_parallel_for(cx, n_chunks_of(&j), range_chunk, &j));
    if (a->strategy == OSH_Q_TENSOR) {
        for (int64_t i = 1; i < n; i++) {
            if (!isnan(j.min[0]) && !(j.min[i] >= j.min[0])) j.min[0] = j.min[i];
            if (!isnan(j.max[0]) && !(j.max[i] <= j.max[0])) j.max[0] = j.max[i];
        }
    }
    if (j.whole) {
        osh_range_job r = {.a = a, .arithmetic = how->ar, .dt = dt, .from = w->dtype, .w = w->data,
                           .O = w->shape[0], .I = w->shape[1], .importance = p->importance,
                           .min = j.min, .max = j.max};
        OSH_TRY(round_ranges(cx, &j, 0, osh_tensor_numel(q.scale)));
        OSH_TRY(osh_observer_search(cx, &r));
        for (int64_t i = 0; i < osh_tensor_numel(q.scale); i++)
            // the range was finite before, but a search can make it larger
            if (!isfinite(j.min[i]) || !isfinite(j.max[i]))
                OSH_FAIL(cx, OSH_E_NUMERIC, "the range that observer %s finds in %s is not finite",
                         a->observer, what);
        params_of(&j, 0, osh_tensor_numel(q.scale));
    }
    *p = q, q = (osh_qparams){0}; // give
done:
    osh_free(cx, j.min);
    osh_free(cx, j.max);
    osh_qparams_deinit(cx, &q);
    return rc;
}

float osh_q_scale_value(const osh_qparams *p, int64_t i)
{
    const osh_tensor *t = p->scale;
    if (t->dtype == OSH_FP8) return osh_f32_of_fp8(((const uint8_t *)t->data)[i]) / p->global;
    if (t->dtype == OSH_BF16) return osh_f32_of_bf16(((const uint16_t *)t->data)[i]);
    if (t->dtype == OSH_F16) return osh_f32_of_f16(((const uint16_t *)t->data)[i]);
    return ((const float *)t->data)[i];
}

void osh_q_scale_put(osh_qparams *p, int64_t i, float value)
{
    osh_tensor *t = p->scale;
    float s = t->dtype == OSH_FP8 ? value * p->global : value;
    osh_from_f32((char *)t->data + (size_t)i * osh_dtype_bytes(t->dtype), t->dtype, &s, 1);
}

/* Fails if the scales and zero points in `p` do not have the shapes for a weight [O, I]. Without
 * this check, later reads could be out of bounds. */
static osh_status check_params(osh_ctx *cx, const osh_qparams *p, const osh_q_args *a, int64_t O,
                               int64_t I)
{
    osh_status rc = OSH_OK;
    osh_q_shape shape;
    int64_t n;
    osh_dtype dt = p->scale->dtype;
    bool relative = a->strategy == OSH_Q_TENSOR_GROUP;

    OSH_TRY(osh_q_scale_shape(cx, &shape, a, O, I, "weight"));
    n = shape.ndim == 2 ? shape.dim[0] * shape.dim[1] : shape.dim[0];
    if (osh_tensor_numel(p->scale) != n ||
        (relative ? dt != OSH_FP8 : dt != OSH_BF16 && dt != OSH_F16 && dt != OSH_F32))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "weight_scale holds %lld %s values, want %lld of %s",
                 (long long)osh_tensor_numel(p->scale), osh_dtype_name(dt), (long long)n,
                 relative ? "F8_E4M3" : "BF16, F16 or F32");
    if (relative && !(p->global > 0 && isfinite(p->global)))
        OSH_FAIL(cx, OSH_E_FORMAT, "weight_global_scale is %g, want a positive number",
                 (double)p->global);
    if (p->zero && (osh_tensor_numel(p->zero) != n || p->zero->dtype != OSH_I8))
        OSH_FAIL(cx, OSH_E_FORMAT, "weight_zero_point holds %lld %s values, want %lld I8 ones",
                 (long long)osh_tensor_numel(p->zero), osh_dtype_name(p->zero->dtype),
                 (long long)n);
done:
    return rc;
}

/* Gets the scales and zero points with indices [at, at + n) as f32. n is at most OSH_Q_RUN. */
static void params_get(float *scale, float *zero, const osh_qparams *p, int64_t at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        scale[i] = osh_q_scale_value(p, at + i);
        zero[i] = p->zero ? ((const int8_t *)p->zero->data)[at + i] : 0;
    }
}

typedef struct coding { // arguments of code_row, which encodes or decodes one row
    const osh_q_kernels *k;
    const osh_qparams *p;
    osh_q_code q;
    osh_dtype dt;
    const uint8_t *w; // weights to encode; NULL: codes are decoded to `out`
    uint8_t *codes, *out;
} coding;

/* Encodes or decodes row r of a weight. In the arrays of c, the row begins at index `row`. It
 * consists of segments, each with its own scale. The last segment may be shorter. */
static void code_row(const coding *c, const grid *g, int64_t r, int64_t row)
{
    float scale[OSH_Q_RUN], zero[OSH_Q_RUN];
    for (int64_t s = 0, n; s < g->per_band; s += n) {
        int64_t full = g->I / g->seg - s; // number of whole segments in the rest of the row
        n = full < 1 ? 1 : full < OSH_Q_RUN ? full : OSH_Q_RUN;
        params_get(scale, zero, c->p, r / g->band * g->per_band + s, n);
        osh_q_run run = {full < 1 ? g->I - s * g->seg : g->seg, n, scale, zero};
        int64_t element = row + s * g->seg;
        size_t at = (size_t)element * osh_dtype_bytes(c->dt);
        if (c->w) c->k->encode_run(c->codes + element, c->w + at, c->dt, &run, &c->q);
        else c->k->decode_run(c->out + at, c->dt, c->codes + element, &run, &c->q);
    }
}

/* Encodes or decodes all segments of a chunk of rows. (The elements of a segment share a scale.) */
static osh_status code_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const job *j = user;
    const grid *g = &j->g;
    coding c = {.k = j->k, .p = j->p, .dt = j->dt, .w = j->out ? NULL : j->w,
                .codes = j->codes, .out = j->out ? j->out->data : NULL};
    c.q = osh_q_code_of(
        j->a, j->ar == OSH_ARITH_F32 || j->p->scale->dtype != j->dt ? OSH_F32 : j->dt);
    int64_t first = chunk * j->chunk_rows,
            last = first + j->chunk_rows < g->O ? first + j->chunk_rows : g->O;

    for (int64_t r = first; r < last; r++) code_row(&c, g, r, r * g->I);
    return OSH_OK;
}

/* Encodes w [O, I] to j->codes, or decodes j->codes to w. */
static osh_status run_codes(osh_ctx *cx, job *j, const osh_tensor *w)
{
    osh_status rc = OSH_OK;
    OSH_TRY(check_dense_weight(cx, w, "weight"));
    OSH_TRY(check_params(cx, j->p, j->a, w->shape[0], w->shape[1]));
    j->dt = w->dtype;
    j->k = osh_q_kernels_best();
    j->g = scale_grid_of(j->a, w->shape[0], w->shape[1]);
    j->chunk_rows = chunk_rows_of(&j->g, 1);
    OSH_TRY(osh_parallel_for(cx, n_chunks_of(j), code_chunk, j));
done:
    return rc;
}

osh_status osh_q_encode(osh_ctx *cx, void *codes, const osh_tensor *w, const osh_qparams *p,
                        const osh_q_args *a, osh_arithmetic ar)
{
    job j = {.a = a, .ar = ar, .w = w->data, .p = p, .codes = codes};
    return run_codes(cx, &j, w);
}

void osh_q_decode_rows(void *to, osh_dtype dt, const osh_q_coded *w, int64_t first, int64_t n)
{
    const osh_qparams *p = w->params;
    grid g = scale_grid_of(w->args, w->O, w->I);
    coding c = {.k = osh_q_kernels_best(),
                .p = p,
                .q = osh_q_code_of(w->args, p->scale->dtype != dt ? OSH_F32 : dt),
                .dt = dt,
                .codes = (uint8_t *)w->codes + first * w->I,
                .out = to};

    for (int64_t r = 0; r < n; r++) code_row(&c, &g, first + r, r * w->I);
}

void osh_q_row_error(double sum[2], const void *a, const void *b, osh_dtype dt, int64_t n)
{
    osh_q_kernels_best()->error(sum, a, b, dt, n);
}

osh_status osh_q_decode(osh_ctx *cx, osh_tensor *w, const void *codes, const osh_qparams *p,
                        const osh_q_args *a)
{
    job j = {.a = a, .p = p, .codes = (uint8_t *)codes, .out = w};
    return run_codes(cx, &j, w);
}
