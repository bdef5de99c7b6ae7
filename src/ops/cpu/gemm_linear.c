/* gemm_linear.c - computes the linear layer with OpenBLAS. y is cut into tiles of up to 256 rows
 * and up to 192 columns. Rows are counted from the first token of each sample. One call of sgemm
 * computes a tile, and sums over all I in_features. The tiles, and so the bytes, do not depend on
 * threads or on the batch. */
#include "ops/cpu/gemm_linear.h"
#include "math/blas.h"
#include "math/gemm.h"

typedef struct linear_worker {
    float *w; // own [OSH_GEMM_COLS, I], in f32: rows of the weight for one block of columns of y
    float *y;      // one tile of y, [OSH_GEMM_ROWS, OSH_GEMM_COLS]; own
    /* `w` has the rows of the weight for one block of columns of y. This is the index of the block;
     * -1: `w` is empty. */
    int64_t block;
} linear_worker;

typedef struct linear_job {
    const osh_tensor *w;
    osh_tensor *y;
    /* The tiles of the current panel. A panel is rows of x that are converted to f32 together. */
    const osh_tile *tiles; // view
    int64_t n_tiles, I, O, first_row;
    osh_dtype dtype;
    const float *x;    // view [rows of the panel, I], in f32: the rows of the panel
    const float *bias; // bias in f32, [O]; NULL: no bias; view
    linear_worker *workers;
} linear_job;

static osh_status linear_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_job *j = user;
    linear_worker *me = &j->workers[worker];
    int64_t block = chunk / j->n_tiles, col = block * OSH_GEMM_COLS,
            n = osh_min64(OSH_GEMM_COLS, j->O - col);
    const osh_tile *t = &j->tiles[chunk % j->n_tiles];

    (void)cx;
    if (me->block != block) osh_load_weight(me->w, j->w, col * j->I, n * j->I, j->dtype);
    me->block = block;
    osh_gemm_nt((osh_into){me->y, n, false}, (osh_mat){j->x + (t->row - j->first_row) * j->I, j->I},
                (osh_mat){me->w, j->I}, (osh_mnk){t->n, n, j->I});
    for (int64_t r = 0; r < t->n; r++) {
        float *row = me->y + r * n;
        if (j->bias)
            for (int64_t o = 0; o < n; o++) row[o] += j->bias[col + o];
        osh_from_f32(osh_elem(j->y, (t->row + r) * j->O + col), j->y->dtype, row, n);
    }
    return OSH_OK;
}

/* These functions return the number of floats of the arrays linear_worker.w and linear_worker.y,
 * for `cols` columns of y. */
static int64_t linear_weight_floats(int64_t cols, int64_t I) { return cols * I; }
static int64_t linear_tile_floats(int64_t cols) { return cols * OSH_GEMM_ROWS; }

static osh_status linear_workers_new(osh_ctx *cx, linear_worker **out, int64_t I, int64_t O)
{
    osh_status rc = OSH_OK;
    int n = osh_threads(cx);
    int64_t cols = osh_min64(O, OSH_GEMM_COLS);
    linear_worker *w = NULL;

    OSH_NEW(cx, w, n);
    // set now, so that linear_workers_free frees w if an allocation below fails
    *out = w;
    for (int i = 0; i < n; i++) {
        w[i].block = -1;
        if (!(w[i].w = osh_alloc(cx, (size_t)linear_weight_floats(cols, I) * sizeof(float))))
            return OSH_E_NOMEM;
        if (!(w[i].y = osh_alloc(cx, (size_t)linear_tile_floats(cols) * sizeof(float))))
            return OSH_E_NOMEM;
    }
done:
    return rc;
}

static void linear_workers_free(osh_ctx *cx, linear_worker *w)
{
    for (int i = 0; w && i < osh_threads(cx); i++) {
        osh_free(cx, w[i].y);
        osh_free(cx, w[i].w);
    }
    osh_free(cx, w);
}

osh_status osh_gemm_linear(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w,
                           const osh_tensor *bias, const osh_seqs *seqs)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(x), I = osh_width(x), O = w->shape[0], n_tiles = 0, end = 0;
    osh_tile *tiles = NULL; // own
    /* xf: the rows of a panel in f32, [rows, I]; NULL if x is F32.
     * b: the bias in f32, [O]; NULL if the op has no bias. */
    float *xf = NULL, *b = NULL;    // own
    linear_worker *workers = NULL;  // own

    OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, seqs, N, OSH_GEMM_ROWS));
    OSH_TRY(linear_workers_new(cx, &workers, I, O));
    if (bias) OSH_TRY(osh_f32_weight(cx, &b, bias, x->dtype));
    if (x->dtype != OSH_F32) {
        xf = osh_alloc(cx, (size_t)osh_panel_floats(N, I) * sizeof *xf);
        if (!xf) OSH_TRY(OSH_E_NOMEM);
    }
    for (int64_t first = 0; first < n_tiles; first = end) {
        end = osh_tiles_panel(tiles, n_tiles, first, OSH_GEMM_PANEL);
        int64_t row = tiles[first].row, n_rows = tiles[end - 1].row + tiles[end - 1].n - row;
        if (xf) OSH_TRY(osh_widen_rows(cx, xf, x, row, n_rows));
        linear_job j = {.w = w, .y = y, .tiles = tiles + first, .n_tiles = end - first, .I = I,
                        .O = O, .bias = b, .first_row = row, .dtype = x->dtype,
                        .x = xf ? xf : (float *)x->data + row * I, .workers = workers};
        OSH_TRY(osh_parallel_for(cx, osh_div_up(O, OSH_GEMM_COLS) * j.n_tiles, linear_chunk, &j));
    }
done:
    linear_workers_free(cx, workers);
    osh_free(cx, xf);
    osh_free(cx, b);
    osh_free(cx, tiles);
    return rc;
}

size_t osh_gemm_scratch(int64_t I, int64_t n_tokens, int n_threads)
{
    int64_t worker = linear_weight_floats(OSH_GEMM_COLS, I) + linear_tile_floats(OSH_GEMM_COLS);

    return (size_t)(osh_panel_floats(n_tokens, I) + n_threads * worker) * sizeof(float) +
           (size_t)n_tokens * sizeof(osh_tile);
}
