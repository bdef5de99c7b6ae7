/* tile.c - packs f32 matrices and multiplies them tile by tile with AVX2 and FMA. */
#include "math/tile.h"
#include "base/checked.h"
#include "base/isa.h"
#include "tensor/scalar.h"

#include <assert.h>
#include <string.h>

enum { ROWS = OSH_TILE_ROWS, COLS = OSH_TILE_COLS };

#if defined(__x86_64__)
#include <immintrin.h>
#define FMA __attribute__((target("avx2,fma")))

bool osh_tile_used(void) { return osh_isa_used() == OSH_ISA_AVX2; }

/* Checks the ranges of memory that the product of one tile reads and writes (base/checked.h). Does
 * nothing without the address sanitizer. */
static inline void check_tile(osh_into c, osh_tile_a a, const float *b, int64_t step, osh_mnk s)
{
#ifdef __SANITIZE_ADDRESS__
    size_t one = sizeof *b;
    if (step == COLS) osh_check_range(b, (size_t)(s.k * COLS) * one);
    for (int64_t l = 0; step != COLS && l < s.k; l++) osh_check_range(b + l * step, COLS * one);
    for (int64_t i = 0; i < s.m; i++) osh_check_range(c.p + i * c.ld, COLS * one);
    // If `a` is packed, a.row is 1, and each column of `a` is contiguous in memory.
    for (int64_t l = 0; a.row == 1 && l < s.k; l++)
        osh_check_range(a.p + l * a.col, (size_t)s.m * one);
    for (int64_t i = 0; a.row != 1 && i < s.m; i++) {
        if (a.col == 1) osh_check_range(a.p + i * a.row, (size_t)s.k * one);
        for (int64_t l = 0; a.col != 1 && l < s.k; l++)
            osh_check_range(a.p + i * a.row + l * a.col, one);
    }
#endif
}

/* Computes one tile of m <= 6 rows. Each call passes a constant as m, so a smaller m uses fewer
 * registers. */
OSH_RANGES_CHECKED FMA static inline __attribute__((always_inline))
void tile_body(osh_into c, osh_tile_a a, const float *b, int64_t step, int m, int64_t k)
{
    __m256 s[ROWS][2];
    const float *low = a.p, *high = a.p + 3 * a.row;
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) s[i][0] = s[i][1] = _mm256_setzero_ps();
    for (int i = 0; c.add && i < m; i++)
        /* Prefetches row i of c, to which sums are added after the loop. */
        __builtin_prefetch(c.p + i * c.ld, 1);
    for (int64_t l = 0; l < k; l++) {
        __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
        for (int i = 0; i < m; i++) {
            __m256 x = _mm256_broadcast_ss(i < 3 ? low + i * a.row : high + (i - 3) * a.row);
            s[i][0] = _mm256_fmadd_ps(x, b0, s[i][0]);
            s[i][1] = _mm256_fmadd_ps(x, b1, s[i][1]);
        }
        low += a.col, high += a.col, b += step;
    }
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
        float *to = c.p + i * c.ld;
        if (c.add) s[i][0] = _mm256_add_ps(_mm256_loadu_ps(to), s[i][0]);
        if (c.add) s[i][1] = _mm256_add_ps(_mm256_loadu_ps(to + 8), s[i][1]);
        _mm256_storeu_ps(to, s[i][0]);
        _mm256_storeu_ps(to + 8, s[i][1]);
    }
}

#define TILE(m)                                                                                    \
    OSH_RANGES_CHECKED FMA static void tile_##m(osh_into c, osh_tile_a a, const float *b,          \
                                                int64_t step, int64_t k)                           \
    {                                                                                              \
        tile_body(c, a, b, step, m, k);                                                            \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#undef TILE

typedef void (*tile_fn)(osh_into c, osh_tile_a a, const float *b, int64_t step, int64_t k);
static const tile_fn tiles[ROWS] = {tile_1, tile_2, tile_3, tile_4, tile_5, tile_6};

static void tile_run(osh_into c, osh_tile_a a, const float *b, int64_t step, osh_mnk s)
{
    check_tile(c, a, b, step, s);
    tiles[s.m - 1](c, a, b, step, s.k);
}

/* Computes a tile of n < 16 columns: computes 16 columns, and copies the first n of them to c. */
static void tile_narrow(osh_into c, osh_tile_a a, const float *b, int64_t step, osh_mnk s)
{
    float whole[ROWS * COLS] = {0};
    size_t row = (size_t)s.n * sizeof *whole;
    for (int64_t i = 0; c.add && i < s.m; i++) memcpy(whole + i * COLS, c.p + i * c.ld, row);
    tile_run((osh_into){whole, COLS, c.add}, a, b, step, s);
    for (int64_t i = 0; i < s.m; i++) memcpy(c.p + i * c.ld, whole + i * COLS, row);
}

void osh_tile_product(osh_into c, osh_tile_a a, osh_tile_b b, osh_mnk s)
{
    int64_t strip = a.strip ? a.strip : ROWS * a.row;
    for (int64_t i = 0; i < s.m; i += ROWS) {
        int64_t rows = s.m - i < ROWS ? s.m - i : ROWS;
        osh_tile_a at = {.p = a.p + i / ROWS * strip, .row = a.row, .col = a.col};
        for (int64_t j = 0; j < s.n; j += COLS) {
            osh_into to = {c.p + i * c.ld + j, c.ld, c.add};
            const float *panel = b.p + j / COLS * b.panel;
            if (s.n - j < COLS) tile_narrow(to, at, panel, b.step, (osh_mnk){rows, s.n - j, s.k});
            else tile_run(to, at, panel, b.step, (osh_mnk){rows, COLS, s.k});
        }
    }
}

/* Transposes 8 rows x 8 columns of x. */
FMA static void tile_turn(float *to, const float *x, int64_t ld)
{
    __m256 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(x + i * ld);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 8
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] = _mm256_shuffle_ps(t[i + h], t[i + 2 + h], 0x44);
            r[i + 2 * h + 1] = _mm256_shuffle_ps(t[i + h], t[i + 2 + h], 0xee);
        }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * COLS, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * COLS, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

void osh_tile_pack_rows(float *to, const float *x, int64_t ld, int64_t n, int64_t k)
{
    int64_t even = n == COLS ? k / 8 * 8 : 0;
    for (int64_t l = 0; l < even; l += 8) {
        tile_turn(to + l * COLS, x + l, ld);
        tile_turn(to + l * COLS + 8, x + 8 * ld + l, ld);
    }
    for (int64_t l = even; l < k; l++)
        for (int64_t i = 0; i < COLS; i++) to[l * COLS + i] = i < n ? x[i * ld + l] : 0;
}

/* Widens 16 bf16 values to f32. Calls of osh_to_f32, each for 48 values, would take 3 % of the time
 * of osh_hessian_accum. */
FMA static inline void tile_widen(__m256 *lo, __m256 *hi, const uint16_t *x)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)x);
    *lo = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)), 16));
    *hi = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)), 16));
}

FMA void osh_tile_pack_columns(float *panels, float *strips, const osh_tensor *x,
                               osh_tile_columns at, int64_t k)
{
    float row[OSH_TILE_BOTH] = {0};
    for (int64_t l = 0, first = at.first; l < k; l++, first += at.ld) {
        if (at.n == OSH_TILE_BOTH && x->dtype == OSH_BF16) {
            __m256 lo, hi;
#pragma GCC unroll 3
            for (int c = 0; c < OSH_TILE_BOTH; c += COLS) {
                tile_widen(&lo, &hi, (const uint16_t *)x->data + first + c);
                _mm256_storeu_ps(row + c, lo);
                _mm256_storeu_ps(row + c + 8, hi);
            }
        } else {
            osh_to_f32(row, osh_elem(x, first), x->dtype, at.n);
        }
        for (int c = 0; c < OSH_TILE_BOTH; c += COLS)
            memcpy(panels + c * k + l * COLS, row + c, COLS * sizeof *row);
        for (int c = 0; c < OSH_TILE_BOTH; c += ROWS)
            memcpy(strips + c * k + l * ROWS, row + c, ROWS * sizeof *row);
    }
}
#else
bool osh_tile_used(void) { return false; }

void osh_tile_product(osh_into c, osh_tile_a a, osh_tile_b b, osh_mnk s)
{
    (void)c, (void)a, (void)b, (void)s;
    assert(false); // not reached: callers check osh_tile_used first
}

void osh_tile_pack_rows(float *to, const float *x, int64_t ld, int64_t n, int64_t k)
{
    (void)to, (void)x, (void)ld, (void)n, (void)k;
    assert(false);
}

void osh_tile_pack_columns(float *panels, float *strips, const osh_tensor *x, osh_tile_columns at,
                           int64_t k)
{
    (void)panels, (void)strips, (void)x, (void)at, (void)k;
    assert(false);
}
#endif
