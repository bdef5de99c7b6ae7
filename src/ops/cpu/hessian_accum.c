/* hessian_accum.c - computes H += X^T X for the op hessian_accum, and D += (X0 - X)^T X for the op
 * shift_accum. Each tile of 256 x 256 elements of H is a sum over tiles of up to 512 tokens, in the
 * order of the batch.
 *
 * All tokens of a tile belong to one sample, so H does not depend on the batches. Tiles of H on the
 * diagonal are computed by ssyrk. With AVX2 (math/tile.h), tokens are packed once for all threads,
 * directly from their dtype. With AVX-512 BF16, pairs_hessian.c is used, which multiplies BF16
 * values. */
#include "base/isa.h"
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/cpu/gemm_linear.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "math/tile.h"
#include "ops/kernel.h"

enum { TILE = 256, TOKENS = 512 };
/* Sizes for the kernel with AVX2.
 * BOTH: number of columns of x that are packed together.
 * ROWS, COLS: numbers of rows and columns of the largest block of H. */
enum { BOTH = OSH_TILE_BOTH, ROWS = 2 * BOTH, COLS = 4 * BOTH };

typedef struct hessian_job {
    float *h;              // H or D, [I, I]; view
    /* Input X in f32, [rows of the panel, I]. A panel is a few tiles of tokens that are converted
     * to f32 together. */
    const float *x;        // view
    /* X0 - X, in the shape of `x`; `h` is then D. NULL: `h` is H, and gets only its lower
     * triangle. */
    const float *left;     // view
    const osh_tile *tiles; // view: tiles of tokens in the current panel
    int64_t n_tiles, first_row, n_cols;
} hessian_job;

static osh_status hessian_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const hessian_job *job = user;
    int64_t i, j, n = job->n_cols;

    (void)cx, (void)worker;
    if (job->left) osh_square_tile(&i, &j, chunk, osh_div_up(n, TILE));
    else osh_triangle_tile(&i, &j, chunk);
    int64_t rows = osh_min64(TILE, n - i * TILE), cols = osh_min64(TILE, n - j * TILE);
    float *h = job->h + i * TILE * n + j * TILE;
    for (int64_t t = 0; t < job->n_tiles; t++) {
        int64_t at = (job->tiles[t].row - job->first_row) * n, k = job->tiles[t].n;
        const float *x = job->x + at, *left = job->left ? job->left + at : x;
        if (!job->left && i == j) osh_syrk_lower_t(h, n, (osh_mat){x + i * TILE, n}, rows, k);
        else
            osh_gemm_tn((osh_into){h, n, true}, (osh_mat){left + i * TILE, n},
                        (osh_mat){x + j * TILE, n}, (osh_mnk){rows, cols, k});
    }
    return OSH_OK;
}

/* ---- with AVX2, by the tiles of math/tile.h ---- */

typedef struct packed_job {
    float *h;               // H, [I, I]; view
    const osh_tensor *x;
    const osh_tile *tiles;  // view: tiles of tokens in the current panel
    int64_t n_tiles, first_row, n_rows, n_cols, wide; // wide: number of columns of a block of H
    /* Packed x. For each block of 48 columns, the tiles of tokens follow each other. */
    float *panels, *strips; // views; each is [n_cols / 48, n_rows, 48]
} packed_job;

static int64_t hessian_packed_at(const packed_job *j, int64_t block, int64_t tile)
{
    return (block * j->n_rows + j->tiles[tile].row - j->first_row) * BOTH;
}

static osh_status hessian_pack_chunk(osh_ctx *cx, void *user, int64_t block, int worker)
{
    const packed_job *j = user;
    (void)cx, (void)worker;
    for (int64_t t = 0; t < j->n_tiles; t++) {
        int64_t at = hessian_packed_at(j, block, t), n = osh_min64(BOTH, j->n_cols - block * BOTH);
        osh_tile_columns c = {j->tiles[t].row * j->n_cols + block * BOTH, j->n_cols, n};
        osh_tile_pack_columns(j->panels + at, j->strips + at, j->x, c, j->tiles[t].n);
    }
    return OSH_OK;
}

/* Adds sum [m, 16] to the elements of h from (row, col) on. Adds nothing above the diagonal of
 * h. */
static void hessian_add_lower(float *h, int64_t ld, int64_t row, int64_t col, const float *sum,
                              int64_t m)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t c = 0; c < OSH_TILE_COLS && col + c <= row + i; c++)
            h[(row + i) * ld + col + c] += sum[i * OSH_TILE_COLS + c];
}

/* Adds the product X^T X of the tokens of tile t to rows [row, end) and columns [col, col + 16) of
 * H. */
static void hessian_add_panel(const packed_job *j, int64_t row, int64_t end, int64_t col, int64_t t)
{
    int64_t k = j->tiles[t].n, ld = j->n_cols, m;
    const float *b = j->panels + hessian_packed_at(j, col / BOTH, t) + col % BOTH * k;
    float sum[OSH_TILE_ROWS * OSH_TILE_COLS];
    row = col < row ? row : col / OSH_TILE_ROWS * OSH_TILE_ROWS;
    for (; row < end; row += m) {
        osh_tile_a a = {j->strips + hessian_packed_at(j, row / BOTH, t) + row % BOTH * k, 1,
                        OSH_TILE_ROWS, OSH_TILE_ROWS * k};
        // true if all elements of this product are on or below the diagonal of H
        bool below = col + OSH_TILE_COLS - 1 <= row;
        m = osh_min64(below ? BOTH - row % BOTH : OSH_TILE_ROWS, end - row);
        osh_tile_product(
            (osh_into){below ? j->h + row * ld + col : sum, below ? ld : OSH_TILE_COLS, below}, a,
            (osh_tile_b){b, 0, OSH_TILE_COLS}, (osh_mnk){m, OSH_TILE_COLS, k});
        if (!below) hessian_add_lower(j->h, ld, row, col, sum, m);
    }
}

/* A block row of H ends at row `end`. Returns the number of its blocks. */
static int64_t hessian_row_blocks(const packed_job *j, int64_t end)
{
    return osh_div_up(osh_min64(end, j->n_cols), j->wide);
}

/* A chunk of parallel work: computes one block of H. The blocks of the last rows, which have the
 * most columns, are the first chunks. */
static osh_status hessian_product_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const packed_job *j = user;
    int64_t r = osh_div_up(j->n_cols, ROWS) - 1, n;
    (void)cx, (void)worker;
    for (; chunk >= (n = hessian_row_blocks(j, (r + 1) * ROWS)); r--) chunk -= n;
    int64_t end = osh_min64((r + 1) * ROWS, j->n_cols),
            last = osh_min64((chunk + 1) * j->wide, end);
    for (int64_t t = 0; t < j->n_tiles; t++)
        for (int64_t col = chunk * j->wide; col < last; col += OSH_TILE_COLS)
            hessian_add_panel(j, r * ROWS, end, col, t);
    return OSH_OK;
}

static int64_t hessian_blocks(const packed_job *j)
{
    int64_t n = 0;
    for (int64_t end = 0; end < j->n_cols; end += ROWS) n += hessian_row_blocks(j, end + ROWS);
    return n;
}

static int64_t hessian_packed_floats(int64_t n_tokens, int64_t n_cols)
{
    return osh_min64(n_tokens, TOKENS) * osh_div_up(n_cols, BOTH) * BOTH;
}

static osh_status hessian_by_tiles(osh_ctx *cx, const osh_op_args *a, const osh_tile *tiles,
                                   int64_t n_tiles)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    int64_t n = osh_width(x), room = hessian_packed_floats(osh_rows(x), n), end;
    // own: panels and strips of packed_job, in one allocation
    float *packed = osh_alloc(cx, (size_t)(2 * room) * sizeof *packed);
    if (!packed) OSH_TRY(OSH_E_NOMEM);
    for (int64_t first = 0; first < n_tiles; first = end) {
        end = osh_tiles_panel(tiles, n_tiles, first, TOKENS);
        int64_t row = tiles[first].row;
        packed_job j = {.h = a->out[0]->data, .x = x, .tiles = tiles + first,
                        .n_tiles = end - first, .first_row = row,
                        .n_rows = tiles[end - 1].row + tiles[end - 1].n - row, .n_cols = n,
                        .wide = COLS, .panels = packed, .strips = packed + room};
        while (j.wide > BOTH && hessian_blocks(&j) < (int64_t)OSH_BLOCKS_EACH * osh_threads(cx))
            j.wide /= 2;
        OSH_TRY(osh_parallel_for(cx, osh_div_up(n, BOTH), hessian_pack_chunk, &j));
        OSH_TRY(osh_parallel_for(cx, hessian_blocks(&j), hessian_product_chunk, &j));
    }
done:
    osh_free(cx, packed);
    return rc;
}

osh_status osh_hessian_accum_cpu(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    int64_t N = osh_rows(x), n = osh_width(x), n_tiles = 0, end = 0, side = osh_div_up(n, TILE);
    osh_tile *tiles = NULL; // own
    float *xf = NULL;       // own, in f32: the rows of x in a panel, [rows, I]; NULL if x is F32

    if (osh_pairs_take(x)) return osh_pairs_hessian(cx, a->out[0], x, NULL, a->seqs);
    OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, N, TOKENS));
    if (osh_tile_used()) {
        OSH_TRY(hessian_by_tiles(cx, a, tiles, n_tiles));
        goto done;
    }
    if (x->dtype != OSH_F32) {
        xf = osh_alloc(cx, (size_t)osh_panel_floats(N, n) * sizeof *xf);
        if (!xf) OSH_TRY(OSH_E_NOMEM);
    }
    for (int64_t first = 0; first < n_tiles; first = end) {
        end = osh_tiles_panel(tiles, n_tiles, first, OSH_GEMM_PANEL);
        int64_t row = tiles[first].row, n_rows = tiles[end - 1].row + tiles[end - 1].n - row;
        if (xf) OSH_TRY(osh_widen_rows(cx, xf, x, row, n_rows));
        hessian_job j = {.h = a->out[0]->data, .x = xf ? xf : (float *)x->data + row * n,
                         .tiles = tiles + first, .n_tiles = end - first, .first_row = row,
                         .n_cols = n};
        OSH_TRY(osh_parallel_for(cx, side * (side + 1) / 2, hessian_chunk, &j));
    }
done:
    osh_free(cx, xf);
    osh_free(cx, tiles);
    return rc;
}

size_t osh_hessian_accum_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                 int64_t n_tokens, int n_threads)
{
    (void)attr, (void)out_width, (void)n_threads;
    int64_t floats = osh_panel_floats(n_tokens, in_width[0]);
    if (osh_tile_used()) floats = 2 * hessian_packed_floats(n_tokens, in_width[0]);
    size_t bytes = (size_t)floats * sizeof(float) + (size_t)n_tokens * sizeof(osh_tile);
    size_t pairs = osh_pairs_hessian_scratch(in_width[0], n_tokens, false);
    return osh_isa_used() >= OSH_ISA_AVX512_BF16 && pairs > bytes ? pairs : bytes;
}

/* ---- shift_accum ---- */

enum { WIDEN = 16 }; // number of rows that a chunk of parallel work converts
typedef struct difference_job {
    float *x, *left; // views [rows of the panel, I]: X and X0 - X in f32
    const osh_tensor *from, *original;
    int64_t first, n_rows, I;
} difference_job;

static osh_status difference_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const difference_job *j = user;
    int64_t row = chunk * WIDEN, n = osh_min64(WIDEN, j->n_rows - row) * j->I;
    float *x = j->x + row * j->I, *left = j->left + row * j->I;
    osh_dtype dt = j->from->dtype;

    (void)cx, (void)worker;
    osh_to_f32(x, osh_elem(j->from, (j->first + row) * j->I), dt, n);
    osh_to_f32(left, osh_elem(j->original, (j->first + row) * j->I), dt, n);
    for (int64_t i = 0; i < n; i++) left[i] = osh_round_to(left[i] - x[i], dt);
    return OSH_OK;
}

osh_status osh_shift_accum_cpu(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *x0 = a->in[1];
    int64_t N = osh_rows(x), n = osh_width(x), n_tiles = 0, end = 0, side = osh_div_up(n, TILE);
    int64_t room = osh_panel_floats(N, n);
    osh_tile *tiles = NULL; // own
    float *wide = NULL;     // own [2, rows of a panel, I]: X and X0 - X in f32

    if (osh_pairs_take(x)) return osh_pairs_hessian(cx, a->out[0], x, x0, a->seqs);
    OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, N, TOKENS));
    wide = osh_alloc(cx, (size_t)(2 * room) * sizeof *wide);
    if (!wide) OSH_TRY(OSH_E_NOMEM);
    for (int64_t first = 0; first < n_tiles; first = end) {
        end = osh_tiles_panel(tiles, n_tiles, first, OSH_GEMM_PANEL);
        int64_t row = tiles[first].row, n_rows = tiles[end - 1].row + tiles[end - 1].n - row;
        difference_job d = {.x = wide, .left = wide + room, .from = x, .original = x0, .first = row,
                            .n_rows = n_rows, .I = n};
        OSH_TRY(osh_parallel_for(cx, osh_div_up(n_rows, WIDEN), difference_chunk, &d));
        hessian_job j = {.h = a->out[0]->data, .x = wide, .left = wide + room,
                         .tiles = tiles + first, .n_tiles = end - first, .first_row = row,
                         .n_cols = n};
        OSH_TRY(osh_parallel_for(cx, side * side, hessian_chunk, &j));
    }
done:
    osh_free(cx, wide);
    osh_free(cx, tiles);
    return rc;
}

size_t osh_shift_accum_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads)
{
    (void)attr, (void)out_width, (void)n_threads;
    size_t bytes = (size_t)(2 * osh_panel_floats(n_tokens, in_width[0])) * sizeof(float) +
                   (size_t)n_tokens * sizeof(osh_tile);
    size_t pairs = osh_pairs_hessian_scratch(in_width[0], n_tokens, true);
    return osh_isa_used() >= OSH_ISA_AVX512_BF16 && pairs > bytes ? pairs : bytes;
}
