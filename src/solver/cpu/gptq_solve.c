/* gptq_solve.c - runs the GPTQ column loop over tiles of rows. A tile is one or two panels
 * (panel.h) of 64 rows, transposed, so that each vector lane has its own row. The columns of
 * w [I, 64] are in solving order, and are quantized block by block:
 *
 *   - A column takes in the negated errors ne [block, 64] of the earlier columns of its block.
 *   - After a block, U^T ne is added to w of all later columns, six columns at once
 *     (osh_panel_update).
 *   - After the last block, the codes, which are bytes [I, 64], are transposed back.
 *
 * A panel of 2,048 columns is 512 KiB and fits into the second-level cache of a CPU core. Panels
 * have 32 rows if smaller panels divide the rows more evenly among the threads. For example, 576
 * rows are 9 panels of 64 rows, so one of two threads gets 5 panels and the other gets 4. With 18
 * panels of 32 rows each thread gets 9 panels. The result depends only on how columns are cut into
 * blocks, not on other rows or on threads. */
#include "solver/gptq_solve.h"
#include "math/blas.h"
#include "solver/columns.h"
#include "solver/cpu/panel.h"
#include "ops/kernel.h"

#include <assert.h>
#include <string.h>

/* MOST_PANELS: largest number of panels of a tile.
 * SLAB: number of columns that one call of osh_panel_update changes.
 * LINES: number of rows that are transposed at once. */
enum { MOST_PANELS = 2, SLAB = 48, LINES = 8 };

typedef struct tiling { // how the rows of a weight are divided into tiles of panels
    int panels;   // number of panels of a tile
    int64_t rows; // number of rows of a panel
} tiling;

typedef struct solve_worker {
    /* The panels of the current tile. Their pointers are views that begin at the current block of
     * columns. All panels share the scratch q, zeros and strip. */
    osh_panel p[MOST_PANELS];
    float *floats;            // own: memory for the pointers of the panels, and for `line`
    float *line;              // view of `floats`, [LINES, I]: rows of the weight
    float *tile; // own [panels, I, rows]: weights of the tile, columns in solving order
    int8_t *codes;            // own [panels, I, rows]: codes of the tile
    double *loss;             // own: [panels, rows]
} solve_worker;

typedef struct solve_job {
    const osh_gptq_solve_args *a;
    solve_worker *workers;
    int32_t *at; // own [I]: position of each column in solving order
    tiling by;
    int64_t step; // only rows 0, step, 2 step, ... of the weight are solved
} solve_job;

typedef struct rows { // the n rows of the weight that one panel contains: row, row + step, ...
    int panel;
    int64_t row, n, step;
} rows;

static float *solve_panel_of(const solve_job *j, const solve_worker *me, int panel)
{
    return me->tile + panel * j->a->I * j->by.rows;
}

static void solve_load_scales(const osh_gptq_solve_args *a, osh_panel *p, const rows *w)
{
    for (int64_t c = 0; c < a->n_scale_cols; c++)
        for (int64_t r = 0; r < p->rows; r++) {
            /* A panel may have more rows than the n that it uses. The unused rows get the scales of
             * the last used row. */
            int64_t at =
                (w->row + osh_min64(r, w->n - 1) * w->step) / a->row_block * a->n_scale_cols + c;
            p->scale[c * p->rows + r] = a->scale[at];
            p->zero[c * p->rows + r] = a->zero ? a->zero[at] : 0;
        }
}

/* Loads rows of the weight into a panel as f32, with columns in solving order. Dead columns, whose
 * input is always 0, become 0. */
static void solve_load_panel(const solve_job *j, solve_worker *me, const rows *which)
{
    const osh_gptq_solve_args *a = j->a;
    const osh_tensor *w = a->target ? a->target : a->w;
    float *to = solve_panel_of(j, me, which->panel);
    int64_t each = j->by.rows;
    if (which->n < each) memset(to, 0, (size_t)(a->I * each) * sizeof *to);
    for (int64_t r = 0; r < which->n; r += LINES) {
        int64_t n = osh_min64(LINES, which->n - r);
        for (int64_t k = 0; k < n; k++)
            osh_to_f32(me->line + k * a->I,
                       osh_elem(w, (which->row + (r + k) * which->step) * a->I), w->dtype, a->I);
        osh_panel_lay(to + r, each, (osh_mat){me->line, a->I}, n, a->I, j->at);
    }
    for (int64_t c = 0; a->dead && c < a->I; c++)
        if (a->dead[c]) memset(to + j->at[c] * each, 0, (size_t)each * sizeof *to);
}

/* For the columns of one block: sets the elements of me->zeros to 1 for weights that are 0 in a->w,
 * and to 0 for all others. */
static void solve_load_zeros(const osh_gptq_solve_args *a, solve_worker *me, const rows *w,
                             int64_t i1, int64_t cols)
{
    float *zeros = me->p->zeros;
    int64_t each = me->p->rows;
    memset(zeros, 0, (size_t)(cols * each) * sizeof *zeros);
    for (int64_t r = 0; r < w->n; r++) {
        osh_to_f32(me->line, osh_elem(a->w, (w->row + r) * a->I), a->w->dtype, a->I);
        for (int64_t j = 0; j < cols; j++)
            zeros[j * each + r] = me->line[a->perm ? a->perm[i1 + j] : i1 + j] == 0;
    }
}

/* Solves the columns of one block in one panel. Stores the codes and losses, and if a->dq is set,
 * the dequantized weights. */
static void solve_panel_block(const solve_job *j, solve_worker *me, const rows *w, int64_t i1,
                              int64_t cols)
{
    const osh_gptq_solve_args *a = j->a;
    osh_panel *p = &me->p[w->panel];
    int64_t from = w->panel * a->I + i1;
    p->w = me->tile + from * p->rows;
    if (p->zeros) solve_load_zeros(a, me, w, i1, cols);
    osh_panel_solve(p, a->u + i1 * a->I + i1, a->I, a->col_scale + i1, cols);
    osh_panel_squares(p, me->loss + w->panel * p->rows, cols);
    if (a->nearest) return;
    osh_panel_bytes(me->codes + from * p->rows, &p->grid, p->q, cols * p->rows);
    if (a->dq) osh_panel_turn(a->dq + w->row * a->I + i1, a->I, p->w, p->rows, cols, w->n);
}

/* Loads the weights and scales of a panel. If a->nearest is true, rounds each weight to nearest and
 * replaces the weight by its rounding error. The column loop then works on these errors
 * (solver/gptq_solve.c). */
static void solve_begin_panel(const solve_job *j, solve_worker *me, const rows *w)
{
    const osh_gptq_solve_args *a = j->a;
    osh_panel *p = &me->p[w->panel];
    solve_load_panel(j, me, w);
    solve_load_scales(a, p, w);
    p->w = solve_panel_of(j, me, w->panel);
    if (a->nearest) osh_panel_rest(p, a->col_scale, a->I);
}

/* Adds the errors of columns [i1, i2) to the later columns of all panels. */
static void solve_update_rest(const solve_job *j, solve_worker *me, int panels, int64_t i1,
                              int64_t i2)
{
    int64_t I = j->a->I;
    for (int64_t c = i2; c < I; c += SLAB)
        for (int k = 0; k < panels; k++)
            osh_panel_update(solve_panel_of(j, me, k) + c * j->by.rows,
                             (osh_mat){j->a->u + c * I + i1, I}, (osh_mat){me->p[k].ne, j->by.rows},
                             osh_min64(SLAB, I - c), i2 - i1);
}

static osh_status solve_tile_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const solve_job *job = user;
    const osh_gptq_solve_args *a = job->a;
    solve_worker *me = &job->workers[worker];
    int64_t each = job->by.rows, tile = job->by.panels * each;
    int64_t first = chunk * tile, n = osh_min64(tile, osh_div_up(a->O, job->step) - first);
    int panels = (int)osh_div_up(n, each);
    rows part[MOST_PANELS];

    for (int k = 0; k < panels; k++) {
        part[k] =
            (rows){k, (first + k * each) * job->step, osh_min64(each, n - k * each), job->step};
        solve_begin_panel(job, me, &part[k]);
    }
    memset(me->loss, 0, (size_t)(panels * each) * sizeof *me->loss);
    for (int64_t i1 = 0; i1 < a->I; i1 += a->block_size) {
        int64_t i2 = osh_min64(i1 + a->block_size, a->I);
        // A tile with 28,672 columns takes seconds, so an interrupt is checked after each block.
        OSH_TRY(osh_check_interrupt(cx));
        for (int k = 0; k < panels; k++) solve_panel_block(job, me, &part[k], i1, i2 - i1);
        solve_update_rest(job, me, panels, i1, i2);
    }
    for (int k = 0; k < panels && !a->nearest; k++)
        osh_panel_codes(a->codes + part[k].row * a->I, a->I,
                        (osh_panel_turned){me->codes + k * a->I * each, each}, job->at, part[k].n,
                        a->I);
    for (int64_t r = 0; r < n; r++) a->loss[(first + r) * job->step] = me->loss[r];
done:
    return rc;
}

/* Possible divisions of rows into tiles. `cost`: time per row; that of the first division is
 * 100. */
static const struct {
    tiling by;
    int64_t cost;
} kinds[] = {{{2, 64}, 100}, {{1, 64}, 103}, {{1, 32}, 110}};

/* Returns the index in kinds[] of the division of n rows that needs the least time. Considers only
 * the indices `from` and above. */
static int solve_kind_of(int64_t n, int n_threads, int from)
{
    int best = from;
    int64_t least = INT64_MAX;
    for (int k = from; k < 3; k++) {
        int64_t tile = kinds[k].by.panels * kinds[k].by.rows;
        int64_t took = osh_div_up(osh_div_up(n, tile), n_threads) * tile * kinds[k].cost;
        if (took < least) least = took, best = k;
    }
    return best;
}

static int solve_kind_of_all(int64_t O, int n_threads)
{
    return solve_kind_of(O, n_threads, O < 1024);
}

/* Returns the number of elements of solve_worker.floats. They contain the errors and scales of each
 * panel, scratch that all panels share, and `line`. */
static int64_t solve_block_floats(int64_t I, int64_t n_scale_cols, int64_t block_size, tiling by)
{
    int64_t block = osh_min64(block_size, I);
    return (by.panels * (block + 2 * n_scale_cols) + 2 * block) * by.rows +
           OSH_PANEL_STRIP * block + LINES * I;
}

static osh_status solve_worker_open(osh_ctx *cx, solve_worker *w, const osh_gptq_solve_args *a,
                                    tiling by)
{
    osh_status rc = OSH_OK;
    int64_t block = osh_min64(a->block_size, a->I), tile = by.panels * a->I * by.rows;

    OSH_NEW(cx, w->loss, by.panels * by.rows);
    OSH_NEW(cx, w->floats, solve_block_floats(a->I, a->n_scale_cols, a->block_size, by));
    float *next = w->floats, *q = next, *zeros = q + block * by.rows;
    next += 2 * block * by.rows;
    for (int k = 0; k < by.panels; k++) {
        osh_panel *p = &w->p[k];
        *p = (osh_panel){.rows = by.rows,
                         .grid = osh_grid_of(a->bits, a->fp8),
                         .dtype = a->dq_dtype,
                         .ne = next,
                         .q = q,
                         .zeros = a->keep_zeros ? zeros : NULL,
                         .nearest = a->nearest};
        p->scale = p->ne + block * by.rows;
        p->zero = p->scale + a->n_scale_cols * by.rows;
        next = p->zero + a->n_scale_cols * by.rows;
    }
    for (int k = 0; k < by.panels; k++) w->p[k].strip = next;
    w->line = next + OSH_PANEL_STRIP * block;
    w->tile = osh_alloc(cx, (size_t)tile * sizeof *w->tile);
    w->codes = w->tile ? osh_alloc(cx, (size_t)tile) : NULL;
    if (!w->codes) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

osh_status osh_gptq_solve(osh_ctx *cx, const osh_gptq_solve_args *a)
{
    osh_status rc = OSH_OK;
    solve_job j = {.a = a, .step = a->nearest ? osh_gptq_judge_step(a->O) : 1};
    int64_t n_rows = osh_div_up(a->O, j.step);

    assert(!a->w->device && !a->w_out && !a->squares);
    OSH_TRY(osh_blas_open(cx));
    int kind = solve_kind_of_all(a->O, osh_threads(cx));
    // A solve of the judged rows (osh_gptq_judges) must not need more scratch than a solve of all
    // rows. A division in kinds[] needs at most as much scratch as the divisions before it. So the
    // judged rows use `kind` or a later division.
    if (a->nearest) kind = solve_kind_of(n_rows, osh_threads(cx), kind);
    j.by = kinds[kind].by;
    OSH_NEW(cx, j.at, a->I);
    for (int64_t i = 0; i < a->I; i++) j.at[a->perm ? a->perm[i] : i] = (int32_t)i;
    OSH_NEW(cx, j.workers, osh_threads(cx));
    for (int i = 0; i < osh_threads(cx); i++)
        OSH_TRY(solve_worker_open(cx, &j.workers[i], a, j.by));
    OSH_TRY(
        osh_parallel_for(cx, osh_div_up(n_rows, j.by.panels * j.by.rows), solve_tile_chunk, &j));
done:
    for (int i = 0; j.workers && i < osh_threads(cx); i++) {
        osh_free(cx, j.workers[i].floats);
        osh_free(cx, j.workers[i].tile);
        osh_free(cx, j.workers[i].codes);
        osh_free(cx, j.workers[i].loss);
    }
    osh_free(cx, j.workers);
    osh_free(cx, j.at);
    return rc;
}

osh_status osh_gptq_solve_host(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n)
{
    osh_status rc = OSH_OK;
    (void)d;
    for (int k = 0; k < n && !rc; k++) rc = osh_gptq_solve(cx, &jobs[k]);
    return rc;
}

size_t osh_gptq_solve_bytes(int64_t O, int64_t I, int64_t n_scale_cols, int64_t block_size,
                            int n_threads)
{
    tiling by = kinds[solve_kind_of_all(O, n_threads)].by;
    int64_t tile = by.panels * I * by.rows,
            block = solve_block_floats(I, n_scale_cols, block_size, by);
    size_t worker = osh_mem_gross((size_t)block * sizeof(float)) +
                    osh_mem_gross((size_t)tile * sizeof(float)) + osh_mem_gross((size_t)tile) +
                    osh_mem_gross((size_t)(by.panels * by.rows) * sizeof(double));
    return (size_t)n_threads * worker + osh_mem_gross((size_t)n_threads * sizeof(solve_worker)) +
           osh_mem_gross((size_t)I * sizeof(int32_t));
}
