/* pairs_grad.c - gradients of the linear layer on pairs.h, of BF16 tensors, with dy rounded to BF16.
 *
 *   dx [N, I] = dy [N, O] w [O, I]   DEPTH of O at a time; rows of dy are read as they lie, of w panels are packed
 *   dw [O, I] = dy^T x               a tile of tokens at a time, from each sample's first one; both are packed once for
 *                                    all threads, then blocks of dw add one tile after the other
 *
 * Sums of a part (DEPTH, or a tile) are a chain of their own, added in the order of the parts: neither rows of dx, nor
 * blocks of dw, nor which tiles are packed together show. */
#include "math/gemm.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "ops/kernel.h"

#include <string.h>

enum {
    BAND = OSH_PAIRS_BAND,
    SIDE = OSH_PAIRS_SIDE,
    STEP = OSH_PAIRS_STEP,
    COLS = 192,      // of dx and dw at a time
    DEPTH = 512,
    DX_ROWS = 256,   // of dx at least, for which panels of w are packed
    CHUNKS = 3,      // of dx for each thread, if there are so many
    DW_ROWS = 96,    // of dw at a time, so that few of them keep all threads busy
    ROOM = 2048,     // tokens of padded tiles that are packed at a time
    WIDTH = 64,      // columns of dy that are turned at a time
    ROUGH = 1 << 14  // elements of a chunk that are rounded
};

typedef struct worker {
    uint32_t *panels, *band; // [COLS, DEPTH] of w; [BAND, DEPTH] of dy where it cannot be read as it lies
    float *sums;             // [BAND, COLS]
} worker;

typedef struct job {
    const osh_grad_args *a;
    const uint16_t *w, *x;
    uint16_t *dy;               // [N, O]
    int64_t N, O, I, dx_rows;
    const osh_tile *tiles;      // those that are packed
    const int64_t *first;       // of each, padded tokens before it
    int64_t n_tiles, room;
    uint32_t *x_panels, *dy_blocks;
    bool add;                   // dw has something
    worker *workers;
} job;

static int64_t panels_of(int64_t n) { return osh_div_up(n, SIDE); }
static int64_t words_of(int64_t n_tokens, int64_t n) { return osh_pairs_panel(n_tokens) * panels_of(n); }

/* Rows of a product [m, n] go to c or are added to it; whole blocks that are not added are made where they are wanted.
 * sums: as b is wide. */
static void product_into(float *sums, osh_into c, osh_pairs_a a, osh_pairs_b b, int64_t m, int64_t n)
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

static osh_status dx_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
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
        osh_pairs_b b = {me->panels, panels_of(n), k, osh_pairs_panel(k), true};
        osh_pairs_pack_columns(me->panels, j->w + k0 * j->I + col, j->I, n, k);
        for (int64_t row = first; row < end; row += BAND) {
            int64_t m = osh_min64(BAND, end - row);
            osh_pairs_a dy = osh_pairs_rows(me->band, j->dy + row * j->O + k0, j->O, m, k);
            product_into(me->sums, (osh_into){dx + row * j->I, j->I, k0 > 0 || !(j->a->fresh & 1)}, dy, b, m, n);
        }
    }
    osh_pairs_end();
    return OSH_OK;
}

/* ---- dw ---- */

/* Tokens [l, l + n) of a tile, n <= STEP: words of a step of k in each panel of x, and in each block of dy, turned. */
static void pack_step(const job *j, int64_t t, int64_t l, int64_t n)
{
    int64_t row = j->tiles[t].row + l, each = osh_pairs_panel(j->tiles[t].n), at = l / 2 * SIDE;
    uint32_t *dy = j->dy_blocks + words_of(j->first[t], j->O) + at, step[WIDTH / 2 * STEP];
    osh_pairs_pack_apart(j->x_panels + words_of(j->first[t], j->I) + at, each, j->x + row * j->I, j->I, j->I, n);
    for (int64_t col = 0; col < j->O; col += WIDTH) {
        int64_t cols = osh_min64(WIDTH, j->O - col);
        osh_pairs_pack_columns(step, j->dy + row * j->O + col, j->O, cols, n);
        for (int64_t p = 0; p < panels_of(cols); p++, dy += each) osh_pairs_turn(dy, step + p * osh_pairs_panel(n), n);
    }
}

/* STEP padded tokens of those that are packed. */
static osh_status pack_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    const job *j = user;
    int64_t t = j->n_tiles - 1;
    (void)cx, (void)self;
    while (j->first[t] > chunk * STEP) t--;
    int64_t l = chunk * STEP - j->first[t];
    pack_step(j, t, l, osh_min64(STEP, j->tiles[t].n - l));
    return OSH_OK;
}

static osh_status dw_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    const job *j = user;
    int64_t parts = osh_div_up(j->I, COLS), col = chunk % parts * COLS, n = osh_min64(COLS, j->I - col);
    int64_t first = chunk / parts * DW_ROWS, end = osh_min64(j->O, first + DW_ROWS);

    (void)cx;
    osh_pairs_begin();
    for (int64_t row = first; row < end; row += BAND)
        for (int64_t t = 0; t < j->n_tiles; t++) {
            int64_t k = j->tiles[t].n, each = osh_pairs_panel(k), m = osh_min64(BAND, end - row);
            osh_into dw = {(float *)j->a->din[1]->data + row * j->I + col, j->I, j->add || t > 0};
            const uint32_t *dy = j->dy_blocks + words_of(j->first[t], j->O) + row / SIDE * each;
            const uint32_t *panels = j->x_panels + words_of(j->first[t], j->I) + col / SIDE * each;
            osh_pairs_b x = {panels, panels_of(n), k, each, true};
            product_into(j->workers[self].sums, dw, osh_pairs_packed(dy, k), x, m, n);
        }
    osh_pairs_end();
    return OSH_OK;
}

static int64_t room_of(int64_t n_tokens) { return osh_min64(ROOM, osh_pairs_pad(n_tokens)); }

static osh_status weight_grad(osh_ctx *cx, job *j, const osh_tile *tiles, int64_t n_tiles)
{
    osh_status rc = OSH_OK;
    int64_t end = 0, room = room_of(j->N);
    int64_t *first = NULL;                // own: [n_tiles]
    uint32_t *panels = NULL, *blocks = NULL; // own: of x, of dy. As large as these are where nothing is padded

    OSH_NEW(cx, first, n_tiles + 1);
    if (!(panels = osh_alloc(cx, (size_t)words_of(room, j->I) * sizeof *panels))) OSH_TRY(OSH_E_NOMEM);
    if (!(blocks = osh_alloc(cx, (size_t)words_of(room, j->O) * sizeof *blocks))) OSH_TRY(OSH_E_NOMEM);
    j->x_panels = panels, j->dy_blocks = blocks, j->add = !(j->a->fresh & 2);
    for (int64_t at = 0; at < n_tiles; at = end, j->add = true) {
        int64_t tokens = 0;
        for (end = at; end < n_tiles && tokens + osh_pairs_pad(tiles[end].n) <= room; end++)
            first[end] = tokens, tokens += osh_pairs_pad(tiles[end].n);
        j->tiles = tiles + at, j->first = first + at, j->n_tiles = end - at;
        OSH_TRY(osh_parallel_for(cx, tokens / STEP, pack_chunk, j));
        OSH_TRY(osh_parallel_for(cx, osh_div_up(j->O, DW_ROWS) * osh_div_up(j->I, COLS), dw_chunk, j));
    }
done:
    osh_free(cx, blocks);
    osh_free(cx, panels);
    osh_free(cx, first);
    return rc;
}

/* ---- both ---- */

static osh_status rough_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    const job *j = user;
    int64_t first = chunk * ROUGH, n = osh_min64(ROUGH, j->N * j->O - first);
    (void)cx, (void)self;
    osh_from_f32(j->dy + first, OSH_BF16, (const float *)j->a->dout[0]->data + first, n);
    return OSH_OK;
}

/* Words of a worker. */
static int64_t worker_words(int64_t I, int64_t O)
{
    int64_t each = osh_pairs_panel(osh_min64(O, DEPTH));
    return panels_of(osh_min64(I, COLS)) * (each + BAND * SIDE) + BAND / SIDE * each;
}

osh_status osh_pairs_linear_grad(osh_ctx *cx, const osh_grad_args *a, const osh_tile *tiles, int64_t n_tiles)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *w = a->in[1];
    job j = {.a = a, .w = w->data, .x = x->data, .N = osh_rows(x), .I = osh_width(x), .O = w->shape[0]};
    int n = osh_threads(cx);
    int64_t words = worker_words(j.I, j.O), each = osh_pairs_panel(osh_min64(j.O, DEPTH));
    uint16_t *dy = NULL;   // own: [N, O]
    uint32_t *room = NULL; // own: of the workers

    OSH_NEW(cx, j.workers, n);
    if (!(dy = osh_alloc(cx, (size_t)(j.N * j.O) * sizeof *dy))) OSH_TRY(OSH_E_NOMEM);
    if (!(room = osh_alloc(cx, (size_t)(n * words) * sizeof *room))) OSH_TRY(OSH_E_NOMEM);
    for (int i = 0; i < n; i++) {
        worker *me = &j.workers[i];
        me->band = room + i * words, me->panels = me->band + BAND / SIDE * each;
        me->sums = (float *)(void *)(me->panels + panels_of(osh_min64(j.I, COLS)) * each);
    }
    j.dy = dy;
    OSH_TRY(osh_parallel_for(cx, osh_div_up(j.N * j.O, ROUGH), rough_chunk, &j));
    int64_t blocks = osh_div_up(j.I, COLS), parts = osh_div_up(CHUNKS * n, blocks);
    j.dx_rows = osh_max64(DX_ROWS, osh_div_up(osh_div_up(j.N, parts), BAND) * BAND);
    if (a->din[0]) OSH_TRY(osh_parallel_for(cx, blocks * osh_div_up(j.N, j.dx_rows), dx_chunk, &j));
    if (a->din[1]) OSH_TRY(weight_grad(cx, &j, tiles, n_tiles));
done:
    osh_free(cx, room);
    osh_free(cx, dy);
    osh_free(cx, j.workers);
    return rc;
}

size_t osh_pairs_linear_grad_scratch(int64_t I, int64_t O, int64_t n_tokens, int n_threads)
{
    int64_t room = room_of(n_tokens);
    return osh_mem_gross((size_t)(n_tokens * O) * sizeof(uint16_t)) +
           osh_mem_gross((size_t)n_threads * sizeof(worker)) +
           osh_mem_gross((size_t)(n_threads * worker_words(I, O)) * sizeof(uint32_t)) +
           osh_mem_gross((size_t)words_of(room, I) * sizeof(uint32_t)) +
           osh_mem_gross((size_t)words_of(room, O) * sizeof(uint32_t)) +
           osh_mem_gross((size_t)(n_tokens + 1) * sizeof(int64_t));
}
