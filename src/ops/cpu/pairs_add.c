/* pairs_add.c - see osh_pairs_accumulate: both matrices are packed on the way, DEPTH of k and COLS of n at a time. */
#include "ops/cpu/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "ops/kernel.h"

enum { BAND = OSH_PAIRS_BAND, SIDE = OSH_PAIRS_SIDE, COLS = 192, DEPTH = 512 };

typedef struct room {
    uint32_t *b, *panels, *a; // panels of COLS; of a band, to be turned; a band
    float *sums;              // [BAND, COLS]
} room;

static int64_t panels_of(int64_t n) { return osh_div_up(osh_min64(n, COLS), SIDE); }

static int64_t words_of(int64_t n, int64_t k)
{
    int64_t each = osh_pairs_panel(osh_min64(k, DEPTH));
    return (panels_of(n) + 2 * BAND / SIDE) * each + BAND * panels_of(n) * SIDE;
}

size_t osh_pairs_accumulate_scratch(int64_t n, int64_t k)
{
    return osh_mem_gross((size_t)words_of(n, k) * sizeof(uint32_t));
}

/* Up to BAND rows of a, from column k0 on. */
static osh_pairs_a band_of(const room *me, osh_pairs_mat a, int64_t row, int64_t m, int64_t k0, int64_t k)
{
    if (!a.turned) return osh_pairs_rows(me->a, a.p + row * a.ld + k0, a.ld, m, k);
    osh_pairs_pack_columns(me->panels, a.p + k0 * a.ld + row, a.ld, m, k);
    for (int64_t i = 0; i < osh_div_up(m, SIDE) * osh_pairs_panel(k); i += osh_pairs_panel(k))
        osh_pairs_turn(me->a + i, me->panels + i, k);
    return osh_pairs_packed(me->a, k);
}

osh_status osh_pairs_accumulate(osh_ctx *cx, float *c, int64_t ldc, osh_pairs_mat a, osh_pairs_mat b,
                                const int64_t size[3])
{
    int64_t m = size[0], n = size[1], k_all = size[2], wide = panels_of(n) * SIDE;
    int64_t most = osh_pairs_panel(osh_min64(k_all, DEPTH)), band = BAND / SIDE * most;
    uint32_t *words = osh_alloc(cx, (size_t)words_of(n, k_all) * sizeof *words); // own
    if (!words) return OSH_E_NOMEM;
    room me = {words, words + panels_of(n) * most, words + panels_of(n) * most + band,
               (float *)(void *)(words + panels_of(n) * most + 2 * band)};
    for (int64_t k0 = 0; k0 < k_all; k0 += DEPTH)
        for (int64_t col = 0; col < n; col += COLS) {
            int64_t k = osh_min64(DEPTH, k_all - k0), cols = osh_min64(COLS, n - col);
            osh_pairs_pack_columns(me.b, b.p + k0 * b.ld + col, b.ld, cols, k);
            osh_pairs_b panels = {me.b, osh_div_up(cols, SIDE), k, osh_pairs_panel(k)};
            for (int64_t row = 0; row < m; row += BAND) {
                int64_t rows = osh_min64(BAND, m - row);
                osh_pairs_product(me.sums, wide, band_of(&me, a, row, rows, k0, k), rows, panels);
                for (int64_t r = 0; r < rows; r++) osh_pairs_add(c + (row + r) * ldc + col, me.sums + r * wide, cols);
            }
        }
    osh_free(cx, words);
    return OSH_OK;
}
