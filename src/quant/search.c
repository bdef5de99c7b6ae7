/* search.c - searches ranges with smaller errors for a weight. The ranges become narrower step by
 * step (llmcompressor/observers/mse_quant.py _grid_search_mse on a CPU). Step i multiplies the
 * ranges by p = expand (1 - i / grid); s is the scale. Example: a group has values x in [-1, 0.6].
 * The codes are symmetric with 4 bits, and grid is 100. The error is the sum of |x - dq(x)|^2.4:
 *
 *   step 0   p = 1.00   range [-1.00, 0.600]   s = 0.1333   error 0.0021   the best so far
 *   step 1   p = 0.99   range [-0.99, 0.594]   s = 0.1320   error 0.0020   better
 *   ...                                                                    patience ends
 *
 * The search ends when no range of the tensor improves any more. So each step is done for all
 * ranges before the next step. Candidates, scales, codes, differences and powers are rounded to the
 * weight's dtype. Sums are added in f32 in torch's order (struct sum) and rounded to the weight's
 * dtype. So every number equals that of the reference, except |x|^norm of F32 weights. This file
 * rounds it correctly, but the reference has an error of up to 1 unit in the last place. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "base/num.h"
#include "quant/arith.h"
#include "quant/histogram.h"
#include "quant/kernels.h"
#include "quant/observer.h"

/* ---- a sum in torch's order (ATen SumKernel.cpp, on one thread)
 *
 * Values are added into 32 partial sums: the 8 lanes of 4 vectors. The values of 4 vectors are a
 * group. A vector of a 16-bit dtype has 16 values; its two halves are added first. There are four
 * levels of sums. After 2^power groups the sums of level 0 are added to those of level 1 and set to
 * 0; after 2^power such additions the sums of level 1 are added to those of level 2, and so on. At
 * the end, values that do not fill a vector are added one by one, then the lanes are added. ---- */

enum { LANES = 8, SIDE = 4, LEVELS = 4, GROUP = SIDE * 2 * LANES };

typedef struct sum {
    float acc[LEVELS][SIDE][LANES];
    float tail[GROUP]; // values of a group that is not complete yet
    /* n_tail: number of values in `tail`; vector: number of values that a vector holds. */
    int n_tail, vector;
    int power;
    int64_t i; // number of groups that are added so far
} sum;

/* Returns the number of groups in a block, 4^`power`. The sum of a block enters the total as one
 * number, so different blocks can be summed independently. */
static int64_t block_groups(int power) { return (int64_t)1 << 2 * power; }

static void sum_begin(sum *s, int64_t n, osh_dtype dt)
{
    int log = 0;
    memset(s->acc, 0, sizeof s->acc);
    s->n_tail = 0, s->i = 0;
    s->vector = dt == OSH_F32 ? LANES : 2 * LANES;
    for (int64_t groups = n / (SIDE * s->vector); ((int64_t)1 << log) < groups;) log++;
    s->power = log / LEVELS > 4 ? log / LEVELS : 4;
}

static void add_vector(float *to, const float *x, int vector)
{
    if (vector == LANES)
        for (int k = 0; k < LANES; k++) to[k] += x[k];
    else
        for (int k = 0; k < LANES; k++) to[k] += x[k] + x[LANES + k];
}

static void add_lanes(float *to, const float *x)
{
    for (int k = 0; k < LANES; k++) to[k] += x[k];
}

/* Is called after s->i groups have been added. Adds each complete sum of level `from` - 1 to the
 * next level, and likewise for all higher levels. */
static void raise_sums(sum *s, int from)
{
    int64_t mask = ((int64_t)1 << s->power) - 1;
    for (int level = from; level < LEVELS; level++) {
        if (s->i & mask << (level - 1) * s->power) break;
        for (int k = 0; k < SIDE; k++) add_lanes(s->acc[level][k], s->acc[level - 1][k]);
        memset(s->acc[level - 1], 0, sizeof s->acc[0]);
    }
}

static void add_group(sum *s, const float *x)
{
    for (int k = 0; k < SIDE; k++) add_vector(s->acc[0][k], x + k * s->vector, s->vector);
    s->i++;
    raise_sums(s, 1);
}

static void sum_feed(sum *s, const float *x, int64_t n)
{
    int group = SIDE * s->vector;
    while (n > 0) {
        if (!s->n_tail && n >= group) {
            add_group(s, x);
            x += group, n -= group;
            continue;
        }
        int m = group - s->n_tail < n ? group - s->n_tail : (int)n;
        memcpy(s->tail + s->n_tail, x, (size_t)m * sizeof *x);
        x += m, n -= m;
        if ((s->n_tail += m) < group) continue;
        s->n_tail = 0;
        add_group(s, s->tail);
    }
}

static float sum_end(sum *s)
{
    float all = 0;
    int k = 0;
    for (int level = 1; level < LEVELS; level++)
        for (int j = 0; j < SIDE; j++) add_lanes(s->acc[0][j], s->acc[level][j]);
    for (; k + s->vector <= s->n_tail; k += s->vector)
        add_vector(s->acc[0][0], s->tail + k, s->vector);
    for (int j = 1; j < SIDE; j++) add_lanes(s->acc[0][0], s->acc[0][j]);
    for (; k < s->n_tail; k++) all += s->tail[k];
    for (int j = 0; j < LANES; j++) all += s->acc[0][0][j];
    return all;
}

/* Returns the sum of n values. n is smaller than the number of values of a group. */
static float sum_of_few(const float *x, int n, osh_dtype dt)
{
    int vector = dt == OSH_F32 ? LANES : 2 * LANES, k = 0;
    float lanes[LANES] = {0}, all = 0;
    for (; k + vector <= n; k += vector) add_vector(lanes, x + k, vector);
    for (; k < n; k++) all += x[k];
    for (int j = 0; j < LANES; j++) all += lanes[j];
    return all;
}

/* ---- one step ---- */

typedef struct search {
    const osh_range_job *j;
    osh_range_search rule;
    const osh_q_kernels *k;
    osh_dtype dt; // dtype in which errors are computed
    /* w[r, c] has the scale with index r / band * per_band + c / seg. n: number of scales. */
    int64_t band, seg, per_band, n;
    /* Size of a chunk. One thread processes a chunk. With strategy `tensor`, the size is a number
     * of values. With other strategies, it is a number of bands (rows that share scales). */
    int64_t chunk, n_chunks;
    /* Factor of the errors of each input channel, [I]. NULL: errors have no factor. */
    const float *importance; // view
    float *error; // own [n]: smallest error of each range in all steps so far
    float *best;  // own [n]: for each range, p of the step with the smallest error
    /* Table [32768] of |x|^norm, indexed by the bits of |x| in a 16-bit dtype. NULL: errors are
     * F32. */
    float *power; // own
    bool *better; // own [chunks]: true if the current step improved a range of the chunk
    /* With strategy `tensor`, all weights have one range, and this is the sum of the errors of each
     * chunk, [chunks]. NULL with other strategies. */
    sum *sums;    // own
    float p;
} search;

enum { PIECE = 1024, CANDIDATES = 64 };

/* Returns x^norm with the roundings of torch, which has special kernels for the norms 2 and 3. */
static float error_power(float x, double norm, osh_dtype dt)
{
    if (norm == 2) return osh_q_round_to(x * x, dt);
    if (norm == 3)
        return osh_q_round_to((dt == OSH_BF16 ? osh_q_round_to(x * x, dt) : x * x) * x, dt);
    if (!(x > 0)) return x;
    return osh_q_round_to((float)osh_math_pow(x, osh_q_round_to((float)norm, dt)), dt);
}

/* Computes the errors |x - dq(x)|^norm of n <= PIECE contiguous values of the weight, from element
 * `at` on. dq: quantizes and dequantizes. */
static void value_errors(const search *s, float *out, int64_t at, int64_t n, const osh_q_code *code)
{
    const osh_range_job *j = s->j;
    uint8_t codes[PIECE];
    // y: dequantized values, first in the weight's dtype, then converted to f32 in place
    float x[PIECE], y[PIECE];
    uint16_t narrow[PIECE];
    const void *from = (const char *)j->w + (size_t)at * osh_dtype_bytes(j->from);
    osh_to_f32(x, from, j->from, n);
    if (j->from != j->dt) { // the values are first rounded to the dtype of the scales
        osh_from_f32(narrow, j->dt, x, n);
        osh_to_f32(x, narrow, j->dt, n);
        from = narrow;
    }
    s->k->encode(codes, from, j->dt, n, code);
    s->k->decode(j->dt == OSH_F32 ? (void *)y : narrow, j->dt, codes, n, code);
    if (j->dt != OSH_F32) osh_to_f32(y, narrow, j->dt, n);
    for (int64_t i = 0; i < n; i++) y[i] -= x[i];
    if (s->dt == OSH_F32) {
        for (int64_t i = 0; i < n; i++) out[i] = error_power(fabsf(y[i]), s->rule.norm, OSH_F32);
        for (int64_t i = 0; s->importance && i < n; i++) out[i] *= s->importance[at % j->I + i];
        return;
    }
    osh_from_f32(narrow, j->dt, y, n);
    for (int64_t i = 0; i < n; i++) out[i] = s->power[narrow[i] & 0x7fff];
}

static float narrowed_end(const search *s, float end)
{
    return osh_q_round_to(end * s->p, s->j->dt);
}

/* Computes scales and zero points for n <= CANDIDATES ranges, from the range with index `first` on.
 * Each range is first multiplied by s->p. */
static void step_codes(const search *s, osh_q_code *code, int64_t first, int64_t n)
{
    const osh_range_job *j = s->j;
    osh_q_code like = osh_q_code_of(j->a, j->arithmetic == OSH_ARITH_F32 ? OSH_F32 : j->dt);
    float lo[CANDIDATES], hi[CANDIDATES], scale[CANDIDATES], wide[CANDIDATES];
    int8_t zero[CANDIDATES] = {0}; // MX has no zero points, so they remain 0
    for (int64_t i = 0; i < n; i++)
        lo[i] = narrowed_end(s, j->min[first + i]), hi[i] = narrowed_end(s, j->max[first + i]);
    osh_q_scale_zp(scale, zero, lo, hi, n,
                   &(osh_q_scaling){j->a, j->dt, (osh_arithmetic)j->arithmetic});
    osh_to_f32(wide, scale, j->dt, n);
    for (int64_t i = 0; i < n; i++) code[i] = like, code[i].scale = wide[i], code[i].zero = zero[i];
}

/* Is called with the error of a range in the current step. If this error is the smallest so far,
 * stores it with the p of the step and returns true. */
static bool judge_range(const search *s, int64_t range, float error)
{
    error = osh_q_round_to(error, s->dt);
    if (!(error < s->error[range])) return false;
    s->error[range] = error, s->best[range] = s->p;
    return true;
}

/* Returns the error of a range in the current step. With strategy block, a block that extends past
 * the weight is padded with zeros, which have no error, as in the reference. */
static float range_error(const search *s, int64_t range, const osh_q_code *code)
{
    const osh_range_job *j = s->j;
    float out[PIECE];
    sum all;
    int64_t r0 = range / s->per_band * s->band, c0 = range % s->per_band * s->seg;
    if (s->band == 1 && s->seg < SIDE * LANES) {
        value_errors(s, out, r0 * j->I + c0, s->seg, code);
        return sum_of_few(out, (int)s->seg, s->dt);
    }
    sum_begin(&all, s->band * s->seg, s->dt);
    for (int64_t r = r0; r < r0 + s->band; r++) {
        int64_t inside = r < j->O ? j->I - c0 < s->seg ? j->I - c0 : s->seg : 0;
        for (int64_t c = 0, m; c < s->seg; c += m) {
            bool there = c < inside;
            m = (there ? inside : s->seg) - c;
            m = m < PIECE ? m : PIECE;
            if (there) value_errors(s, out, r * j->I + c0 + c, m, code);
            else memset(out, 0, (size_t)m * sizeof *out);
            sum_feed(&all, out, m);
        }
    }
    return sum_end(&all);
}

static osh_status step_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const search *s = user;
    osh_q_code code[CANDIDATES];
    int64_t first = chunk * s->chunk * s->per_band, last = first + s->chunk * s->per_band;
    (void)cx, (void)worker;
    last = last < s->n ? last : s->n;
    s->better[chunk] = false;
    for (int64_t i = first; i < last; i++) {
        int64_t k = (i - first) % CANDIDATES;
        if (!k) step_codes(s, code, i, last - i < CANDIDATES ? last - i : CANDIDATES);
        if (judge_range(s, i, range_error(s, i, &code[k]))) s->better[chunk] = true;
    }
    return OSH_OK;
}

/* Sums the errors of a chunk of values. Used only for the strategy `tensor`. A chunk is one block
 * (block_groups). The last chunk may be smaller. */
static osh_status sum_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const search *s = user;
    osh_q_code code;
    float out[PIECE];
    int64_t all = s->j->O * s->j->I, first = chunk * s->chunk, last = first + s->chunk;
    (void)cx, (void)worker;
    last = last < all ? last : all;
    step_codes(s, &code, 0, 1);
    sum_begin(&s->sums[chunk], all, s->dt);
    for (int64_t i = first; i < last; i += PIECE) {
        int64_t n = last - i < PIECE ? last - i : PIECE;
        value_errors(s, out, i, n, &code);
        sum_feed(&s->sums[chunk], out, n);
    }
    return OSH_OK;
}

/* Only for strategy `tensor`: returns the sum of the errors of all chunks, added in order. */
static float joined_sum(const search *s)
{
    sum all = s->sums[s->n_chunks - 1]; // only levels 0 and 1 and `tail` of the last chunk are used
    float below[2][SIDE][LANES];
    memcpy(below, all.acc, sizeof below);
    if (all.i == block_groups(all.power)) all.n_tail = 0;
    memset(all.acc, 0, sizeof all.acc);
    all.i = 0;
    for (int64_t c = 0; c < s->n_chunks; c++) {
        /* Only the last chunk can be smaller than a block. */
        if (s->sums[c].i < block_groups(all.power)) break;
        for (int k = 0; k < SIDE; k++) add_lanes(all.acc[2][k], s->sums[c].acc[2][k]);
        all.i += block_groups(all.power);
        raise_sums(&all, 3);
    }
    memcpy(all.acc, below, sizeof below);
    return sum_end(&all);
}

static osh_status search_step(osh_ctx *cx, search *s, bool *better)
{
    osh_status rc = OSH_OK;
    *better = false;
    OSH_TRY(osh_check_interrupt(cx));
    OSH_TRY(osh_parallel_for(cx, s->n_chunks, s->sums ? sum_chunk : step_chunk, s));
    if (s->sums) *better = judge_range(s, 0, joined_sum(s));
    for (int64_t c = 0; !s->sums && c < s->n_chunks; c++) *better |= s->better[c];
done:
    return rc;
}

/* ---- the search ---- */

enum { CHUNK_VALUES = 1 << 16 };

static void search_shape(search *s)
{
    const osh_range_job *j = s->j;
    const osh_q_args *a = j->a;
    s->rule = osh_observer_of(a)->search(a);
    s->dt = s->rule.weighted ? OSH_F32 : j->dt;
    bool block = a->strategy == OSH_Q_BLOCK;
    s->band = block ? a->block[0] : 1;
    s->seg = block ? a->block[1] : osh_q_in_groups(a) ? a->group_size : j->I;
    s->per_band = (j->I + s->seg - 1) / s->seg;
    int64_t bands = (j->O + s->band - 1) / s->band;
    s->n = bands * s->per_band;
    s->chunk = CHUNK_VALUES / (s->band * j->I);
    if (s->chunk < 1) s->chunk = 1;
    s->n_chunks = (bands + s->chunk - 1) / s->chunk;
    if (a->strategy != OSH_Q_TENSOR) return;
    sum one;
    sum_begin(&one, j->O * j->I, s->dt);
    s->n = 1;
    s->chunk = block_groups(one.power) * SIDE * one.vector;
    s->n_chunks = (j->O * j->I + s->chunk - 1) / s->chunk;
}

static osh_status search_new(osh_ctx *cx, search *s)
{
    osh_status rc = OSH_OK;
    osh_dtype dt = s->dt;
    OSH_NEW(cx, s->error, s->n);
    OSH_NEW(cx, s->best, s->n);
    if (s->j->a->strategy == OSH_Q_TENSOR) OSH_NEW(cx, s->sums, s->n_chunks);
    else OSH_NEW(cx, s->better, s->n_chunks);
    for (int64_t i = 0; i < s->n; i++) {
        s->error[i] = dt == OSH_BF16 ? 0x1.fep127f : dt == OSH_F16 ? 65504 : FLT_MAX;
        s->best[i] = 1;
    }
    if (dt == OSH_F32) goto done;
    OSH_NEW(cx, s->power, 1 << 15);
    for (int u = 0; u < 1 << 15; u++) {
        uint16_t bits = (uint16_t)u;
        float x;
        osh_to_f32(&x, &bits, dt, 1);
        s->power[u] = isfinite(x) ? error_power(x, s->rule.norm, dt) : INFINITY;
    }
done:
    return rc;
}

/* ---- histograms of weights ---- */

/* Sets [*lo, *hi] to the candidate range with the smallest loss. The losses are computed from the
 * values of the weight, not from the histogram. `at`: rows and columns of these values, as in
 * count_weight. */
static void least_of_weight(double *lo, double *hi, const osh_range_job *j, const osh_histogram *h,
                            const int64_t at[4])
{
    const osh_observer *o = osh_observer_of(j->a);
    double least = INFINITY;
    for (int64_t i = 0; i < o->candidates(j->a); i++) {
        double l, u, loss = 0;
        o->candidate(&l, &u, h, j->a, i);
        for (int64_t r = at[0]; r < at[0] + at[1]; r++) {
            const char *from =
                (const char *)j->w + (size_t)(r * j->I + at[2]) * osh_dtype_bytes(j->from);
            osh_tensor x = osh_tensor_view(j->from, 1, &at[3], (void *)from);
            loss += o->exact(&x, j->a, l, u);
        }
        if (loss < least) least = loss, *lo = l, *hi = u;
    }
}

/* Chooses the range for one scale from a histogram of the weights that share the scale. These
 * weights are in rows [at[0], at[0] + at[1]) and columns [at[2], at[2] + at[3]). */
static void count_weight(const osh_range_job *j, osh_histogram *h, int64_t scale,
                         const int64_t at[4])
{
    osh_histogram_clear(h);
    osh_histogram_widen(h, j->min[scale], j->max[scale]);
    for (int64_t r = at[0]; r < at[0] + at[1]; r++)
        osh_histogram_count(
            h, (const char *)j->w + (size_t)(r * j->I + at[2]) * osh_dtype_bytes(j->from), j->from,
            at[3]);
    double lo = j->min[scale], hi = j->max[scale];
    if (h->width > 0 && osh_observer_twice(j->a)) least_of_weight(&lo, &hi, j, h, at);
    else if (h->width > 0) osh_observer_of(j->a)->choose(&lo, &hi, h, j->a);
    j->min[scale] = osh_q_round_to((float)lo, j->dt);
    j->max[scale] = osh_q_round_to((float)hi, j->dt);
}

static osh_status count_weights(osh_ctx *cx, const osh_range_job *j)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = j->a;
    osh_histogram h;
    bool block = a->strategy == OSH_Q_BLOCK;
    int64_t band = block ? a->block[0] : a->strategy == OSH_Q_TENSOR ? j->O : 1, scale = 0;
    int64_t seg = block ? a->block[1] : osh_q_in_groups(a) ? a->group_size : j->I;
    OSH_TRY(osh_histogram_init(cx, &h, osh_observer_bins(a), 1));
    for (int64_t r = 0; r < j->O; r += band)
        for (int64_t c = 0; c < j->I; c += seg, scale++) {
            int64_t at[] = {r, j->O - r < band ? j->O - r : band, c,
                            j->I - c < seg ? j->I - c : seg};
            if (isfinite(j->min[scale]) && isfinite(j->max[scale])) count_weight(j, &h, scale, at);
        }
done:
    osh_histogram_deinit(cx, &h);
    return rc;
}

osh_status osh_observer_search(osh_ctx *cx, const osh_range_job *j)
{
    osh_status rc = OSH_OK;
    const osh_observer *o = osh_observer_of(j->a);
    search s = {.j = j, .k = osh_q_kernels_best()};
    if (o->choose) return count_weights(cx, j);
    if (!o->search) return OSH_OK;
    search_shape(&s);
    if (osh_observer_weighs(j->a)) s.importance = j->importance;
    OSH_TRY(search_new(cx, &s));
    s.p = (float)s.rule.expand;
    for (int64_t i = 0; i < s.n; i++)
        j->min[i] = narrowed_end(&s, j->min[i]), j->max[i] = narrowed_end(&s, j->max[i]);
    for (int64_t i = 0, worse = 0; i < s.rule.steps && worse < s.rule.patience; i++) {
        bool better;
        s.p = (float)(1 - (double)i / s.rule.grid);
        OSH_TRY(search_step(cx, &s, &better));
        worse = better ? 0 : worse + 1;
    }
    for (int64_t i = 0; i < s.n; i++) {
        s.p = s.best[i];
        j->min[i] = narrowed_end(&s, j->min[i]), j->max[i] = narrowed_end(&s, j->max[i]);
    }
done:
    osh_free(cx, s.error);
    osh_free(cx, s.best);
    osh_free(cx, s.power);
    osh_free(cx, s.better);
    osh_free(cx, s.sums);
    return rc;
}

size_t osh_observer_bytes(const osh_q_args *a, int64_t O, int64_t I, osh_dtype dt)
{
    osh_range_job j = {.a = a, .dt = dt, .O = O, .I = I};
    search s = {.j = &j};
    if (osh_observer_counts(a)) return osh_histogram_bytes(osh_observer_bins(a), 1);
    if (!osh_observer_of(a)->search) return 0;
    search_shape(&s);
    size_t n =
        (size_t)s.n_chunks * (a->strategy == OSH_Q_TENSOR ? sizeof *s.sums : sizeof *s.better);
    return 2 * osh_mem_gross((size_t)s.n * sizeof(float)) + osh_mem_gross(n) +
           (s.dt == OSH_F32 ? 0 : osh_mem_gross((size_t)(1 << 15) * sizeof(float)));
}

bool osh_observer_weighs(const osh_q_args *a)
{
    const osh_observer *o = osh_observer_of(a);
    bool channels = a->strategy == OSH_Q_CHANNEL || osh_q_in_groups(a);
    return a->present && channels && o->search && o->search(a).weighted;
}

bool osh_observer_by_rows(const osh_q_args *a)
{
    const osh_observer *o = osh_observer_of(a);
    if (!o->search) return !o->choose || a->strategy != OSH_Q_TENSOR;
    osh_range_search s = o->search(a);
    return a->strategy != OSH_Q_TENSOR && s.patience >= s.steps;
}

bool osh_observer_counts(const osh_q_args *a) { return osh_observer_of(a)->choose != NULL; }

bool osh_observer_twice(const osh_q_args *a)
{
    return osh_observer_of(a)->candidates && osh_observer_value(a, "exact") != 0;
}

bool osh_observer_searches(const osh_q_args *a)
{
    return osh_observer_of(a)->search || osh_observer_counts(a);
}
