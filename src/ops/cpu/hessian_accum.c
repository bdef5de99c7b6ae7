/* hessian_accum.c - computes H += X^T X for the op hessian_accum, and D += (X0 - X)^T X for the op
 * shift_accum. Each tile of 256 x 256 elements of H is a sum over tiles of up to 512 tokens, in the
 * order of the batch.
 *
 * A tile of tokens belongs to one sample, so H does not depend on the batches. Tiles of H on the
 * diagonal are computed by ssyrk. With AVX2 (math/tile.h), tokens are packed once for all threads,
 * directly from their dtype. With AVX-512 BF16, BF16 values are multiplied (math/pairs.h). */
#include "base/isa.h"
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/cpu/gemm_linear.h"
#include "math/pairs.h"
#include "math/tile.h"
#include "ops/cpu/pairs_flow.h"
#include "ops/cpu/pairs_ops.h"
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

/* ---- BF16, by the products of math/pairs.h ----
 *
 * Tokens are packed once for all threads, into panels of the right operand `b`. For each block of
 * H, panels are transposed into the left operand `a`. Each step transposes 32 columns of x, which
 * fit in the L1 cache. Then the products of the tiles of tokens are added to the block, one tile
 * after the other. */

/* WIDE: largest number of columns of a block of H.
 * ROOM: largest number of tokens that are packed together. (The panels of 2,048 tokens would not
 * stay in the L2 cache.)
 * WIDTH: number of columns in a chunk of the parallel packing. */
enum { WIDE = 384, ROOM = 1024, WIDTH = 64 };
enum { PAIR = OSH_FLOW_COLS, BAND = OSH_PAIRS_BAND, SIDE = OSH_PAIRS_SIDE };

typedef struct pairs_job {
    float *h;                 // H or D, [n, n]; view
    /* x: inputs of the Linear.
     * x0: inputs of the Linear in the original model, if `h` is D; NULL if `h` is H. */
    const osh_tensor *x, *x0;
    const osh_tile *tiles;    // view: the tiles of tokens that are packed now
    const int64_t *first; // view [n_tiles]: offset of each tile in `panels` and `left`, in words
    /* panels: packed x.
     * left: packed x0 - x. If x0 is NULL, `left` equals `panels`. */
    uint32_t *panels, *left;
    int64_t n_tiles, n;       // n: number of columns of x
    int64_t rows, cols;       // largest number of rows and of columns of a block of H
    /* Number of groups of tiles. A chunk of the parallel packing has WIDTH columns of one group. */
    int64_t parts;
} pairs_job;

/* Rows [row, row + m) and columns [col, col + n) of H. */
typedef struct rect {
    int64_t row, m, col, n;
} rect;

/* Computes x0 - x for n rows and `cols` columns, and writes it to the array `rows` [n, WIDTH],
 * rounded to BF16. Rows of x0 and x are ld elements apart. */
static void hessian_difference(uint16_t *rows, const uint16_t *x0, const uint16_t *x, int64_t ld,
                               int64_t n, int64_t cols)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < cols; c++)
            rows[r * WIDTH + c] =
                osh_bf16_of_f32(osh_f32_of_bf16(x0[r * ld + c]) - osh_f32_of_bf16(x[r * ld + c]));
}

/* Packs WIDTH columns of one group of tiles. */
static osh_status pairs_hessian_pack(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const pairs_job *j = user;
    int64_t col = chunk / j->parts * WIDTH, n = osh_min64(WIDTH, j->n - col),
            part = chunk % j->parts;

    (void)cx, (void)worker;
    for (int64_t t = part * j->n_tiles / j->parts; t < (part + 1) * j->n_tiles / j->parts; t++) {
        const osh_tile *tile = &j->tiles[t];
        int64_t each = osh_pairs_panel(tile->n), at = j->first[t] + col / SIDE * each,
                from = tile->row * j->n + col;
        const uint16_t *x = osh_elem(j->x, from);
        uint16_t rows[TOKENS * WIDTH];
        osh_pairs_pack_columns(j->panels + at, x, j->n, n, tile->n);
        if (!j->x0) continue;
        hessian_difference(rows, osh_elem(j->x0, from), x, j->n, tile->n, n);
        osh_pairs_pack_columns(j->left + at, rows, WIDTH, n, tile->n);
    }
    return OSH_OK;
}

/* Computes the product X^T X of the tokens of tile t, and adds it to a part of h. at: the rows and
 * columns of this part. If h is a triangle, adds nothing above the diagonal. turned: scratch for
 * the operand a. */
static void hessian_add_band(const pairs_job *j, osh_flow *f, uint32_t *turned, const rect *at,
                             int64_t t)
{
    int64_t k = j->tiles[t].n, each = osh_pairs_panel(k), row = at->row, m = at->m,
            end = j->x0 ? at->col + at->n : osh_min64(at->col + at->n, row + m);
    if (end <= at->col) return;
    for (int64_t i = 0; i < m; i += SIDE)
        osh_pairs_turn(turned + i / SIDE * each, j->left + j->first[t] + (row + i) / SIDE * each,
                       k);
    osh_flow_block block = {.a = osh_pairs_packed(turned, k), .m = m, .ld = j->n};
    for (int64_t c = at->col; c < end; c += PAIR) {
        int64_t wide = osh_min64(PAIR, end - c);
        // True if all elements are added: h is no triangle, or the elements are on or below its
        // diagonal. If false, the diagonal crosses these rows, and row r adds only its first r + 1
        // columns.
        bool whole = j->x0 || c + wide <= row + 1;
        block.b = (osh_pairs_b){j->panels + j->first[t] + c / SIDE * each, osh_div_up(wide, SIDE),
                                k, each, true};
        block.added = j->h + row * j->n + c;
        block.n = whole ? wide : 1, block.more = !whole;
        osh_flow_add(f, &block);
    }
}

/* Returns the number of blocks in the block row of H that ends before row `end`. */
static int64_t pairs_row_blocks(const pairs_job *j, int64_t end)
{
    return osh_div_up(j->x0 ? j->n : osh_min64(end, j->n), j->cols);
}

/* A chunk of parallel work: computes one block of H. The blocks of the last rows of a triangle have
 * the most columns, so they are the first chunks. */
static osh_status pairs_hessian_product(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const pairs_job *j = user;
    int64_t r = osh_div_up(j->n, j->rows) - 1, blocks;
    uint32_t turned[BAND * TOKENS / 2];
    osh_flow f;

    (void)cx, (void)worker;
    for (; chunk >= (blocks = pairs_row_blocks(j, (r + 1) * j->rows)); r--) chunk -= blocks;
    int64_t end = osh_min64((r + 1) * j->rows, j->n);
    rect at = {.col = chunk * j->cols};
    at.n = osh_min64(j->cols, j->n - at.col);
    osh_flow_begin(&f);
    for (int64_t t = 0; t < j->n_tiles; t++)
        for (at.row = r * j->rows; at.row < end; at.row += BAND) {
            at.m = osh_min64(BAND, end - at.row);
            hessian_add_band(j, &f, turned, &at, t);
        }
    osh_flow_end(&f);
    return OSH_OK;
}

static int64_t hessian_n_blocks(const pairs_job *j)
{
    int64_t n = 0;
    for (int64_t row = 0; row < j->n; row += j->rows) n += pairs_row_blocks(j, row + j->rows);
    return n;
}

/* Sets the size of the blocks of H. It is the largest size that gives each thread at least
 * OSH_BLOCKS_EACH blocks, or else the smallest size. With larger blocks, the packed panels are read
 * fewer times. Sizes with many columns are tried first: each block transposes the panels of its
 * rows, and blocks with fewer columns would transpose the same panels more often. */
static void hessian_size_blocks(pairs_job *j, int n_threads)
{
    static const int64_t sizes[][2] = {{WIDE, WIDE},     {WIDE / 2, WIDE},     {WIDE / 4, WIDE},
                                       {WIDE / 6, WIDE}, {WIDE / 6, WIDE / 2}, {WIDE / 6, WIDE / 4},
                                       {WIDE / 6, WIDE / 6}};
    int k = 0, last = sizeof sizes / sizeof *sizes - 1;
    for (;; k++) {
        j->rows = sizes[k][0], j->cols = sizes[k][1];
        if (k == last || hessian_n_blocks(j) >= (int64_t)OSH_BLOCKS_EACH * n_threads) return;
    }
}

/* Returns the largest number of padded tokens that are packed together. */
static int64_t hessian_room(int64_t n_tokens) { return osh_min64(ROOM, osh_pairs_pad(n_tokens)); }
static int64_t hessian_words(int64_t n_tokens, int64_t n)
{
    return osh_pairs_panel(n_tokens) * osh_div_up(n, SIDE);
}

size_t osh_pairs_hessian_scratch(int64_t n, int64_t n_tokens, bool shift)
{
    size_t packed = (size_t)hessian_words(hessian_room(n_tokens), n) * sizeof(uint32_t);
    return (shift ? 2 : 1) * osh_mem_gross(packed) +
           osh_mem_gross((size_t)(n_tokens + 1) * sizeof(osh_tile)) +
           osh_mem_gross((size_t)(n_tokens + 1) * sizeof(int64_t));
}

osh_status osh_pairs_hessian(osh_ctx *cx, osh_tensor *h, const osh_tensor *x, const osh_tensor *x0,
                             const osh_seqs *seqs)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_width(x), room = hessian_room(osh_rows(x)), n_tiles = 0, end = 0;
    pairs_job j = {.h = h->data, .x = x, .x0 = x0, .n = n};
    osh_tile *tiles = NULL;  // own
    int64_t *first = NULL;   // own: offsets of the tiles (pairs_job.first)
    /* own: packed x, and packed x0 - x (NULL if x0 is NULL) */
    uint32_t *panels = NULL, *left = NULL;

    hessian_size_blocks(&j, osh_threads(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, seqs, osh_rows(x), TOKENS));
    OSH_NEW(cx, first, n_tiles + 1);
    if (!(panels = osh_alloc(cx, (size_t)hessian_words(room, n) * sizeof *panels)))
        OSH_TRY(OSH_E_NOMEM);
    if (x0 && !(left = osh_alloc(cx, (size_t)hessian_words(room, n) * sizeof *left)))
        OSH_TRY(OSH_E_NOMEM);
    j.panels = panels, j.left = x0 ? left : panels;
    for (int64_t at = 0; at < n_tiles; at = end) {
        int64_t tokens = 0;
        for (end = at; end < n_tiles && tokens + osh_pairs_pad(tiles[end].n) <= room; end++) {
            first[end] = hessian_words(tokens, n);
            tokens += osh_pairs_pad(tiles[end].n);
        }
        j.tiles = tiles + at, j.first = first + at, j.n_tiles = end - at;
        /* A chunk packs some columns of one group of tiles. Without groups, there could be fewer
         * chunks than threads: 576 columns are 9 chunks. */
        j.parts = osh_min64(j.n_tiles, osh_div_up(tokens, TOKENS));
        OSH_TRY(osh_parallel_for(cx, osh_div_up(n, WIDTH) * j.parts, pairs_hessian_pack, &j));
        OSH_TRY(osh_parallel_for(cx, hessian_n_blocks(&j), pairs_hessian_product, &j));
    }
done:
    osh_free(cx, panels);
    osh_free(cx, left);
    osh_free(cx, first);
    osh_free(cx, tiles);
    return rc;
}

/* ---- the op hessian_accum ---- */

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
