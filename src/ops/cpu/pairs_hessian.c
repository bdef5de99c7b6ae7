/* pairs_hessian.c - computes H += X^T X and D += (X0 - X)^T X of BF16 tensors with math/pairs.h.
 * Tokens are packed once for all threads, into panels of the right operand `b`. For each block of
 * H, panels are transposed into the left operand `a`. Each step transposes 32 columns of x, which
 * fit in the L1 cache. Then the products of the tiles of tokens are added to the block, one tile
 * after the other. */
#include "math/gemm.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_flow.h"
#include "ops/cpu/pairs_ops.h"
#include "ops/kernel.h"

enum {
    /* WIDE: largest number of columns of a block of H.
     * TOKENS: largest number of tokens of a tile. */
    PAIR = OSH_FLOW_COLS, WIDE = 384, TOKENS = 512,
    BAND = OSH_PAIRS_BAND, SIDE = OSH_PAIRS_SIDE
};
/* ROOM: largest number of tokens that are packed together. (The panels of 2,048 tokens would not
 * stay in the L2 cache.)
 * WIDTH: number of columns in a chunk of the parallel packing. */
enum { ROOM = 1024, WIDTH = 64 };

typedef struct job {
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
} job;

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
    const job *j = user;
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
static void hessian_add_band(const job *j, osh_flow *f, uint32_t *turned, const rect *at,
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
        // True if all elements are on or below the diagonal of h. If false, the diagonal crosses
        // these rows, and row r adds only its first r + 1 columns.
        bool whole = j->x0 || c + wide <= row + 1;
        block.b = (osh_pairs_b){j->panels + j->first[t] + c / SIDE * each, osh_div_up(wide, SIDE),
                                k, each, true};
        block.added = j->h + row * j->n + c;
        block.n = whole ? wide : 1, block.more = !whole;
        osh_flow_add(f, &block);
    }
}

/* Returns the number of blocks in the block row of H that ends before row `end`. */
static int64_t pairs_row_blocks(const job *j, int64_t end)
{
    return osh_div_up(j->x0 ? j->n : osh_min64(end, j->n), j->cols);
}

/* A chunk of parallel work: computes one block of H. The blocks of the last rows of a triangle have
 * the most columns, so they are the first chunks. */
static osh_status pairs_hessian_product(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const job *j = user;
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

/* ---- all tiles of a batch ---- */

static int64_t hessian_n_blocks(const job *j)
{
    int64_t n = 0;
    for (int64_t row = 0; row < j->n; row += j->rows) n += pairs_row_blocks(j, row + j->rows);
    return n;
}

/* Sets the size of the blocks of H. It is the largest size that gives each thread at least
 * OSH_BLOCKS_EACH blocks, or else the smallest size. With larger blocks, the packed panels are read
 * fewer times. Sizes with many columns are tried first: each block transposes the panels of its
 * rows, and blocks with fewer columns would transpose the same panels more often. */
static void hessian_size_blocks(job *j, int n_threads)
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
    job j = {.h = h->data, .x = x, .x0 = x0, .n = n};
    osh_tile *tiles = NULL;  // own
    int64_t *first = NULL;   // own: offsets of the tiles (job.first)
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
