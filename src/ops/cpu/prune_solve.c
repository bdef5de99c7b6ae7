/* prune_solve.c - SparseGPT's loop over tiles of rows: inside a block a lane is a row, behind it one sgemm per tile.
 * Which weights of a block become 0 is chosen over all rows, so that all tiles are through a block before the next. */
#include "ops/prune.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/gemm.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

enum { TILE_ROWS = 64 };

typedef struct prune_job {
    const osh_prune_solve_args *a;
    float *cost;   // own: [O, cols] of the block
    bool *zero;    // own: [O, I] was 0; NULL: not kept
    float *panels; // own: [threads, 2, cols, TILE_ROWS] weights, negated errors
    int64_t *zeros; // own: [tiles] of the block, kept
    int64_t i1, cols, room; // room: floats of a panel
    float most;    // up to here they become 0
    bool more;     // than those that are kept
} prune_job;

static int64_t tile_end(const prune_job *j, int64_t tile) { return osh_min64(j->a->O, (tile + 1) * TILE_ROWS); }
static float diag_at(const osh_prune_solve_args *a, int64_t i) { return a->u ? a->u[i * a->I + i] : 1; }

static osh_status mark_chunk(osh_ctx *cx, void *user, int64_t tile, int worker)
{
    const prune_job *j = user;
    int64_t I = j->a->I, n = (tile_end(j, tile) - tile * TILE_ROWS) * I;
    const float *w = j->a->w + tile * TILE_ROWS * I;
    bool *zero = j->zero + tile * TILE_ROWS * I;
    (void)cx, (void)worker;
    for (int64_t i = 0; i < n; i++) zero[i] = w[i] == 0;
    return OSH_OK;
}

static osh_status cost_chunk(osh_ctx *cx, void *user, int64_t tile, int worker)
{
    const prune_job *j = user;
    const osh_prune_solve_args *a = j->a;
    int64_t zeros = 0;
    (void)cx, (void)worker;
    for (int64_t r = tile * TILE_ROWS; r < tile_end(j, tile); r++)
        for (int64_t i = 0; i < j->cols; i++) {
            int64_t at = r * a->I + j->i1 + i;
            float w = a->w[at], d = diag_at(a, j->i1 + i);
            bool kept = j->zero && j->zero[at];
            j->cost[r * j->cols + i] = kept ? 0 : w * w / (d * d);
            zeros += kept;
        }
    j->zeros[tile] = zeros;
    return OSH_OK;
}

/* Of rows [0, n) of the panel n of columns [i, i + m): their costs become those of choose. */
static void choose_of_each(const prune_job *j, const float *w, int64_t row, int64_t n, int64_t i)
{
    const osh_prune_solve_args *a = j->a;
    float cost[64];
    for (int64_t r = 0; r < n; r++) {
        float *to = j->cost + (row + r) * j->cols + i;
        for (int64_t k = 0; k < a->m; k++) {
            float x = w[(i + k) * TILE_ROWS + r], d = diag_at(a, j->i1 + i + k);
            cost[k] = j->zero && j->zero[(row + r) * a->I + j->i1 + i + k] ? 0 : x * x / (d * d);
        }
        for (int64_t k = 0; k < a->m; k++) {
            int64_t before = 0;
            for (int64_t o = 0; o < a->m; o++) before += cost[o] < cost[k] || (cost[o] == cost[k] && o < k);
            bool kept = j->zero && j->zero[(row + r) * a->I + j->i1 + i + k];
            to[k] = before < a->n || kept ? 0 : INFINITY;
        }
    }
}

static void load_panel(const prune_job *j, float *w, int64_t row, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < j->cols; i++) w[i * TILE_ROWS + r] = j->a->w[(row + r) * j->a->I + j->i1 + i];
    for (int64_t r = n; r < TILE_ROWS; r++)
        for (int64_t i = 0; i < j->cols; i++) w[i * TILE_ROWS + r] = 0;
}

static void solve_panel(const prune_job *j, float *w, float *ne, int64_t row, int64_t n)
{
    const osh_prune_solve_args *a = j->a;
    for (int64_t i = 0; i < j->cols; i++) {
        float d = diag_at(a, j->i1 + i), *at = w + i * TILE_ROWS, *e = ne + i * TILE_ROWS;
        if (a->n && i % a->m == 0) choose_of_each(j, w, row, n, i);
        memset(e, 0, TILE_ROWS * sizeof *e);
        for (int64_t r = 0; r < n; r++) {
            bool kept = j->zero && j->zero[(row + r) * a->I + j->i1 + i];
            if (!j->more ? !kept : !(j->cost[(row + r) * j->cols + i] <= j->most)) continue;
            e[r] = -(at[r] / d), at[r] = 0;
            a->loss[row + r] += (double)e[r] * e[r] / 2;
        }
        if (!a->u) continue;
        const float *u = a->u + (j->i1 + i) * a->I + j->i1;
        for (int64_t k = i + 1; k < j->cols; k++) {
            float *to = w + k * TILE_ROWS, uk = u[k];
            for (int64_t r = 0; r < TILE_ROWS; r++) to[r] += e[r] * uk;
        }
    }
}

static osh_status solve_tile(osh_ctx *cx, void *user, int64_t tile, int worker)
{
    osh_status rc = OSH_OK;
    const prune_job *j = user;
    const osh_prune_solve_args *a = j->a;
    int64_t row = tile * TILE_ROWS, n = tile_end(j, tile) - row, i2 = j->i1 + j->cols;
    float *w = j->panels + 2 * worker * j->room, *ne = w + j->room;
    OSH_TRY(osh_check_interrupt(cx));
    load_panel(j, w, row, n);
    solve_panel(j, w, ne, row, n);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < j->cols; i++) a->w[(row + r) * a->I + j->i1 + i] = w[i * TILE_ROWS + r];
    if (!a->u || i2 >= a->I) goto done;
    osh_gemm_tn(a->w + row * a->I + i2, a->I, (osh_mat){ne, TILE_ROWS}, (osh_mat){a->u + j->i1 * a->I + i2, a->I}, n,
                a->I - i2, j->cols, 1);
    for (int64_t r = row; j->zero && r < row + n; r++)
        for (int64_t i = i2; i < a->I; i++)
            if (j->zero[r * a->I + i]) a->w[r * a->I + i] = 0;
done:
    return rc;
}

osh_status osh_prune_solve(osh_ctx *cx, const osh_prune_solve_args *a)
{
    osh_status rc = OSH_OK;
    prune_job j = {.a = a, .room = osh_min64(a->block_size, a->I) * TILE_ROWS, .more = true};
    int64_t tiles = osh_div_up(a->O, TILE_ROWS), less;
    OSH_TRY(osh_blas_open(cx));
    OSH_NEW(cx, j.cost, a->O * osh_min64(a->block_size, a->I));
    OSH_NEW(cx, j.zeros, tiles);
    OSH_NEW(cx, j.panels, osh_threads(cx) * 2 * j.room);
    if (a->keep) {
        OSH_NEW(cx, j.zero, a->O * a->I);
        OSH_TRY(osh_parallel_for(cx, tiles, mark_chunk, &j));
    }
    memset(a->loss, 0, (size_t)a->O * sizeof *a->loss);
    for (j.i1 = 0; j.i1 < a->I; j.i1 += a->block_size) {
        int64_t zeros = 0;
        j.cols = osh_min64(a->block_size, a->I - j.i1);
        int64_t n = a->O * j.cols, k = (int64_t)((double)n * a->sparsity);
        if (!a->n) {
            OSH_TRY(osh_parallel_for(cx, tiles, cost_chunk, &j));
            for (int64_t t = 0; t < tiles; t++) zeros += j.zeros[t];
            j.more = !a->keep || k > zeros;
            j.most = j.more ? osh_kth(j.cost, n, k < n ? k : n - 1, &less) : 0;
        }
        OSH_TRY(osh_parallel_for(cx, tiles, solve_tile, &j));
    }
done:
    osh_free(cx, j.cost);
    osh_free(cx, j.zeros);
    osh_free(cx, j.panels);
    osh_free(cx, j.zero);
    return rc;
}

size_t osh_prune_solve_bytes(const osh_prune_solve_args *a, int n_threads)
{
    int64_t cols = osh_min64(a->block_size, a->I);
    return osh_mem_gross((size_t)(a->O * cols) * sizeof(float)) +
           osh_mem_gross((size_t)osh_div_up(a->O, TILE_ROWS) * sizeof(int64_t)) +
           osh_mem_gross((size_t)(n_threads * 2 * cols * TILE_ROWS) * sizeof(float)) +
           (a->keep ? osh_mem_gross((size_t)(a->O * a->I)) : 0);
}
