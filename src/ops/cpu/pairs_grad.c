/* pairs_grad.c - computes the gradients dx and dw of a linear layer with BF16 tensors, by
 * math/pairs.h. dy is rounded to BF16. Shape letters: op.h.
 *
 *   dx [N, I] = dy [N, O] w [O, I]
 *   dw [O, I] = dy^T x
 *
 * dx is computed from DEPTH out_features at a time. dy is read in place, and w is packed. dw is
 * computed from a tile of tokens at a time, beginning with the first token of each sample. dy and x
 * are packed once for all threads. Each block of dw adds the products of the tiles in order.
 *
 * A sum is cut into ranges: DEPTH out_features for dx, or a tile of tokens for dw. The sum over
 * each range starts at 0, and the sums of the ranges are added in order. So the bytes do not
 * depend on the cut of dx into rows or of dw into blocks, or on the number of tiles that are packed
 * together. */
#include "math/gemm.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "ops/kernel.h"

#include <string.h>

enum {
    BAND = OSH_PAIRS_BAND,
    SIDE = OSH_PAIRS_SIDE,
    STEP = OSH_PAIRS_STEP,
    COLS = 192,      // number of columns of dx and dw in a chunk of parallel work
    DEPTH = 512,     // largest number of out_features that one matrix product for dx sums
    /* Smallest number of rows of dx in a chunk of parallel work; the chunk packs w once for all its
     * rows. */
    DX_ROWS = 256,
    CHUNKS = 3,      // number of chunks of dx for each thread, if dx has enough rows
    /* Number of rows of dw in a chunk of parallel work. The number is small, so that even a small
     * dw gives chunks to all threads. */
    DW_ROWS = 96,
    ROOM = 2048,     // largest number of tokens, with padding, that are packed together
    WIDTH = 64,      // number of columns of dy that are transposed together
    ROUGH = 1 << 14  // number of elements that a chunk of parallel work rounds to BF16
};

typedef struct worker {
    /* panels: packed w, [COLS, DEPTH].
     * band: packed dy, [BAND, DEPTH]; not used if dy can be read in place. */
    uint32_t *panels, *band;
    float *sums;             // scratch [BAND, COLS]
} worker;

typedef struct job {
    const osh_grad_args *a;
    const uint16_t *w, *x;
    uint16_t *dy;               // dy in BF16, [N, O]; view
    int64_t N, O, I, dx_rows;
    const osh_tile *tiles;      // view: the tiles of tokens that are packed now
    const int64_t *first; // view [n_tiles]: offset of each tile of `tiles`, in tokens with padding
    int64_t n_tiles, room;
    uint32_t *x_panels, *dy_blocks;
    bool add;                   // true if products are added to dw, false if they overwrite dw
    worker *workers;
} job;

static int64_t grad_panels(int64_t n) { return osh_div_up(n, SIDE); }
static int64_t grad_words(int64_t n_tokens, int64_t n)
{
    return osh_pairs_panel(n_tokens) * grad_panels(n);
}

/* Computes c = a b [m, n], or c += a b if c.add is true. sums: scratch [BAND, columns of b], which
 * is used if c.add is true, or if the block has padding. */
static void grad_product(float *sums, osh_into c, osh_pairs_a a, osh_pairs_b b, int64_t m,
                         int64_t n)
{
    int64_t wide = b.n * SIDE;
    if (!c.add && m % SIDE == 0 && n == wide) {
        osh_pairs_product(c.p, c.ld, a, m, b);
        return;
    }
    osh_pairs_product(sums, wide, a, m, b);
    for (int64_t r = 0; r < m; r++) {
        if (c.add) osh_pairs_add(c.p + r * c.ld, sums + r * wide, n);
        else memcpy(c.p + r * c.ld, sums + r * wide, (size_t)n * sizeof *c.p);
    }
}

/* ---- dx ---- */

static osh_status pairs_dx_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    const job *j = user;
    const worker *me = &j->workers[self];
    int64_t parts = osh_div_up(j->N, j->dx_rows), first = chunk % parts * j->dx_rows;
    int64_t end = osh_min64(j->N, first + j->dx_rows);
    int64_t col = chunk / parts * COLS, n = osh_min64(COLS, j->I - col);
    float *dx = (float *)j->a->din[0]->data + col;

    (void)cx;
    osh_pairs_begin();
    for (int64_t k0 = 0; k0 < j->O; k0 += DEPTH) {
        int64_t k = osh_min64(DEPTH, j->O - k0);
        osh_pairs_b b = {me->panels, grad_panels(n), k, osh_pairs_panel(k), true};
        osh_pairs_pack_columns(me->panels, j->w + k0 * j->I + col, j->I, n, k);
        for (int64_t row = first; row < end; row += BAND) {
            int64_t m = osh_min64(BAND, end - row);
            osh_pairs_a dy = osh_pairs_rows(me->band, j->dy + row * j->O + k0, j->O, m, k);
            grad_product(me->sums, (osh_into){dx + row * j->I, j->I, k0 > 0 || !(j->a->fresh & 1)},
                         dy, b, m, n);
        }
    }
    osh_pairs_end();
    return OSH_OK;
}

/* ---- dw ---- */

/* Packs the tokens [l, l + n) of tile t, where n <= STEP. Packs x into each panel, and the
 * transposed dy into each block of 16 rows. */
static void grad_pack_step(const job *j, int64_t t, int64_t l, int64_t n)
{
    int64_t row = j->tiles[t].row + l, each = osh_pairs_panel(j->tiles[t].n), at = l / 2 * SIDE;
    uint32_t *dy = j->dy_blocks + grad_words(j->first[t], j->O) + at, step[WIDTH / 2 * STEP];
    osh_pairs_pack_apart(j->x_panels + grad_words(j->first[t], j->I) + at, each, j->x + row * j->I,
                         j->I, j->I, n);
    for (int64_t col = 0; col < j->O; col += WIDTH) {
        int64_t cols = osh_min64(WIDTH, j->O - col);
        osh_pairs_pack_columns(step, j->dy + row * j->O + col, j->O, cols, n);
        for (int64_t p = 0; p < grad_panels(cols); p++, dy += each)
            osh_pairs_turn(dy, step + p * osh_pairs_panel(n), n);
    }
}

/* Packs STEP tokens of one tile, or fewer at the end of the tile. */
static osh_status grad_pack_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    const job *j = user;
    int64_t t = j->n_tiles - 1;
    (void)cx, (void)self;
    while (j->first[t] > chunk * STEP) t--;
    int64_t l = chunk * STEP - j->first[t];
    grad_pack_step(j, t, l, osh_min64(STEP, j->tiles[t].n - l));
    return OSH_OK;
}

static osh_status pairs_dw_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    const job *j = user;
    int64_t parts = osh_div_up(j->I, COLS), col = chunk % parts * COLS,
            n = osh_min64(COLS, j->I - col);
    int64_t first = chunk / parts * DW_ROWS, end = osh_min64(j->O, first + DW_ROWS);

    (void)cx;
    osh_pairs_begin();
    for (int64_t row = first; row < end; row += BAND)
        for (int64_t t = 0; t < j->n_tiles; t++) {
            int64_t k = j->tiles[t].n, each = osh_pairs_panel(k), m = osh_min64(BAND, end - row);
            osh_into dw = {(float *)j->a->din[1]->data + row * j->I + col, j->I, j->add || t > 0};
            const uint32_t *dy = j->dy_blocks + grad_words(j->first[t], j->O) + row / SIDE * each;
            const uint32_t *panels =
                j->x_panels + grad_words(j->first[t], j->I) + col / SIDE * each;
            osh_pairs_b x = {panels, grad_panels(n), k, each, true};
            grad_product(j->workers[self].sums, dw, osh_pairs_packed(dy, k), x, m, n);
        }
    osh_pairs_end();
    return OSH_OK;
}

static int64_t grad_room(int64_t n_tokens) { return osh_min64(ROOM, osh_pairs_pad(n_tokens)); }

static osh_status weight_grad(osh_ctx *cx, job *j, const osh_tile *tiles, int64_t n_tiles)
{
    osh_status rc = OSH_OK;
    int64_t end = 0, room = grad_room(j->N);
    int64_t *first = NULL;                // own: offsets of the tiles (job.first)
    uint32_t *panels = NULL, *blocks = NULL; // own: packed x (panels), packed dy (blocks)

    OSH_NEW(cx, first, n_tiles + 1);
    if (!(panels = osh_alloc(cx, (size_t)grad_words(room, j->I) * sizeof *panels)))
        OSH_TRY(OSH_E_NOMEM);
    if (!(blocks = osh_alloc(cx, (size_t)grad_words(room, j->O) * sizeof *blocks)))
        OSH_TRY(OSH_E_NOMEM);
    j->x_panels = panels, j->dy_blocks = blocks, j->add = !(j->a->fresh & 2);
    for (int64_t at = 0; at < n_tiles; at = end, j->add = true) {
        int64_t tokens = 0;
        for (end = at; end < n_tiles && tokens + osh_pairs_pad(tiles[end].n) <= room; end++)
            first[end] = tokens, tokens += osh_pairs_pad(tiles[end].n);
        j->tiles = tiles + at, j->first = first + at, j->n_tiles = end - at;
        OSH_TRY(osh_parallel_for(cx, tokens / STEP, grad_pack_chunk, j));
        OSH_TRY(osh_parallel_for(cx, osh_div_up(j->O, DW_ROWS) * osh_div_up(j->I, COLS),
                                 pairs_dw_chunk, j));
    }
done:
    osh_free(cx, blocks);
    osh_free(cx, panels);
    osh_free(cx, first);
    return rc;
}

/* ---- dx and dw ---- */

static osh_status grad_round_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    const job *j = user;
    int64_t first = chunk * ROUGH, n = osh_min64(ROUGH, j->N * j->O - first);
    (void)cx, (void)self;
    osh_from_f32(j->dy + first, OSH_BF16, (const float *)j->a->dout[0]->data + first, n);
    return OSH_OK;
}

/* Returns the number of 32-bit words of a thread's scratch. */
static int64_t grad_worker_words(int64_t I, int64_t O)
{
    int64_t each = osh_pairs_panel(osh_min64(O, DEPTH));
    return grad_panels(osh_min64(I, COLS)) * (each + BAND * SIDE) + BAND / SIDE * each;
}

osh_status osh_pairs_linear_grad(osh_ctx *cx, const osh_grad_args *a, const osh_tile *tiles,
                                 int64_t n_tiles)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *w = a->in[1];
    job j = {
        .a = a, .w = w->data, .x = x->data, .N = osh_rows(x), .I = osh_width(x), .O = w->shape[0]};
    int n = osh_threads(cx);
    int64_t words = grad_worker_words(j.I, j.O), each = osh_pairs_panel(osh_min64(j.O, DEPTH));
    uint16_t *dy = NULL;   // dy rounded to BF16, [N, O]; own
    uint32_t *room = NULL; // scratch of all workers; own

    OSH_NEW(cx, j.workers, n);
    if (!(dy = osh_alloc(cx, (size_t)(j.N * j.O) * sizeof *dy))) OSH_TRY(OSH_E_NOMEM);
    if (!(room = osh_alloc(cx, (size_t)(n * words) * sizeof *room))) OSH_TRY(OSH_E_NOMEM);
    for (int i = 0; i < n; i++) {
        worker *me = &j.workers[i];
        me->band = room + i * words, me->panels = me->band + BAND / SIDE * each;
        me->sums = (float *)(void *)(me->panels + grad_panels(osh_min64(j.I, COLS)) * each);
    }
    j.dy = dy;
    OSH_TRY(osh_parallel_for(cx, osh_div_up(j.N * j.O, ROUGH), grad_round_chunk, &j));
    int64_t blocks = osh_div_up(j.I, COLS), parts = osh_div_up(CHUNKS * n, blocks);
    j.dx_rows = osh_max64(DX_ROWS, osh_div_up(osh_div_up(j.N, parts), BAND) * BAND);
    if (a->din[0])
        OSH_TRY(osh_parallel_for(cx, blocks * osh_div_up(j.N, j.dx_rows), pairs_dx_chunk, &j));
    if (a->din[1]) OSH_TRY(weight_grad(cx, &j, tiles, n_tiles));
done:
    osh_free(cx, room);
    osh_free(cx, dy);
    osh_free(cx, j.workers);
    return rc;
}

size_t osh_pairs_linear_grad_scratch(int64_t I, int64_t O, int64_t n_tokens, int n_threads)
{
    int64_t room = grad_room(n_tokens);
    return osh_mem_gross((size_t)(n_tokens * O) * sizeof(uint16_t)) +
           osh_mem_gross((size_t)n_threads * sizeof(worker)) +
           osh_mem_gross((size_t)(n_threads * grad_worker_words(I, O)) * sizeof(uint32_t)) +
           osh_mem_gross((size_t)grad_words(room, I) * sizeof(uint32_t)) +
           osh_mem_gross((size_t)grad_words(room, O) * sizeof(uint32_t)) +
           osh_mem_gross((size_t)(n_tokens + 1) * sizeof(int64_t));
}
