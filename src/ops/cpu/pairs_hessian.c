/* pairs_hessian.c - computes H += X^T X and D += (X0 - X)^T X of BF16 tensors with math/pairs.h.
 * Tokens are packed once for all threads: into panels of the right operand b and, transposed, into
 * blocks of the left operand a. Then the matrix products of the tiles of tokens are added to each
 * block of H, one tile after the other. */
#include "math/gemm.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "ops/kernel.h"

enum {
    /* WIDE: largest number of columns of a block of H.
     * TOKENS: largest number of tokens of a tile. */
    PAIR = 2 * OSH_PAIRS_SIDE, WIDE = 384, TOKENS = 512,
    BAND = OSH_PAIRS_BAND, SIDE = OSH_PAIRS_SIDE
};
/* ROOM: largest number of tokens that are packed together; WIDTH: columns that a chunk of parallel
 * work packs. */
enum { ROOM = 2048, WIDTH = 64 };

typedef struct job {
    float *h;                 // H or D, [n, n]; view
    /* x: input of the layer.
     * x0: its input in the original model if h is D, NULL if h is the lower triangle of H. */
    const osh_tensor *x, *x0;
    const osh_tile *tiles;    // the packed tiles of tokens; view
    const int64_t *first; // view: offset of each tile in `panels` and `turned`, in words, [n_tiles]
    uint32_t *panels, *turned;
    /* n: number of columns of x.
     * side: number of rows and columns of a block of H. */
    int64_t n_tiles, n, side;
    /* Number of groups of tiles; a chunk of parallel work packs WIDTH columns of one group. */
    int64_t parts;
} job;

/* `rows` [n, WIDTH] = x0 - x for `cols` columns, rounded to BF16. Rows of x0 and x begin ld
 * elements apart. */
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
        if (j->x0) hessian_difference(rows, osh_elem(j->x0, from), x, j->n, tile->n, n);
        osh_pairs_pack_columns(j->panels + at, j->x0 ? rows : x, j->x0 ? WIDTH : j->n, n, tile->n);
        for (int64_t p = 0; p < osh_div_up(n, SIDE); p++)
            osh_pairs_turn(j->turned + at + p * each, j->panels + at + p * each, tile->n);
        if (j->x0) osh_pairs_pack_columns(j->panels + at, x, j->n, n, tile->n);
    }
    return OSH_OK;
}

/* H is larger than the caches, so this function prefetches m rows of a block of H before the
 * product is computed. */
static void prefetch_block(const float *h, int64_t ld, int64_t m)
{
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < PAIR; c += SIDE) __builtin_prefetch(h + r * ld + c, 1);
}

/* Adds the matrix product of the tokens of tile t to rows [row, row + m) and columns [col, col + n)
 * of h. If h is a triangle, adds nothing above the diagonal. */
static void hessian_add_band(const job *j, int64_t row, int64_t m, int64_t col, int64_t n,
                             int64_t t)
{
    float sums[BAND * PAIR];
    int64_t k = j->tiles[t].n, each = osh_pairs_panel(k),
            end = j->x0 ? col + n : osh_min64(col + n, row + m);
    osh_pairs_a a = osh_pairs_packed(j->turned + j->first[t] + row / SIDE * each, k);

    for (int64_t c = col; c < end; c += PAIR) {
        int64_t wide = osh_min64(PAIR, end - c);
        osh_pairs_b b = {j->panels + j->first[t] + c / SIDE * each, osh_div_up(wide, SIDE), k, each,
                         true};
        float *h = j->h + row * j->n + c;
        prefetch_block(h, j->n, m);
        osh_pairs_product(sums, PAIR, a, m, b);
        // true: all elements are on or below the diagonal of h. False: the diagonal crosses these
        // rows, so row r adds only its first r + 1 columns.
        bool whole = j->x0 || c + wide <= row + 1;
        osh_pairs_add_rows((osh_pairs_sums){h, j->n}, (osh_pairs_sums){sums, PAIR}, m,
                           whole ? wide : 1, !whole);
    }
}

static osh_status pairs_hessian_product(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const job *j = user;
    int64_t r, c;

    (void)cx, (void)worker;
    if (j->x0) osh_square_tile(&r, &c, chunk, osh_div_up(j->n, j->side));
    else osh_triangle_tile(&r, &c, chunk);
    int64_t row = r * j->side, end = osh_min64(row + j->side, j->n);
    int64_t col = c * j->side, n = osh_min64(j->side, j->n - col);
    osh_pairs_begin();
    for (int64_t t = 0; t < j->n_tiles; t++)
        for (int64_t i = row; i < end; i += BAND)
            hessian_add_band(j, i, osh_min64(BAND, end - i), col, n, t);
    osh_pairs_end();
    return OSH_OK;
}

/* ---- all tiles of a batch ---- */

static int64_t hessian_n_blocks(int64_t n, int64_t side, bool square)
{
    int64_t blocks = osh_div_up(n, side);
    return square ? blocks * blocks : blocks * (blocks + 1) / 2;
}

/* Returns the side (number of rows and of columns) of a block of H: the largest side that gives
 * each thread at least OSH_BLOCKS_EACH blocks, or the smallest side if no side does. With larger
 * blocks the packed panels are read fewer times. */
static int64_t hessian_side(int64_t n, bool square, int n_threads)
{
    static const int64_t sides[] = {WIDE, WIDE / 2, WIDE / 4, WIDE / 6};
    int k = 0;
    while (k < 3 && hessian_n_blocks(n, sides[k], square) < (int64_t)OSH_BLOCKS_EACH * n_threads)
        k++;
    return sides[k];
}

/* Returns the largest number of padded tokens that are packed together. */
static int64_t hessian_room(int64_t n_tokens) { return osh_min64(ROOM, osh_pairs_pad(n_tokens)); }
static int64_t hessian_words(int64_t n_tokens, int64_t n)
{
    return osh_pairs_panel(n_tokens) * osh_div_up(n, SIDE);
}

size_t osh_pairs_hessian_scratch(int64_t n, int64_t n_tokens)
{
    return 2 * osh_mem_gross((size_t)hessian_words(hessian_room(n_tokens), n) * sizeof(uint32_t)) +
           osh_mem_gross((size_t)(n_tokens + 1) * sizeof(osh_tile)) +
           osh_mem_gross((size_t)(n_tokens + 1) * sizeof(int64_t));
}

osh_status osh_pairs_hessian(osh_ctx *cx, osh_tensor *h, const osh_tensor *x, const osh_tensor *x0,
                             const osh_seqs *seqs)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_width(x), room = hessian_room(osh_rows(x)), n_tiles = 0, end = 0;
    job j = {.h = h->data, .x = x, .x0 = x0, .n = n, .side = hessian_side(n, x0, osh_threads(cx))};
    osh_tile *tiles = NULL;  // own
    int64_t *first = NULL;   // offsets of the packed tiles (job.first); own
    /* Own. Each array has about the size of x for the packed tokens. The allocator can then reuse
     * the pages of a freed x. */
    uint32_t *panels = NULL, *turned = NULL;

    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, seqs, osh_rows(x), TOKENS));
    OSH_NEW(cx, first, n_tiles + 1);
    if (!(panels = osh_alloc(cx, (size_t)hessian_words(room, n) * sizeof *panels)))
        OSH_TRY(OSH_E_NOMEM);
    if (!(turned = osh_alloc(cx, (size_t)hessian_words(room, n) * sizeof *turned)))
        OSH_TRY(OSH_E_NOMEM);
    j.panels = panels, j.turned = turned;
    for (int64_t at = 0; at < n_tiles; at = end) {
        int64_t tokens = 0;
        for (end = at; end < n_tiles && tokens + osh_pairs_pad(tiles[end].n) <= room; end++) {
            first[end] = hessian_words(tokens, n);
            tokens += osh_pairs_pad(tiles[end].n);
        }
        j.tiles = tiles + at, j.first = first + at, j.n_tiles = end - at;
        /* A chunk packs a range of columns of one group of tiles. Without groups there could be
         * fewer chunks than threads: 576 columns are 9 chunks. */
        j.parts = osh_min64(j.n_tiles, osh_div_up(tokens, TOKENS));
        OSH_TRY(osh_parallel_for(cx, osh_div_up(n, WIDTH) * j.parts, pairs_hessian_pack, &j));
        OSH_TRY(osh_parallel_for(cx, hessian_n_blocks(n, j.side, x0), pairs_hessian_product, &j));
    }
done:
    osh_free(cx, panels);
    osh_free(cx, turned);
    osh_free(cx, first);
    osh_free(cx, tiles);
    return rc;
}
