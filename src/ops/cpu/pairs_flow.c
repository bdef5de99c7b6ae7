/* pairs_flow.c - multiplies BF16 values (math/pairs.h), and rounds or adds the matrix products, one
 * block after the other. With AMX, the vector instructions finish one block while the AMX
 * instructions multiply for the next block. */
#include "ops/cpu/pairs_flow.h"

#include "base/isa.h"
#include "base/num.h"
#include "math/span512.h"
#include "math/span512_steps.h"
#include "ops/kernel.h"

#include <string.h>

enum { ROW = OSH_FLOW_COLS, STEP = OSH_PAIRS_STEP, TILE = OSH_PAIRS_SIDE };

/* How a flow finishes the products of a block. */
typedef enum { FLOW_ROUND, FLOW_GATE, FLOW_SUM } finish;

static finish flow_finish_of(const osh_flow_block *b)
{
    return b->added ? FLOW_SUM : b->up.n > 0 ? FLOW_GATE : FLOW_ROUND;
}

/* ---- one block after the other, for instruction sets without AMX ---- */

static void flow_finish_plain(osh_flow *f, const osh_flow_block *b)
{
    uint16_t part[2][OSH_PAIRS_BAND * ROW];
    if (flow_finish_of(b) == FLOW_SUM) {
        osh_pairs_add_rows((osh_pairs_sums){b->added, b->ld}, (osh_pairs_sums){f->sums[0][0], ROW},
                           b->m, b->n, b->more);
        return;
    }
    if (flow_finish_of(b) == FLOW_ROUND) {
        osh_pairs_y y = {b->y, b->ld, b->n, b->bias[0]};
        f->bad |= !osh_pairs_narrow(&y, f->sums[0][0], ROW, b->m);
        return;
    }
    if (b->m < OSH_PAIRS_BAND || b->n < ROW) memset(part, 0, sizeof part);
    for (int k = 0; k < 2; k++)
        osh_pairs_narrow(&(osh_pairs_y){part[k], ROW, b->n, b->bias[k]}, f->sums[0][k], ROW, b->m);
    osh_span512_glu_bf16(part[0], part[0], part[1], OSH_PAIRS_BAND * ROW, b->act);
    f->bad |= osh_find_nonfinite(part[0], OSH_BF16, OSH_PAIRS_BAND * ROW) >= 0;
    for (int64_t r = 0; r < b->m; r++)
        memcpy(b->y + r * b->ld, part[0] + r * ROW, (size_t)b->n * sizeof *b->y);
}

static void flow_add_plain(osh_flow *f, const osh_flow_block *b)
{
    osh_pairs_product(f->sums[0][0], ROW, b->a, b->m, b->b);
    if (b->up.n > 0) osh_pairs_product(f->sums[0][1], ROW, b->a, b->m, b->up);
    flow_finish_plain(f, b);
}

#if defined(__x86_64__)
#define TILE_SETS target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")
#define TILES __attribute__((TILE_SETS))
#define TILES_FN static inline __attribute__((always_inline, TILE_SETS))

/* ---- with AMX: finishing the rows of the previous block ---- */

/* The previous block. Its sums are complete, and its rows are being finished. */
typedef struct rest {
    const osh_flow_block *b;
    const float *sums, *up;
    int64_t row, m;
    __mmask16 in[2];
    __m512 bias[2][2];
    __mmask16 bad;
} rest;

WIDE_FN __mmask16 flow_mask(int64_t n)
{
    return n <= 0 ? 0 : n < LANES ? (__mmask16)((1u << n) - 1) : 0xffff;
}

WIDE_FN void rest_begin(rest *t, const osh_flow *f)
{
    const osh_flow_block *b = t->b = &f->before;
    t->sums = f->sums[!f->turn][0], t->up = f->sums[!f->turn][1];
    t->row = 0, t->m = f->has_before ? b->m : 0, t->bad = 0;
    for (int h = 0; f->has_before && h < 2; h++) {
        t->in[h] = flow_mask(b->n - h * LANES);
        for (int k = 0; k < 2; k++)
            t->bias[k][h] = b->bias[k] ? _mm512_maskz_loadu_ps(t->in[h], b->bias[k] + h * LANES)
                                       : _mm512_setzero_ps();
    }
}

/* Returns 16 sums of row t->row, plus the bias.
 * k: 0 for the product `a b`, 1 for the product `a up`.
 * h: 0 for columns 0 to 15, 1 for columns 16 to 31.
 * If there is no bias, adds nothing, because adding 0 would turn -0 into +0. */
WIDE_FN __m512 rest_with_bias(const rest *t, const float *sums, int k, int h)
{
    __m512 x = _mm512_load_ps(sums + t->row * ROW + h * LANES);
    return t->b->bias[k] ? _mm512_add_ps(x, t->bias[k][h]) : x;
}

/* Rounds a row of y to BF16 and stores it. (Two stores of 32 bytes are faster than one of 64
 * bytes.) */
WIDE_FN void rest_put_row(rest *t, const __m512 x[2])
{
    for (int h = 0; h < 2; h++) {
        __m512i u = _mm512_srli_epi32(_mm512_castps_si512(nearest_bf16(x[h])), 16),
                exponent = _mm512_set1_epi32(0x7f80);
        t->bad |= _mm512_mask_cmpeq_epi32_mask(t->in[h], _mm512_and_si512(u, exponent), exponent);
        _mm256_mask_storeu_epi16(t->b->y + t->row * t->b->ld + h * LANES, t->in[h],
                                 _mm512_cvtepi32_epi16(u));
    }
}

WIDE_FN void rest_add_row(rest *t)
{
    const osh_flow_block *b = t->b;
    float *to = b->added + t->row * b->ld;
    for (int h = 0; h < 2; h++) {
        __mmask16 in = b->more ? flow_mask(b->n + t->row * b->more - h * LANES) : t->in[h];
        __m512 x = _mm512_load_ps(t->sums + t->row * ROW + h * LANES);
        x = _mm512_add_ps(_mm512_maskz_loadu_ps(in, to + h * LANES), x);
        _mm512_mask_storeu_ps(to + h * LANES, in, x);
    }
    t->row++;
}

WIDE_FN void rest_finish_row(rest *t, finish how)
{
    __m512 x[SIDE], up[2];
    if (how == FLOW_SUM) {
        rest_add_row(t);
        return;
    }
    for (int h = 0; h < 2; h++) x[h] = rest_with_bias(t, t->sums, 0, h);
    if (how == FLOW_GATE) {
        for (int h = 0; h < 2; h++) up[h] = nearest_bf16(rest_with_bias(t, t->up, 1, h));
        for (int h = 0; h < 2; h++) x[h] = nearest_bf16(x[h]);
        act_of(x, t->b->act, 2);
        for (int h = 0; h < 2; h++) x[h] = _mm512_mul_ps(x[h], up[h]);
    }
    rest_put_row(t, x);
    t->row++;
}

/* ---- with AMX: matrix products that finish rows of the previous block between steps ---- */

typedef struct tiles {
    float *c; // view: the sums of a block, [32, 32]
    const osh_pairs_a *a;
    const osh_pairs_b *b;
    /* Number of rows of the previous block that are finished after each step. After the last step,
     * all its rows are finished. */
    int64_t each;
} tiles;

/* Computes c = a b in steps of 32 elements of k. Finishes rows of the previous block after each
 * step. Loads of `b` bypass the first-level cache, so that `a` stays in this cache for the next
 * panels of `b`. */
TILES_FN void flow_multiply(const tiles *j, rest *t, bool both_blocks, bool both_panels, finish how)
{
    const uint16_t *a = j->a->p;
    const uint32_t *b = j->b->panels;
    int64_t lda = j->a->row * 2, steps = osh_pairs_pad(j->b->k) / STEP;

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; s++, a += j->a->step, b += TILE * TILE) {
        _tile_loadd(4, a, lda);
        _tile_stream_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (both_panels) _tile_stream_loadd(7, b + j->b->stride, 64);
        if (both_panels) _tile_dpbf16ps(1, 4, 7);
        if (both_blocks) _tile_loadd(5, a + j->a->block, lda);
        if (both_blocks) _tile_dpbf16ps(2, 5, 6);
        if (both_blocks && both_panels) _tile_dpbf16ps(3, 5, 7);
        for (int64_t r = 0; r < j->each && t->row < t->m; r++) rest_finish_row(t, how);
    }
    _tile_stored(0, j->c, ROW * 4);
    _tile_stored(1, j->c + TILE, ROW * 4);
    _tile_stored(2, j->c + TILE * ROW, ROW * 4);
    _tile_stored(3, j->c + TILE * ROW + TILE, ROW * 4);
}

/* Prefetches the elements of the matrix to which the block is added, because the matrix is larger
 * than the caches. The elements arrive in the caches while the next block is multiplied. */
static void flow_prefetch(const osh_flow_block *b)
{
    for (int64_t r = 0; r < b->m; r++)
        for (int64_t c = 0; c < ROW; c += TILE) __builtin_prefetch(b->added + r * b->ld + c, 1);
}

TILES_FN void flow_add_tiles(osh_flow *f, const osh_flow_block *b, finish how)
{
    int products = how == FLOW_GATE ? 2 : 1;
    int64_t steps = products * (osh_pairs_pad(b->b.k) / STEP);
    const osh_pairs_b *by[2] = {&b->b, &b->up};
    bool both_blocks = b->m > TILE, both_panels = b->b.n > 1;
    rest t;
    rest_begin(&t, f);
    if (how == FLOW_SUM) flow_prefetch(b);
    for (int k = 0; k < products; k++) {
        tiles j = {f->sums[f->turn][k], &b->a, by[k], osh_div_up(OSH_PAIRS_BAND, steps)};
        if (both_blocks && both_panels) flow_multiply(&j, &t, true, true, how);
        else flow_multiply(&j, &t, both_blocks, both_panels, how);
    }
    f->bad |= t.bad != 0;
}

TILES static void flow_add_rounded(osh_flow *f, const osh_flow_block *b)
{
    flow_add_tiles(f, b, FLOW_ROUND);
}
TILES static void flow_add_gated(osh_flow *f, const osh_flow_block *b)
{
    flow_add_tiles(f, b, FLOW_GATE);
}
TILES static void flow_add_sums(osh_flow *f, const osh_flow_block *b)
{
    flow_add_tiles(f, b, FLOW_SUM);
}

WIDE static void flow_end_tiles(osh_flow *f)
{
    rest t;
    finish how = flow_finish_of(&f->before);
    rest_begin(&t, f);
    while (t.row < t.m)
        if (how == FLOW_GATE) rest_finish_row(&t, FLOW_GATE);
        else if (how == FLOW_SUM) rest_finish_row(&t, FLOW_SUM);
        else rest_finish_row(&t, FLOW_ROUND);
    f->bad |= t.bad != 0;
}
#else
#define flow_add_rounded flow_add_plain
#define flow_add_gated flow_add_plain
#define flow_add_sums flow_add_plain
#define flow_end_tiles(f) (void)(f)
#endif

void osh_flow_add(osh_flow *f, const osh_flow_block *b)
{
    if (osh_isa_used() < OSH_ISA_AMX) {
        flow_add_plain(f, b);
        return;
    }
    switch (flow_finish_of(b)) {
    case FLOW_GATE: flow_add_gated(f, b); break;
    case FLOW_SUM: flow_add_sums(f, b); break;
    case FLOW_ROUND: flow_add_rounded(f, b); break;
    }
    f->before = *b, f->has_before = true, f->turn = !f->turn;
}

void osh_flow_end(osh_flow *f)
{
    if (f->has_before) flow_end_tiles(f);
    f->has_before = false;
    osh_pairs_end();
}
