/* awq_search.c - searches AWQ's factors s on a grid of exponents r. The loss of each point is
 * computed from statistics of the input X.
 *
 *   x[c] = mean |X[., c]|
 *   w[c] = mean over all rows of |W[., c]| / (largest |W| that shares the scale)
 *   s = x^r / (w^(1 - r) + 1e-4)          with duo scaling
 *   s = x^r                               without duo scaling
 *   s = max(s, 1e-4)
 *   s = s / sqrt(max s min s)
 *   W' = Q(W s) / s                       Q rounds to nearest; a scale covers the whole range
 *   loss = sum over the Linears of |X (W' - W)^T|^2 = tr(dW H dW^T)
 *
 * LLM Compressor instead runs the module around the Linears on all inputs, for each point of the
 * grid. If only one Linear reads X (o_proj, down_proj), the loss of LLM Compressor equals the loss
 * above. For q, k and v, LLM Compressor uses the loss of the output of attention. For `gate` and
 * `up`, it uses the loss of the output of the MLP. For these Linears, this file adds the losses of
 * their outputs instead.
 *
 * Weights are read in bands of rows. One thread computes all points of the grid for a band; the
 * sums of the bands are added in order. */
#include "base/elementary.h"
#include "modifiers/awq.h"
#include "math/blas.h"
#include "math/gemm.h"
#include "ops/kernel.h"
#include "quant/observer.h"
#include "tensor/fold.h"

#include <math.h>
#include <string.h>

enum { ROWS = 128, COLUMNS = 192, LANES = 8 };

/* A band: rows [first, first + n) of the weight of Linear number k. */
typedef struct band { int k; int64_t first, n; } band;

typedef struct search {
    osh_search *j;
    const osh_awq_point *grid;
    int n_grid;
    osh_arithmetic arithmetic;
    band *bands;    // own
    /* n_rows: number of rows of all quantized Linears together.
     * widest: largest number of rows of a band. */
    int64_t n_bands, n_rows, widest;
    /* [bands, n]: for each band and column, the sum of the terms of w (see the formula at the top
     * of this file) over the rows of the band (add_shares). find_mean computes w from these
     * sums. */
    double *sums;   // own
    /* [bands, n]: largest |W| of each column in a band. find_mean replaces the first n elements by
     * the largest |W| over all bands. */
    float *most;    // own
    double *mean;   // Own [n]: w of the formula at the top of this file (w is a mean over rows).
    float *s;       // own: [grid, n] the factors s at each point of the grid
    float *global; // Own: [grid] global scale at each point of the grid, for strategy tensor_group.
    double *loss;   // own: [bands, grid] loss of each band at each point of the grid
} search;

static int64_t rows_of_band(const osh_q_args *a)
{
    int64_t block = a->strategy == OSH_Q_BLOCK ? a->block[0] : 1;
    return osh_div_up(ROWS, block) * block;
}

static bool is_quantized_balance(const osh_balance *b)
{
    return b->scheme && b->scheme->weights.present;
}

static void cut_bands(search *t)
{
    const osh_search *j = t->j;
    t->n_bands = t->n_rows = t->widest = 0;
    for (int k = 0; k < j->n_balance; k++) {
        const osh_balance *b = &j->balance[k];
        if (!is_quantized_balance(b)) continue;
        int64_t each = rows_of_band(&b->scheme->weights);
        for (int64_t r = 0; r < b->O; r += each) {
            band d = {k, r, osh_min64(each, b->O - r)};
            if (t->bands) t->bands[t->n_bands] = d;
            t->n_bands++, t->n_rows += d.n;
            if (d.n > t->widest) t->widest = d.n;
        }
    }
}

/* ---- w ---- */

/* For each column: adds the sum of |W| / M over n rows to `sums` [I]. M is the largest |W| among
 * the weights that share a scale. `rows` [n, I] are rows of W in F32. Each operation is rounded as
 * in torch. */
static void add_shares(double *sums, const float *rows, const osh_q_args *a, osh_dtype dt,
                       int64_t n, int64_t I)
{
    int64_t high = a->strategy == OSH_Q_BLOCK ? a->block[0] : 1;
    int64_t seg = osh_q_scale_cols(a, I);
    for (int64_t r = 0; r < n; r += high)
        for (int64_t c = 0; c < I; c += seg) {
            int64_t r1 = osh_min64(r + high, n), c1 = osh_min64(c + seg, I);
            float amax = 0;
            for (int64_t y = r; y < r1; y++)
                for (int64_t x = c; x < c1; x++) amax = fmaxf(amax, fabsf(rows[y * I + x]));
            amax = osh_round_to(amax + 1e-6f, dt);
            for (int64_t y = r; y < r1; y++)
                for (int64_t x = c; x < c1; x++)
                    sums[x] += osh_round_to(fabsf(rows[y * I + x]) / amax, dt);
        }
}

static osh_status mean_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    search *t = user;
    const band *d = &t->bands[chunk];
    const osh_balance *b = &t->j->balance[d->k];
    int64_t I = t->j->n, n = d->n * I;
    /* w: own, the rows of the band in F32. most: view [I], largest |W| of each column in the
     * band. */
    char *raw = osh_alloc(cx, (size_t)n * osh_dtype_bytes(b->dtype));
    float *w = NULL, *most = t->most + chunk * I;
    (void)worker;
    if (!raw) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to look through %s", b->name);
    OSH_NEW(cx, w, n);
    OSH_TRY(t->j->rows(cx, t->j, d->k, raw, d->first, d->n));
    osh_to_f32(w, raw, b->dtype, n);
    osh_fold_most(most, raw, b->dtype, I, 0, n);
    add_shares(t->sums + chunk * I, w, &b->scheme->weights, b->dtype, d->n, I);
done:
    osh_free(cx, raw);
    osh_free(cx, w);
    return rc;
}

static osh_status find_mean(osh_ctx *cx, search *t)
{
    osh_status rc = OSH_OK;
    int64_t I = t->j->n;
    OSH_TRY(osh_parallel_for(cx, t->n_bands, mean_chunk, t));
    for (int64_t c = 0; c < I; c++) {
        for (int64_t b = 0; b < t->n_bands; b++) t->mean[c] += t->sums[b * I + c];
        for (int64_t b = 1; b < t->n_bands; b++) t->most[c] = fmaxf(t->most[c], t->most[b * I + c]);
        t->mean[c] /= (double)t->n_rows;
    }
done:
    return rc;
}

/* ---- factors ---- */

static double power_f64(double x, double p) { return x > 0 ? osh_math_pow(x, p) : p > 0 ? 0 : 1; }

static void make_factors(float *s, const search *t, const osh_awq_point *p)
{
    const float least = 1e-4f;
    int64_t I = t->j->n;
    float lo = INFINITY, hi = 0;
    for (int64_t c = 0; c < I; c++) {
        float x = (float)power_f64(t->j->mean[c], p->ratio);
        if (p->duo) x = (float)(x / (power_f64(t->mean[c], 1 - p->ratio) + 1e-4));
        s[c] = x < least ? least : x;
        lo = fminf(lo, s[c]), hi = fmaxf(hi, s[c]);
    }
    float middle = sqrtf(hi * lo);
    for (int64_t c = 0; c < I; c++) {
        s[c] /= middle;
        if (!(isfinite(s[c]) && s[c] > 0)) s[c] = 1;
    }
}

static void make_points(search *t)
{
    int64_t I = t->j->n;
    osh_dtype dt = t->j->balance[t->bands[0].k].dtype;
    for (int g = 0; g < t->n_grid; g++) {
        float amax = 0;
        make_factors(t->s + g * I, t, &t->grid[g]);
        for (int64_t c = 0; c < I; c++)
            amax = fmaxf(amax, osh_round_to(t->most[c] * t->s[g * I + c], dt));
        t->global[g] = osh_q_global_scale(amax, dt);
    }
}

/* ---- loss ---- */

typedef struct room { // scratch for computing the loss of one band
    osh_tensor *stored;         // own: [n, I] scaled weights in the stored dtype
    void *codes;                // own: [n, I] codes of the scaled weights
    /* Own, [n, I]. w: the weights in F32. dw: their rounding errors. product: dw times a part of
     * H. */
    float *w, *dw, *product;
} room;

static osh_status band_room_new(osh_ctx *cx, room *r, osh_dtype dt, int64_t n, int64_t I)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_tensor_new(cx, &r->stored, dt, 2, (int64_t[]){n, I}));
    if (!(r->codes = osh_alloc(cx, (size_t)(n * I))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for codes of a search");
    OSH_NEW(cx, r->w, n * I);
    OSH_NEW(cx, r->dw, n * I);
    OSH_NEW(cx, r->product, n * I);
done:
    return rc;
}

static void band_room_deinit(osh_ctx *cx, room *r)
{
    osh_tensor_free(cx, r->stored);
    osh_free(cx, r->codes);
    osh_free(cx, r->w);
    osh_free(cx, r->dw);
    osh_free(cx, r->product);
}

/* Sets r->dw to Q(w s) / s - w, the rounding errors of a band at point number `point` of the grid.
 * r->stored and r->codes are scratch. */
static osh_status round_band(osh_ctx *cx, room *r, const search *t, const band *d, int point)
{
    osh_status rc = OSH_OK;
    const osh_balance *b = &t->j->balance[d->k];
    osh_q_args whole = b->scheme->weights, *a = &whole;
    const float *s = t->s + point * t->j->n;
    int64_t I = t->j->n, n = d->n * I;
    void *stored = r->stored->data;
    /* The search always rounds with the range from minimum to maximum, even if the scheme names
     * another observer. */
    osh_qparams p = {.global = a->strategy == OSH_Q_TENSOR_GROUP ? t->global[point] : 0};
    osh_q_observer_plain(&whole);
    for (int64_t i = 0; i < n; i += I)
        for (int64_t c = 0; c < I; c++) r->dw[i + c] = r->w[i + c] * s[c];
    osh_from_f32(stored, b->dtype, r->dw, n);
    OSH_TRY(osh_q_weight_params(cx, &p, r->stored, a, t->arithmetic, b->name));
    OSH_TRY(osh_q_encode(cx, r->codes, r->stored, &p, a, t->arithmetic));
    osh_q_decode_rows(stored, b->dtype, &(osh_q_coded){r->codes, &p, a, d->n, I}, 0, d->n);
    osh_to_f32(r->dw, stored, b->dtype, n);
    for (int64_t i = 0; i < n; i += I)
        for (int64_t c = 0; c < I; c++) r->dw[i + c] /= s[c];
    // rounds dw to the dtype of the weight
    osh_from_f32(stored, b->dtype, r->dw, n);
    osh_to_f32(r->dw, stored, b->dtype, n);
    for (int64_t i = 0; i < n; i++) r->dw[i] -= r->w[i];
done:
    osh_qparams_deinit(cx, &p);
    return rc;
}

/* Returns tr(dW H dW^T). Computes it as the sum over r and c of dW[r, c] (dW L)[r, c]. L is the
 * lower triangle of H, with the elements below the diagonal doubled. */
static double band_loss(const room *r, const float *h, int64_t n, int64_t I)
{
    double sum[LANES] = {0};
    for (int64_t c = 0; c < I; c += COLUMNS) {
        int64_t m = osh_min64(COLUMNS, I - c);
        osh_gemm_nn((osh_into){r->product + c, I, false}, (osh_mat){r->dw + c, I},
                    (osh_mat){h + c * I + c, I}, (osh_mnk){n, m, I - c});
    }
    for (int64_t i = 0; i < n * I; i += LANES)
        for (int64_t k = 0; k < LANES && i + k < n * I; k++)
            sum[k] += (double)r->dw[i + k] * r->product[i + k];
    for (int k = 1; k < LANES; k++) sum[0] += sum[k];
    return sum[0];
}

static osh_status loss_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const search *t = user;
    const band *d = &t->bands[chunk];
    osh_dtype dt = t->j->balance[d->k].dtype;
    int64_t I = t->j->n;
    room r = {0}; // own
    (void)worker;
    OSH_TRY(band_room_new(cx, &r, dt, d->n, I));
    OSH_TRY(t->j->rows(cx, t->j, d->k, r.stored->data, d->first, d->n));
    osh_to_f32(r.w, r.stored->data, dt, d->n * I);
    for (int g = 0; g < t->n_grid; g++) {
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(round_band(cx, &r, t, d, g));
        t->loss[chunk * t->n_grid + g] = band_loss(&r, t->j->h, d->n, I);
    }
done:
    band_room_deinit(cx, &r);
    return rc;
}

/* Sets *best to the index of the point of the grid with the smallest loss. If several points have
 * this loss, chooses the first. */
static osh_status choose_point(osh_ctx *cx, int *best, const search *t)
{
    osh_status rc = OSH_OK;
    double least = INFINITY;
    *best = -1;
    for (int g = 0; g < t->n_grid; g++) {
        double sum = 0;
        for (int64_t b = 0; b < t->n_bands; b++) sum += t->loss[b * t->n_grid + g];
        if (!t->grid[g].duo && t->grid[g].ratio == 0) t->j->before = sum;
        if (sum < least) least = sum, *best = g;
    }
    if (*best < 0)
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s: the loss is not finite for any factors", t->j->name);
    t->j->after = least;
done:
    return rc;
}

osh_status osh_awq_search(osh_ctx *cx, float *s, osh_search *j, const osh_awq_point *grid,
                          int n_grid, osh_arithmetic arithmetic)
{
    osh_status rc = OSH_OK;
    search t = {.j = j, .grid = grid, .n_grid = n_grid, .arithmetic = arithmetic};
    int64_t I = j->n;
    int best = -1;
    cut_bands(&t);
    OSH_TRY(osh_blas_open(cx));
    OSH_NEW(cx, t.bands, t.n_bands);
    cut_bands(&t);
    OSH_NEW(cx, t.sums, t.n_bands * I);
    OSH_NEW(cx, t.most, t.n_bands * I);
    OSH_NEW(cx, t.mean, I);
    OSH_NEW(cx, t.s, n_grid * I);
    OSH_NEW(cx, t.global, n_grid);
    OSH_NEW(cx, t.loss, t.n_bands * n_grid);
    OSH_TRY(find_mean(cx, &t));
    make_points(&t);
    OSH_TRY(osh_parallel_for(cx, t.n_bands, loss_chunk, &t));
    OSH_TRY(choose_point(cx, &best, &t));
    memcpy(s, t.s + best * I, (size_t)I * sizeof *s);
done:
    osh_free(cx, t.bands);
    osh_free(cx, t.sums);
    osh_free(cx, t.most);
    osh_free(cx, t.mean);
    osh_free(cx, t.s);
    osh_free(cx, t.global);
    osh_free(cx, t.loss);
    return rc;
}

size_t osh_awq_search_bytes(const osh_search *j, int n_grid, int n_threads)
{
    search t = {.j = (osh_search *)j};
    size_t I = (size_t)j->n, bytes = 0;
    cut_bands(&t);
    size_t n = (size_t)t.n_bands, at_once = t.n_bands < n_threads ? n : (size_t)n_threads,
           each = (size_t)t.widest * I;
    bytes += osh_mem_gross(n * sizeof(band)) + osh_mem_gross(n * I * sizeof(double));
    bytes += osh_mem_gross(n * I * sizeof(float));
    bytes += osh_mem_gross(I * sizeof(double)) + osh_mem_gross((size_t)n_grid * I * sizeof(float));
    bytes += osh_mem_gross((size_t)n_grid * sizeof(float)) +
             osh_mem_gross(n * (size_t)n_grid * sizeof(double));
    /* A band needs four arrays of at most 4 bytes per element: weights in the stored dtype and in
     * F32, dw, and the product. It also needs three arrays of one byte per element: one for codes,
     * and two as an upper bound for scales, ranges and zero points. */
    return bytes + at_once * (4 * osh_mem_gross(each * sizeof(float)) + 3 * osh_mem_gross(each));
}
