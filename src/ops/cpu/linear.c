/* linear.c - computes the linear layer y = x W^T + b with one of three kernels. pairs_linear.c is
 * used for BF16 with AVX-512 BF16 or AMX. This file has the kernel for AVX2. gemm_linear.c is used
 * otherwise. With AVX2, y is cut into blocks of 96 columns. The rows of W for a block are converted
 * to f32 and packed once for up to 528 rows of y. */
#include "base/isa.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/cpu/gemm_linear.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "math/tile.h"
#include "ops/kernel.h"

enum {
    /* Number of columns of y that are computed together. W, packed for COLS columns and DEPTH
     * in_features, fits in the L2 cache. */
    COLS = 96,
    /* Number of rows of y that are computed together. The sums, ROWS x COLS elements, also fit in
     * the L2 cache. */
    ROWS = 528,
    /* Number of rows of y that are computed together, if there are too few blocks of columns to
     * keep all threads busy. Otherwise ROWS rows are computed together. */
    FEW = 264,
    DEPTH = 640, // largest number of in_features in one partial sum
    STRIP = 128  // number of elements of a row of W that are converted to f32 at a time
};

typedef struct worker {
    float *packed;     // packed rows of W, [COLS / 16][depth][16]
    float *strip;      // [16, STRIP], in f32: elements of W that linear_pack packs next
    float *y;          // sums, [ROWS, COLS]
    /* `packed` has the rows of W for one block of columns of y, and each row has all in_features.
     * `block` is the index of this block; -1: `packed` is empty. */
    int64_t block;
} worker;

typedef struct job {
    const osh_tensor *w;
    osh_tensor *y;
    const float *x;    // view: [n_rows, I]
    const float *bias; // bias in f32, [O]; NULL: no bias; view
    int64_t first_row, n_rows, rows, n_parts, I, O, depth;
    osh_dtype dtype;
    worker *workers;
} job;

/* Returns the number of in_features of one partial sum. It is a multiple of 8 and at most DEPTH.
 * The last partial sum may have fewer in_features. */
static int64_t linear_depth(int64_t I)
{
    int64_t parts = osh_div_up(I, DEPTH);
    return osh_div_up(osh_div_up(I, parts), 8) * 8;
}

static void linear_pack(const job *j, worker *me, int64_t col, int64_t n, int64_t k0, int64_t k)
{
    for (int64_t c = 0; c < n; c += OSH_TILE_COLS) {
        int64_t rows = osh_min64(OSH_TILE_COLS, n - c);
        for (int64_t s = 0; s < k; s += STRIP) {
            int64_t len = osh_min64(STRIP, k - s);
            for (int64_t r = 0; r < rows; r++)
                osh_load_weight(me->strip + r * STRIP, j->w, (col + c + r) * j->I + k0 + s, len,
                                j->dtype);
            osh_tile_pack_rows(me->packed + c * k + s * OSH_TILE_COLS, me->strip, STRIP, rows, len);
        }
    }
}

static void linear_finish(const job *j, float *y, int64_t row, int64_t m, int64_t col, int64_t n)
{
    for (int64_t i = 0; i < m; i++, y += COLS) {
        for (int64_t o = 0; j->bias && o < n; o++) y[o] += j->bias[col + o];
        osh_from_f32(osh_elem(j->y, (row + i) * j->O + col), j->y->dtype, y, n);
    }
}

static osh_status linear_tile_chunk(osh_ctx *cx, void *user, int64_t index, int self)
{
    const job *j = user;
    worker *me = &j->workers[self];
    int64_t block = index / j->n_parts, col = block * COLS, n = osh_min64(COLS, j->O - col);
    int64_t first = index % j->n_parts * j->rows, m = osh_min64(j->rows, j->n_rows - first);

    (void)cx;
    for (int64_t k0 = 0; k0 < j->I; k0 += j->depth) {
        int64_t k = osh_min64(j->depth, j->I - k0);
        bool whole = k == j->I, last = k0 + k == j->I;
        if (!whole || me->block != block) linear_pack(j, me, col, n, k0, k);
        me->block = whole ? block : -1;
        for (int64_t i = 0; i < m; i += OSH_TILE_ROWS) {
            int64_t rows = osh_min64(OSH_TILE_ROWS, m - i);
            float *y = me->y + (whole ? 0 : i * COLS);
            osh_tile_a x = {.p = j->x + (first + i) * j->I + k0, .row = j->I, .col = 1};
            osh_tile_product((osh_into){y, COLS, k0 > 0}, x,
                             (osh_tile_b){me->packed, k * OSH_TILE_COLS, OSH_TILE_COLS},
                             (osh_mnk){rows, n, k});
            if (last) linear_finish(j, y, j->first_row + first + i, rows, col, n);
        }
    }
    return OSH_OK;
}

static int64_t linear_worker_floats(int64_t I)
{
    return COLS * linear_depth(I) + OSH_TILE_COLS * STRIP +
           (I > DEPTH ? ROWS : OSH_TILE_ROWS) * COLS;
}

static osh_status linear_by_tiles(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *w = a->in[1];
    int64_t N = osh_rows(x), I = osh_width(x), O = w->shape[0], each = linear_worker_floats(I);
    int64_t blocks = osh_div_up(O, COLS);
    int n = osh_threads(cx);
    int64_t most = blocks >= 4 * n || blocks % n == 0 ? ROWS : FEW;
    /* Each is own.
     * xf: [rows of a panel, I], rows of a panel in f32; NULL if x is F32.
     * bias: [O], in f32; NULL if the op has no bias.
     * room: scratch of the workers. */
    float *xf = NULL, *bias = NULL, *room = NULL;
    worker *workers = NULL;                       // own

    OSH_NEW(cx, workers, n);
    if (!(room = osh_alloc(cx, (size_t)(n * each) * sizeof *room))) OSH_TRY(OSH_E_NOMEM);
    for (int i = 0; i < n; i++) {
        float *p = room + i * each, *strip = p + COLS * linear_depth(I);
        workers[i] = (worker){p, strip, strip + OSH_TILE_COLS * STRIP, -1};
    }
    if (a->in[2]) OSH_TRY(osh_f32_weight(cx, &bias, a->in[2], x->dtype));
    if (x->dtype != OSH_F32 && !(xf = osh_alloc(cx, (size_t)osh_panel_floats(N, I) * sizeof *xf)))
        OSH_TRY(OSH_E_NOMEM);
    for (int64_t row = 0, rows; row < N; row += rows) {
        rows = osh_min64(OSH_GEMM_PANEL, N - row);
        if (xf) OSH_TRY(osh_widen_rows(cx, xf, x, row, rows));
        job j = {.w = w, .y = a->out[0], .x = xf ? xf : (float *)x->data + row * I, .bias = bias,
                 .first_row = row, .n_rows = rows, .n_parts = osh_div_up(rows, most), .I = I,
                 .O = O, .depth = linear_depth(I), .dtype = x->dtype, .workers = workers};
        j.rows = osh_div_up(osh_div_up(rows, j.n_parts), OSH_TILE_ROWS) * OSH_TILE_ROWS;
        OSH_TRY(osh_parallel_for(cx, blocks * j.n_parts, linear_tile_chunk, &j));
    }
done:
    osh_free(cx, workers);
    osh_free(cx, room);
    osh_free(cx, xf);
    osh_free(cx, bias);
    return rc;
}

osh_status osh_linear_cpu(osh_ctx *cx, const osh_op_args *a)
{
    bool pairs = osh_pairs_take(a->in[0]) && osh_pairs_take(a->in[1]) &&
                 (!a->in[2] || osh_pairs_take(a->in[2]));
    if (pairs && osh_pairs_take(a->out[0])) return osh_pairs_linear(cx, a);
    if (osh_tile_used()) return linear_by_tiles(cx, a);
    return osh_gemm_linear(cx, a->out[0], a->in[0], a->in[1], a->in[2], a->seqs);
}

size_t osh_linear_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                          int64_t n_tokens, int n_threads)
{
    (void)attr;
    size_t bias = (size_t)out_width * sizeof(float);
    size_t pairs = osh_pairs_linear_scratch(in_width[0], out_width, n_tokens, n_threads);
    size_t bytes = osh_gemm_scratch(in_width[0], n_tokens, n_threads) + bias;
    if (!osh_tile_used())
        return osh_isa_used() >= OSH_ISA_AVX512_BF16 && pairs > bytes ? pairs : bytes;
    return (size_t)(osh_panel_floats(n_tokens, in_width[0]) +
                    n_threads * linear_worker_floats(in_width[0])) *
               sizeof(float) +
           bias;
}
