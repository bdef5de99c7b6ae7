/* gptq_solve.c - the GPTQ column loop over tiles of rows: inside a block a lane is a row (panel.h), behind it one sgemm
 * per tile. */
#include "ops/gptq_solve.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/panel.h"
#include "ops/cpu/vec.h"
#include "ops/kernel.h"

#include <assert.h>
#include <string.h>

typedef struct solve_worker { // own: w of p, tile and loss; the others point behind p.w
    osh_panel p;              // of a block: weights, errors negated, values before scaling, zeros; scales of all
    float *line;              // [I] a row of q, a row of the weight
    float *tile;              // own: [rows, I] the weight, solving order
    double *loss;             // own: [rows]
} solve_worker;

typedef struct solve_job {
    const osh_gptq_solve_args *a;
    solve_worker *workers;
    int64_t rows; // of a tile, a multiple of OSH_PANEL_STEP
} solve_job;

static void load_scales(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t n, int64_t rows)
{
    for (int64_t c = 0; c < a->n_scale_cols; c++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = (row + osh_min64(r, n - 1)) / a->row_block * a->n_scale_cols +
                         c; // padding repeats the last row
            me->p.scale[c * rows + r] = a->scale[at];
            me->p.zero[c * rows + r] = a->zero ? a->zero[at] : 0;
        }
}

/* The tile's rows in f32, columns in solving order. */
static void load_tile(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t n)
{
    const osh_tensor *w = a->target ? a->target : a->w;
    for (int64_t r = 0; r < n; r++) {
        float *to = me->tile + r * a->I;
        const void *from = osh_elem(w, (row + r) * a->I);
        if (!a->perm && !a->dead) {
            osh_to_f32(to, from, w->dtype, a->I);
            continue;
        }
        osh_to_f32(me->line, from, w->dtype, a->I);
        for (int64_t i = 0; i < a->I; i++) {
            int64_t c = a->perm ? a->perm[i] : i;
            to[i] = a->dead && a->dead[c] ? 0 : me->line[c];
        }
    }
}

/* Of a row of the tile what rounding to nearest leaves. */
static void leave_rest(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, float *w)
{
    enum { PIECE = 256 };
    float s[PIECE], zero[PIECE], part[PIECE];
    int64_t from = row / a->row_block * a->n_scale_cols;
    for (int64_t i = 0; i < a->I; i += PIECE) {
        int64_t n = osh_min64(PIECE, a->I - i), padded = osh_pad8(n);
        for (int64_t k = 0; k < padded; k++) { // padding repeats the last one
            int64_t at = from + a->col_scale[i + osh_min64(k, n - 1)];
            s[k] = a->scale[at], zero[k] = a->zero ? a->zero[at] : 0, part[k] = w[i + osh_min64(k, n - 1)];
        }
        osh_panel_rest(&me->p, part, s, zero, padded);
        memcpy(w + i, part, (size_t)n * sizeof *w);
    }
}

/* What rounding to nearest costs (ops/gptq_solve.c): e = d U^-1 of all rows of the tile at once. */
static void nearest_tile(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t n)
{
    for (int64_t r = 0; r < n; r++) leave_rest(a, me, row + r, me->tile + r * a->I);
    osh_blas()->strsm(CblasRowMajor, CblasRight, CblasUpper, CblasNoTrans, CblasNonUnit, (blasint)n, (blasint)a->I, 1,
                      a->u, (blasint)a->I, me->tile, (blasint)a->I);
    for (int64_t r = 0; r < n; r++) {
        const float *e = me->tile + r * a->I;
        a->loss[row + r] = 0;
        for (int64_t i = 0; i < a->I; i++) a->loss[row + r] += (double)e[i] * e[i] / 2;
    }
}

static void load_block(const osh_gptq_solve_args *a, solve_worker *me, int64_t n, int64_t rows, int64_t i1,
                       int64_t cols)
{
    if (n < rows) memset(me->p.w, 0, (size_t)(cols * rows) * sizeof *me->p.w);
    osh_panel_turn(me->p.w, rows, me->tile + i1, a->I, n, cols);
}

/* Which of the block's weights are 0 in the file. */
static void load_zeros(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t n, int64_t i1, int64_t cols)
{
    int64_t rows = me->p.rows;
    memset(me->p.zeros, 0, (size_t)(cols * rows) * sizeof *me->p.zeros);
    for (int64_t r = 0; r < n; r++) {
        osh_to_f32(me->line, osh_elem(a->w, (row + r) * a->I), a->w->dtype, a->I);
        for (int64_t j = 0; j < cols; j++)
            me->p.zeros[j * rows + r] = me->line[a->perm ? a->perm[i1 + j] : i1 + j] == 0;
    }
}

/* Of a row, the values q of the block's columns. */
static void store_codes(const osh_gptq_solve_args *a, const osh_grid *grid, int8_t *to, const float *q, int64_t i1,
                        int64_t cols)
{
    int8_t bytes[256];
    for (int64_t at = 0; at < cols; at += (int64_t)sizeof bytes) {
        int64_t n = osh_min64((int64_t)sizeof bytes, cols - at);
        if (a->fp8 && a->bits == 8) osh_from_f32(bytes, OSH_FP8, q + at, n);
        else
            for (int64_t j = 0; j < n; j++) bytes[j] = osh_grid_code(grid, q[at + j]);
        if (!a->perm) memcpy(to + i1 + at, bytes, (size_t)n);
        for (int64_t j = 0; a->perm && j < n; j++) to[a->perm[i1 + at + j]] = bytes[j];
    }
}

/* Behind the block's column loop, whose strip is free now. */
static void store_block(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t n, int64_t i1,
                        int64_t cols)
{
    int64_t rows = me->p.rows;
    osh_panel_squares(&me->p, me->loss, cols);
    for (int64_t r = 0; r < n; r += OSH_PANEL_STRIP) {
        osh_panel_turn(me->p.strip, cols, me->p.q + r, rows, cols, OSH_PANEL_STRIP);
        for (int64_t k = r; k < osh_min64(n, r + OSH_PANEL_STRIP); k++)
            store_codes(a, &me->p.grid, a->codes + (row + k) * a->I, me->p.strip + (k - r) * cols, i1, cols);
    }
    if (a->dq) osh_panel_turn(a->dq + row * a->I + i1, a->I, me->p.w, rows, cols, n);
}

static osh_status solve_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const solve_job *job = user;
    const osh_gptq_solve_args *a = job->a;
    solve_worker *me = &job->workers[worker];
    int64_t rows = job->rows, row = chunk * rows, n = osh_min64(rows, a->O - row);

    if (a->nearest && !osh_gptq_judges(a->O, row)) return OSH_OK;
    load_tile(a, me, row, n);
    if (a->nearest) {
        nearest_tile(a, me, row, n);
        return OSH_OK;
    }
    load_scales(a, me, row, n, rows);
    memset(me->loss, 0, (size_t)rows * sizeof *me->loss);
    for (int64_t i1 = 0; i1 < a->I; i1 += a->block_size) {
        int64_t cols = osh_min64(a->block_size, a->I - i1), i2 = i1 + cols;
        OSH_TRY(osh_check_interrupt(cx)); // of 28,672 columns a chunk takes seconds
        load_block(a, me, n, rows, i1, cols);
        if (me->p.zeros) load_zeros(a, me, row, n, i1, cols);
        osh_panel_solve(&me->p, a->u + i1 * a->I + i1, a->I, a->col_scale + i1, cols);
        store_block(a, me, row, n, i1, cols);
        if (i2 < a->I)
            osh_gemm_tn((osh_into){me->tile + i2, a->I, true}, (osh_mat){me->p.ne, rows},
                        (osh_mat){a->u + i1 * a->I + i2, a->I}, (osh_mnk){n, a->I - i2, cols});
    }
    memcpy(a->loss + row, me->loss, (size_t)n * sizeof *me->loss);
done:
    return rc;
}

/* Floats behind p.w, apart from the tile. */
static int64_t block_floats(int64_t I, int64_t n_scale_cols, int64_t block_size, int64_t rows)
{
    int64_t block = osh_min64(block_size, I);
    return (4 * block + 2 * n_scale_cols) * rows + OSH_PANEL_STRIP * block + I;
}

static osh_status worker_open(osh_ctx *cx, solve_worker *w, const osh_gptq_solve_args *a, int64_t rows)
{
    osh_status rc = OSH_OK;
    int64_t block = osh_min64(a->block_size, a->I);

    OSH_NEW(cx, w->loss, rows);
    w->p = (osh_panel){.rows = rows, .grid = osh_grid_of(a->bits, a->fp8), .dtype = a->dq_dtype};
    OSH_NEW(cx, w->p.w, block_floats(a->I, a->n_scale_cols, a->block_size, rows));
    w->p.ne = w->p.w + block * rows;
    w->p.q = w->p.ne + block * rows;
    w->p.zeros = a->keep_zeros ? w->p.q + block * rows : NULL;
    w->p.scale = w->p.q + 2 * block * rows;
    w->p.zero = w->p.scale + a->n_scale_cols * rows;
    w->p.strip = w->p.zero + a->n_scale_cols * rows;
    w->line = w->p.strip + OSH_PANEL_STRIP * block;
    w->tile = osh_alloc(cx, (size_t)(osh_min64(rows, a->O) * a->I) * sizeof *w->tile);
    if (!w->tile) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

osh_status osh_gptq_solve(osh_ctx *cx, const osh_gptq_solve_args *a)
{
    osh_status rc = OSH_OK;
    solve_job j = {.a = a, .rows = osh_gptq_tile_rows(a->O)};

    assert(!a->w->device && !a->w_out && !a->squares);
    OSH_TRY(osh_blas_open(cx));
    OSH_NEW(cx, j.workers, osh_threads(cx));
    for (int i = 0; i < osh_threads(cx); i++) OSH_TRY(worker_open(cx, &j.workers[i], a, j.rows));
    OSH_TRY(osh_parallel_for(cx, osh_div_up(a->O, j.rows), solve_chunk, &j));
done:
    for (int i = 0; j.workers && i < osh_threads(cx); i++) {
        osh_free(cx, j.workers[i].p.w);
        osh_free(cx, j.workers[i].tile);
        osh_free(cx, j.workers[i].loss);
    }
    osh_free(cx, j.workers);
    return rc;
}

size_t osh_gptq_solve_bytes(int64_t O, int64_t I, int64_t n_scale_cols, int64_t block_size, int n_threads)
{
    int64_t rows = osh_gptq_tile_rows(O), tile = osh_min64(rows, O) * I;
    int64_t block = block_floats(I, n_scale_cols, block_size, rows);
    size_t worker = osh_mem_gross((size_t)block * sizeof(float)) + osh_mem_gross((size_t)tile * sizeof(float)) +
                    osh_mem_gross((size_t)rows * sizeof(double));
    return (size_t)n_threads * worker + osh_mem_gross((size_t)n_threads * sizeof(solve_worker));
}
