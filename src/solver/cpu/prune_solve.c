/* prune_solve.c - runs SparseGPT's loop over tiles of rows. Inside a block of columns each vector
 * lane has its own row. After a block, one matrix product per tile updates the later columns.
 * Without an n:m pattern, the weights with the lowest costs in a block of columns are pruned, in
 * whatever rows they are. So all tiles finish a block before the next block begins. */
#include "base/isa.h"
#include "solver/prune.h"
#include "math/blas.h"
#include "math/gemm.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

enum { TILE_ROWS = 64, HALF_VECTORS = TILE_ROWS / 2 / OSH_LANES };

typedef struct prune_job {
    const osh_prune_solve_args *a;
    float *cost;   // own [O, cols]: cost of each weight in the current block of columns
    /* For each weight, [O, I]: true if it was 0 before pruning and must remain 0. NULL: there is no
     * such rule. */
    bool *zero;    // own
    /* [threads, 2, cols, TILE_ROWS]: weights of a block, and their costs. Negated errors later
     * overwrite the costs. */
    float *panels; // own
    /* Own [tiles]: number of weights of the current block that were 0 before pruning. */
    int64_t *zeros;
    /* i1: first column of the current block.
     * cols: number of columns of the current block.
     * room: number of floats of one panel, [cols, TILE_ROWS]. */
    int64_t i1, cols, room;
    float most;    // weights of the current block become 0 if their cost is at most this
    /* True: the current block needs more zeros than it had before pruning. */
    bool more;
} prune_job;

static int64_t prune_tile_end(const prune_job *j, int64_t tile)
{
    return osh_min64(j->a->O, (tile + 1) * TILE_ROWS);
}
static float prune_diag_at(const osh_prune_solve_args *a, int64_t i)
{
    return a->u ? a->u[i * a->I + i] : 1;
}

static osh_status prune_mark_chunk(osh_ctx *cx, void *user, int64_t tile, int worker)
{
    const prune_job *j = user;
    int64_t I = j->a->I, n = (prune_tile_end(j, tile) - tile * TILE_ROWS) * I;
    const float *w = j->a->w + tile * TILE_ROWS * I;
    bool *zero = j->zero + tile * TILE_ROWS * I;
    (void)cx, (void)worker;
    for (int64_t i = 0; i < n; i++) zero[i] = w[i] == 0;
    return OSH_OK;
}

static osh_status prune_cost_chunk(osh_ctx *cx, void *user, int64_t tile, int worker)
{
    const prune_job *j = user;
    const osh_prune_solve_args *a = j->a;
    int64_t zeros = 0;
    (void)cx, (void)worker;
    for (int64_t r = tile * TILE_ROWS; r < prune_tile_end(j, tile); r++)
        for (int64_t i = 0; i < j->cols; i++) {
            int64_t at = r * a->I + j->i1 + i;
            float w = a->w[at], d = prune_diag_at(a, j->i1 + i);
            bool kept = j->zero && j->zero[at];
            j->cost[r * j->cols + i] = kept ? 0 : w * w / (d * d);
            zeros += kept;
        }
    j->zeros[tile] = zeros;
    return OSH_OK;
}

static bool prune_is_kept(const prune_job *j, int64_t row, int64_t column)
{
    return j->zero && j->zero[row * j->a->I + column];
}

/* In each of the n rows of the panel, chooses the a->n columns with the lowest costs among the
 * columns [i, i + a->m). Sets the costs of these columns to 0, and the costs of the others to
 * infinity. Each lane has its own row; lanes after the last row are not used. */
OSH_VEC_FN void choose_body(const prune_job *j, const float *w, float *cost, int64_t row, int64_t n,
                            int64_t i)
{
    const osh_prune_solve_args *a = j->a;
    osh_v8f of[64], inf, none = {0};
    osh_v8i n_before = {0};
    v8_set(&inf, INFINITY);
    n_before += (int32_t)a->n;
    for (int64_t r = 0; r < n; r += OSH_LANES) {
        int64_t lanes = j->zero ? osh_min64(n - r, OSH_LANES) : 0;
        for (int64_t k = 0; k < a->m; k++) {
            float d = prune_diag_at(a, j->i1 + i + k);
            osh_v8f x;
            v8_load(&x, w + (i + k) * TILE_ROWS + r);
            of[k] = x * x / (d * d);
            for (int64_t l = 0; l < lanes; l++)
                if (prune_is_kept(j, row + r + l, j->i1 + i + k)) of[k][l] = 0;
        }
        for (int64_t k = 0; k < a->m; k++) {
            // number of columns that come before column k: those with a lower cost, and those with
            // an equal cost and a smaller index
            osh_v8i before = {0};
            for (int64_t o = 0; o < k; o++) before -= of[o] <= of[k];
            for (int64_t o = k + 1; o < a->m; o++) before -= of[o] < of[k];
            osh_v8i chosen = before < n_before;
            for (int64_t l = 0; l < lanes; l++)
                if (prune_is_kept(j, row + r + l, j->i1 + i + k)) chosen[l] = -1;
            osh_v8f x;
            v8_select(&x, &chosen, &none, &inf);
            v8_store(cost + (i + k) * TILE_ROWS + r, &x);
        }
    }
}

/* Loads the costs of n rows of the current block into a panel. Used only without an n:m pattern. */
static void prune_load_costs(const prune_job *j, float *cost, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < j->cols; i++)
        for (int64_t r = 0; r < TILE_ROWS; r++)
            cost[i * TILE_ROWS + r] = r >= n    ? INFINITY
                                      : j->more ? j->cost[(row + r) * j->cols + i]
                                      : prune_is_kept(j, row + r, j->i1 + i) ? 0
                                                                             : INFINITY;
}

static void prune_load_panel(const prune_job *j, float *w, int64_t row, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < j->cols; i++)
            w[i * TILE_ROWS + r] = j->a->w[(row + r) * j->a->I + j->i1 + i];
    for (int64_t r = n; r < TILE_ROWS; r++)
        for (int64_t i = 0; i < j->cols; i++) w[i * TILE_ROWS + r] = 0;
}

/* Sets column i to 0 in the rows whose cost is at most j->most. `ne` contains the costs of the
 * column on entry. On return it contains the negated errors of these rows, and 0 for the other
 * rows. */
OSH_VEC_FN void drop_body(const prune_job *j, float *w, float *ne, int64_t row, int64_t n,
                          int64_t i)
{
    float d = prune_diag_at(j->a, j->i1 + i), *at = w + i * TILE_ROWS, *e = ne + i * TILE_ROWS;
    double *loss = j->a->loss + row;
    osh_v8f most, x, err, none = {0};
    v8_set(&most, j->most);
    for (int64_t r = 0; r < TILE_ROWS; r += OSH_LANES) {
        v8_load(&err, e + r);
        v8_load(&x, at + r);
        osh_v8i drop = err <= most;
        err = -(x / d);
        v8_select(&err, &drop, &err, &none);
        v8_select(&x, &drop, &none, &x);
        v8_store(e + r, &err);
        v8_store(at + r, &x);
    }
    for (int64_t r = 0; r < n; r++) loss[r] += (double)e[r] * e[r] / 2;
}

OSH_VEC_FN void prune_solve_body(const prune_job *j, float *w, float *ne, int64_t row, int64_t n)
{
    const osh_prune_solve_args *a = j->a;
    for (int64_t i = 0; i < j->cols; i++) {
        if (a->n && i % a->m == 0) choose_body(j, w, ne, row, n, i);
        drop_body(j, w, ne, row, n, i);
        if (!a->u) continue;
        const float *u = a->u + (j->i1 + i) * a->I + j->i1;
        // The loop processes half of the tile's rows at a time, so that the errors fit into
        // registers.
        for (int64_t half = 0; half < TILE_ROWS; half += TILE_ROWS / 2) {
            osh_v8f e[HALF_VECTORS], x;
            for (int v = 0; v < HALF_VECTORS; v++)
                v8_load(&e[v], ne + i * TILE_ROWS + half + v * OSH_LANES);
            for (int64_t k = i + 1; k < j->cols; k++)
                for (int v = 0; v < HALF_VECTORS; v++) {
                    float *to = w + k * TILE_ROWS + half + v * OSH_LANES;
                    v8_load(&x, to);
                    x += e[v] * u[k];
                    v8_store(to, &x);
                }
        }
    }
}

OSH_AVX2 static void prune_solve_avx2(const prune_job *j, float *w, float *ne, int64_t row,
                                      int64_t n)
{
    prune_solve_body(j, w, ne, row, n);
}

static void prune_solve_panel(const prune_job *j, float *w, float *ne, int64_t row, int64_t n)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) prune_solve_avx2(j, w, ne, row, n);
    else prune_solve_body(j, w, ne, row, n);
}

static osh_status prune_solve_tile(osh_ctx *cx, void *user, int64_t tile, int worker)
{
    osh_status rc = OSH_OK;
    const prune_job *j = user;
    const osh_prune_solve_args *a = j->a;
    int64_t row = tile * TILE_ROWS, n = prune_tile_end(j, tile) - row, i2 = j->i1 + j->cols;
    float *w = j->panels + 2 * worker * j->room, *ne = w + j->room;
    OSH_TRY(osh_check_interrupt(cx));
    prune_load_panel(j, w, row, n);
    if (!a->n) prune_load_costs(j, ne, row, n);
    prune_solve_panel(j, w, ne, row, n);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < j->cols; i++)
            a->w[(row + r) * a->I + j->i1 + i] = w[i * TILE_ROWS + r];
    if (!a->u || i2 >= a->I) goto done;
    osh_gemm_tn((osh_into){a->w + row * a->I + i2, a->I, true}, (osh_mat){ne, TILE_ROWS},
                (osh_mat){a->u + j->i1 * a->I + i2, a->I}, (osh_mnk){n, a->I - i2, j->cols});
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
    int64_t tiles = osh_div_up(a->O, TILE_ROWS);
    OSH_TRY(osh_blas_open(cx));
    OSH_NEW(cx, j.cost, a->O * osh_min64(a->block_size, a->I));
    OSH_NEW(cx, j.zeros, tiles);
    OSH_NEW(cx, j.panels, osh_threads(cx) * 2 * j.room);
    if (a->keep) {
        OSH_NEW(cx, j.zero, a->O * a->I);
        OSH_TRY(osh_parallel_for(cx, tiles, prune_mark_chunk, &j));
    }
    memset(a->loss, 0, (size_t)a->O * sizeof *a->loss);
    for (j.i1 = 0; j.i1 < a->I; j.i1 += a->block_size) {
        int64_t zeros = 0;
        j.cols = osh_min64(a->block_size, a->I - j.i1);
        int64_t n = a->O * j.cols, k = (int64_t)((double)n * a->sparsity);
        if (!a->n) {
            OSH_TRY(osh_parallel_for(cx, tiles, prune_cost_chunk, &j));
            for (int64_t t = 0; t < tiles; t++) zeros += j.zeros[t];
            j.more = !a->keep || k > zeros;
            j.most = j.more ? osh_prune_most(j.cost, n, k < n ? k + 1 : n, !a->u) : 0;
        }
        OSH_TRY(osh_parallel_for(cx, tiles, prune_solve_tile, &j));
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
