/* gptq_refine.c - improves codes and scales after GPTQ's column loop by the steps of
 * solver/gptq_refine.h. It works on tiles (groups of rows). Rows are independent unless they share
 * scales.
 * All steps of a tile are done before the next tile begins. After each step one matrix product
 * computes G = (w^ - w) H anew, so the compared losses are those of the weights that are stored. If
 * all rows share one row of scales, the best scales depend on all tiles. Then each step is done for
 * all tiles before the next step begins. */
#include "base/isa.h"
#include "math/blas.h"
#include "math/gemm.h"
#include "solver/columns.h"
#include "solver/cpu/refine.h"

#include <math.h>
#include <string.h>

typedef struct refine_job {
    const osh_gptq_refine_args *a;
    osh_group_factors factors; // own
    osh_refine_tile *tiles;    // own [threads]: the tile on which each thread works
    int64_t rows, n_tiles, groups;
    /* True: all rows share one row of scales and there are several tiles, so a step needs sums over
     * all tiles. */
    bool all;
    int from, to;              // the current call of osh_parallel_for does steps [`from`, `to`)
    /* Own, [n_steps + 2, tiles]: loss of each tile before the first step and after each step. The
     * last row contains the loss of each tile if all w^ were 0. */
    double *loss;
    /* `A` and `b` of each tile for the fit of the shared scales, [tiles, groups (groups + 1)]. NULL
     * if `all` is false. */
    double *sums;              // own
    float values[256];         // value of the grid for each code
} refine_job;

static int64_t refine_tile_rows(int64_t O, int64_t row_block)
{
    int64_t rows = O < 1024 ? 64 : 128;
    return row_block < O ? osh_div_up(rows, row_block) * row_block : rows;
}
static int64_t refine_padded_rows(int64_t rows)
{
    return osh_div_up(rows, OSH_PANEL_STEP) * OSH_PANEL_STEP;
}
static bool refine_shares_all(const osh_gptq_refine_args *a, int64_t rows)
{
    return a->row_block >= a->O && a->O > rows;
}

/* ---- load and store rows ---- */

static void refine_load_row(osh_refine_tile *t, const float *values, int64_t r)
{
    const osh_gptq_refine_args *a = t->a;
    const int8_t *codes = a->codes + (t->row + r) * a->I;
    int64_t at = (t->row + r) / a->row_block * t->groups;
    for (int64_t i = 0; i < a->I; i++) t->q[r * a->I + i] = values[(uint8_t)codes[i]];
    for (int64_t g = 0; g < t->groups; g++) {
        t->scale[r * t->groups + g] = a->scale[at + g];
        t->zero[r * t->groups + g] = a->zero ? a->zero[at + g] : 0;
    }
}

static void refine_store_row(const osh_refine_tile *t, int64_t r)
{
    const osh_gptq_refine_args *a = t->a;
    int8_t *codes = a->codes + (t->row + r) * a->I;
    int64_t at = (t->row + r) / a->row_block * t->groups;
    const float *q = t->q + r * a->I;
    if (!a->rule.grid.digits)
        for (int64_t i = 0; i < a->I; i++) codes[i] = (int8_t)q[i];
    else
        for (int64_t i = 0; i < a->I; i++) codes[i] = osh_grid_code(&a->rule.grid, q[i]);
    for (int64_t g = 0; g < t->groups && !t->keeps_scales; g++) {
        a->scale[at + g] = t->scale[r * t->groups + g];
        if (a->zero) a->zero[at + g] = t->zero[r * t->groups + g];
    }
}

/* On entry, d contains w of row r. Replaces d by w^ - w. */
OSH_VEC_FN void errors_body(float *d, const float *q, const osh_refine_tile *t, int64_t r)
{
    const osh_gptq_refine_args *a = t->a;
    osh_dtype dt = a->rule.dtype;
    for (int64_t g = 0; g < t->groups; g++) {
        int64_t i = g * a->group, end = osh_min64(a->I, i + a->group);
        float s = t->scale[r * t->groups + g], z = t->zero[r * t->groups + g];
        for (; i + OSH_LANES <= end; i += OSH_LANES) {
            osh_v8f x, w;
            v8_load(&x, q + i), v8_load(&w, d + i);
            x = x - z;
            v8_round(&x, dt);
            x = x * s;
            v8_round(&x, dt);
            x = x - w;
            v8_store(d + i, &x);
        }
        for (; i < end; i++) d[i] = osh_value(&a->rule, q[i], s, z) - d[i];
    }
}
OSH_AVX2 static void errors_avx2(float *d, const float *q, const osh_refine_tile *t, int64_t r)
{
    errors_body(d, q, t, r);
}

/* Sets t->d to the weights of row r, with 0 in dead columns (columns whose input is always 0). */
static void refine_load_weights(osh_refine_tile *t, int64_t r)
{
    const osh_gptq_refine_args *a = t->a;
    float *d = t->d + r * a->I;
    osh_to_f32(d, osh_elem(a->w, (t->row + r) * a->I), a->w->dtype, a->I);
    for (int64_t i = 0; a->dead && i < a->I; i++)
        if (a->dead[i]) d[i] = 0;
}

static void refine_find_errors(osh_refine_tile *t, int64_t r)
{
    float *d = t->d + r * t->a->I;
    const float *q = t->q + r * t->a->I;
    refine_load_weights(t, r);
    if (osh_isa_used() >= OSH_ISA_AVX2) errors_avx2(d, q, t, r);
    else errors_body(d, q, t, r);
}

void osh_tile_pull(osh_refine_tile *t, float *g)
{
    int64_t I = t->a->I;
    for (int64_t r = 0; r < t->n; r++) refine_find_errors(t, r);
    osh_gemm_nn((osh_into){g, I, false}, (osh_mat){t->d, I}, (osh_mat){t->a->h, I},
                (osh_mnk){t->n, I, I});
}

static double refine_row_loss(const osh_refine_tile *t, const float *g, int64_t r)
{
    int64_t I = t->a->I;
    double sum = 0;
    for (int64_t i = 0; i < I; i++) sum += (double)g[r * I + i] * t->d[r * I + i];
    return sum;
}

/* ---- steps ---- */

/* Accepts or undoes a step for rows [r, r + n). If n > 1, these rows share scales. If the sum of
 * the losses of the rows rose, restores their codes and scales and returns false. Otherwise keeps
 * the new codes and scales and returns true. */
static bool refine_keep_better(osh_refine_tile *t, const float *values, int64_t r, int64_t n)
{
    size_t bytes = (size_t)t->a->I * sizeof(float);
    double was = 0, now = 0;
    for (int64_t k = r; k < r + n; k++) was += t->loss[k], now += refine_row_loss(t, t->next, k);
    bool better = now <= was;
    for (int64_t k = r; k < r + n; k++) {
        if (better) {
            t->loss[k] = refine_row_loss(t, t->next, k);
            memcpy(t->g + k * t->a->I, t->next + k * t->a->I, bytes);
            refine_store_row(t, k);
        } else refine_load_row(t, values, k);
    }
    return better;
}

static void refine_run_step(osh_refine_tile *t, const float *values, osh_refine step)
{
    static void (*const steps[OSH_N_REFINES])(osh_refine_tile *) = {
        [OSH_REFINE_RESCALE] = osh_tile_rescale,
        [OSH_REFINE_DESCEND] = osh_tile_descend,
        [OSH_REFINE_FIT_SCALES] = osh_tile_fit_scales,
    };
    int64_t band = step == OSH_REFINE_FIT_SCALES ? t->a->row_block : 1;
    bool better = true;
    steps[step](t);
    osh_tile_pull(t, t->next);
    for (int64_t r = 0; r < t->n; r += band)
        better &= refine_keep_better(t, values, r, osh_min64(band, t->n - r));
    // the step has changed g, so g must be computed for the restored codes
    if (!better) osh_tile_pull(t, t->g);
}

static double refine_sum(const double *x, int64_t n, int64_t step)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i * step];
    return sum;
}

/* Returns the loss of the tile if all its weights were 0. Overwrites t->d and t->next. */
static double refine_loss_of_zero(osh_refine_tile *t)
{
    int64_t I = t->a->I;
    double sum = 0;
    for (int64_t r = 0; r < t->n; r++) refine_load_weights(t, r);
    osh_gemm_nn((osh_into){t->next, I, false}, (osh_mat){t->d, I}, (osh_mat){t->a->h, I},
                (osh_mnk){t->n, I, I});
    for (int64_t r = 0; r < t->n; r++) sum += refine_row_loss(t, t->next, r);
    return sum;
}

/* Loads tile number `chunk` into the osh_refine_tile of thread `worker`. Computes G and the loss of
 * each row. Returns a view of the osh_refine_tile. */
static osh_refine_tile *refine_open_tile(const refine_job *j, int64_t chunk, int worker)
{
    osh_refine_tile *t = &j->tiles[worker];
    t->row = chunk * j->rows;
    t->n = osh_min64(j->rows, j->a->O - t->row);
    for (int64_t r = 0; r < t->n; r++) refine_load_row(t, j->values, r);
    osh_tile_pull(t, t->g);
    for (int64_t r = 0; r < t->n; r++) t->loss[r] = refine_row_loss(t, t->g, r);
    return t;
}

static osh_status refine_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const refine_job *j = user;
    osh_refine_tile *t = refine_open_tile(j, chunk, worker);
    (void)cx;
    if (j->from == 0 && j->a->all)
        j->loss[(j->a->n_steps + 1) * j->n_tiles + chunk] = refine_loss_of_zero(t);
    j->loss[j->from * j->n_tiles + chunk] = refine_sum(t->loss, t->n, 1);
    for (int k = j->from; k < j->to; k++) {
        refine_run_step(t, j->values, j->a->steps[k]);
        j->loss[(k + 1) * j->n_tiles + chunk] = refine_sum(t->loss, t->n, 1);
    }
    return OSH_OK;
}

/* ---- one scale for all rows ---- */

static osh_status refine_sums_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const refine_job *j = user;
    osh_refine_tile *t = refine_open_tile(j, chunk, worker);
    int64_t size = j->groups * (j->groups + 1);
    (void)cx;
    osh_tile_fit_sums(t, 0, j->groups);
    for (int64_t i = 0; i < size; i++)
        j->sums[chunk * size + i] = refine_sum(t->fit + i, t->n, size);
    return OSH_OK;
}

/* Does step number k: computes the least-squares scales that all rows share. Restores the old
 * scales if the loss rises. */
static osh_status refine_fit_all(osh_ctx *cx, refine_job *j, int k)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = j->a;
    int64_t n = j->groups, size = n * (n + 1);
    float *old = NULL; // own
    OSH_NEW(cx, old, n);
    memcpy(old, a->scale, (size_t)n * sizeof *old);
    OSH_TRY(osh_parallel_for(cx, j->n_tiles, refine_sums_chunk, j));
    for (int64_t i = 0; i < size; i++) j->sums[i] = refine_sum(j->sums + i, j->n_tiles, size);
    if (osh_fit_solve(j->sums, j->sums + n * n, n, 1))
        for (int64_t g = 0; g < n; g++) {
            float s = osh_scale_round(&a->rule, (float)(old[g] + j->sums[n * n + g]));
            if (s > 0 && isfinite(s)) a->scale[g] = s;
        }
    double was = refine_sum(j->loss + k * j->n_tiles, j->n_tiles, 1);
    j->from = j->to = k + 1;
    OSH_TRY(osh_parallel_for(cx, j->n_tiles, refine_chunk, j));
    if (refine_sum(j->loss + (k + 1) * j->n_tiles, j->n_tiles, 1) <= was) goto done;
    memcpy(a->scale, old, (size_t)n * sizeof *old);
    memcpy(j->loss + (k + 1) * j->n_tiles, j->loss + k * j->n_tiles,
           (size_t)j->n_tiles * sizeof *j->loss);
done:
    osh_free(cx, old);
    return rc;
}

static osh_status refine_run(osh_ctx *cx, refine_job *j)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = j->a;
    j->from = 0, j->to = j->all ? 0 : a->n_steps;
    OSH_TRY(osh_parallel_for(cx, j->n_tiles, refine_chunk, j));
    for (int k = 0; k < a->n_steps && j->all; k++) {
        j->from = k, j->to = k + 1;
        if (a->steps[k] == OSH_REFINE_FIT_SCALES) OSH_TRY(refine_fit_all(cx, j, k));
        else OSH_TRY(osh_parallel_for(cx, j->n_tiles, refine_chunk, j));
    }
    for (int k = 0; k <= a->n_steps; k++)
        a->loss[k] = refine_sum(j->loss + k * j->n_tiles, j->n_tiles, 1);
    if (a->all) *a->all = refine_sum(j->loss + (a->n_steps + 1) * j->n_tiles, j->n_tiles, 1);
done:
    return rc;
}

/* ---- scratch ---- */

typedef struct room { // number of elements of each type in the scratch of one thread
    int64_t floats, doubles, changes;
} room;

static room refine_room_of(int64_t I, int64_t group, int64_t rows)
{
    int64_t groups = osh_div_up(I, group), window = osh_min64(groups, OSH_FIT_GROUPS);
    // number of columns of the widest group that osh_tile_rescale changes
    int64_t narrow = osh_min64(group, OSH_RESCALE_WIDEST);
    int64_t panel = 3 * narrow * rows + 4 * rows + OSH_PANEL_STRIP * narrow;
    return (room){
        .floats = 4 * rows * I + 2 * rows * groups + panel + 2 * narrow,
        .doubles = rows + rows * window * (window + 1),
        .changes = rows * OSH_DESCEND_BLOCK,
    };
}

static osh_status refine_tile_new(osh_ctx *cx, osh_refine_tile *t, const refine_job *j)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = j->a;
    int64_t rows = refine_padded_rows(j->rows), narrow = osh_min64(a->group, OSH_RESCALE_WIDEST),
            part = narrow * rows;
    room need = refine_room_of(a->I, a->group, rows);
    *t = (osh_refine_tile){
        .a = a, .f = &j->factors, .rows = rows, .groups = j->groups, .keeps_scales = j->all};
    t->panel = (osh_panel){.rows = rows, .grid = a->rule.grid, .dtype = a->rule.dtype};
    OSH_NEW(cx, t->q, need.floats);
    t->d = t->q + rows * a->I;
    t->g = t->d + rows * a->I;
    t->next = t->g + rows * a->I;
    t->scale = t->next + rows * a->I;
    t->zero = t->scale + rows * t->groups;
    t->panel.w = t->zero + rows * t->groups;
    t->panel.ne = t->panel.w + part;
    t->panel.q = t->panel.ne + part;
    t->panel.scale = t->panel.q + part;
    t->panel.zero = t->panel.scale + rows;
    t->lo = t->panel.zero + rows;
    t->hi = t->lo + rows;
    t->panel.strip = t->hi + rows;
    t->cost = t->panel.strip + OSH_PANEL_STRIP * narrow;
    t->zeros = (int32_t *)(t->cost + narrow);
    OSH_NEW(cx, t->loss, need.doubles);
    t->fit = t->loss + rows;
    OSH_NEW(cx, t->changes, need.changes);
    OSH_NEW(cx, t->n_changes, rows);
    OSH_NEW(cx, t->settled, 2 * rows);
    t->moved = t->settled + rows;
done:
    return rc;
}

static void refine_tile_free(osh_ctx *cx, osh_refine_tile *t)
{
    osh_free(cx, t->q);
    osh_free(cx, t->loss);
    osh_free(cx, t->changes);
    osh_free(cx, t->n_changes);
    osh_free(cx, t->settled);
}

osh_status osh_gptq_refine(osh_ctx *cx, const osh_gptq_refine_args *a)
{
    osh_status rc = OSH_OK;
    refine_job j = { // own
        .a = a, .rows = refine_tile_rows(a->O, a->row_block), .groups = osh_div_up(a->I, a->group)};
    j.n_tiles = osh_div_up(a->O, j.rows), j.all = refine_shares_all(a, j.rows);

    for (int i = 0; i < 256; i++) j.values[i] = osh_grid_value(&a->rule.grid, (int8_t)(uint8_t)i);
    OSH_TRY(osh_blas_open(cx));
    OSH_NEW(cx, j.tiles, osh_threads(cx));
    for (int i = 0; i < osh_threads(cx); i++) OSH_TRY(refine_tile_new(cx, &j.tiles[i], &j));
    OSH_NEW(cx, j.loss, (a->n_steps + 2) * j.n_tiles);
    if (j.all) OSH_NEW(cx, j.sums, j.n_tiles * j.groups * (j.groups + 1));
    OSH_TRY(osh_group_factors_init(cx, &j.factors, a, NULL));
    OSH_TRY(refine_run(cx, &j));
done:
    osh_group_factors_deinit(cx, &j.factors);
    osh_free(cx, j.sums);
    osh_free(cx, j.loss);
    for (int i = 0; j.tiles && i < osh_threads(cx); i++) refine_tile_free(cx, &j.tiles[i]);
    osh_free(cx, j.tiles);
    return rc;
}

osh_status osh_gptq_refine_host(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a)
{
    (void)d;
    return osh_gptq_refine(cx, a);
}

size_t osh_gptq_refine_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block, int n_threads)
{
    int64_t rows = refine_tile_rows(O, row_block), n_tiles = osh_div_up(O, rows),
            groups = osh_div_up(I, group);
    room need = refine_room_of(I, group, refine_padded_rows(rows));
    size_t tile = osh_mem_gross((size_t)need.floats * sizeof(float)) +
                  osh_mem_gross((size_t)need.doubles * 8) +
                  osh_mem_gross((size_t)need.changes * sizeof(osh_change)) +
                  osh_mem_gross((size_t)refine_padded_rows(rows) * 4) +
                  osh_mem_gross((size_t)refine_padded_rows(rows) * 2) + sizeof(osh_refine_tile);
    size_t bytes =
        (size_t)n_threads * tile + osh_mem_gross((OSH_REFINE_MOST + 2) * (size_t)n_tiles * 8);
    if (row_block >= O && O > rows)
        bytes += osh_mem_gross((size_t)(n_tiles * groups * (groups + 1)) * 8);
    if (row_block == 1 && group < I && group <= OSH_RESCALE_WIDEST)
        bytes += osh_group_factors_bytes(I, group, n_threads);
    return bytes;
}
