/* pairs.c - packs BF16 matrices, and multiplies them with sums in F32.
 *
 * With AMX, four tiles hold 16 x 16 sums each, two tiles hold elements of `a`, and two tiles hold
 * elements of `b`. With AVX-512 BF16, registers hold the sums of 8 rows x 2 panels of 16 columns.
 * Plain loops for other CPUs use the same packed layout. Only tests call them. */
#include "math/pairs.h"
#include "base/isa.h"
#include "base/num.h"
#include "tensor/scalar.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { SIDE = OSH_PAIRS_SIDE, STEP = OSH_PAIRS_STEP };

typedef struct product {
    float *c;
    int64_t ldc;
    osh_pairs_a a;
    const uint32_t *b;
    /* panel: number of words from one panel of `b` to the next.
     * steps: k / 32, where k is padded to a multiple of 32. */
    int64_t panel, steps;
    bool far;
} product;

bool osh_pairs_used(void) { return osh_isa_used() >= OSH_ISA_AVX512_BF16; }

bool osh_pairs_take(const osh_tensor *x) { return x->dtype == OSH_BF16 && osh_pairs_used(); }

/* ---- plain loops that read and write the same packed layout ---- */

static void plain_product(const product *j, int n_blocks, int64_t n_panels)
{
    for (int64_t i = 0; i < n_blocks * SIDE; i++)
        for (int64_t n = 0; n < n_panels * SIDE; n++) {
            const uint16_t *a = j->a.p + i / SIDE * j->a.block + i % SIDE * j->a.row;
            const uint32_t *b = j->b + n / SIDE * j->panel + n % SIDE;
            float sum = 0;
            for (int64_t l = 0; l < j->steps * STEP; l++) {
                uint32_t pair = b[l / 2 * SIDE];
                sum += osh_f32_of_bf16(a[l / STEP * j->a.step + l % STEP]) *
                       osh_f32_of_bf16((uint16_t)(l % 2 ? pair >> 16 : pair));
            }
            j->c[i * j->ldc + n] = sum;
        }
}

static void panel_put(uint32_t *panel, int64_t n, int64_t l, uint16_t x)
{
    panel[l / 2 * SIDE + n] |= (uint32_t)x << (l % 2 * 16);
}

static void plain_rows(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k)
{
    memset(to, 0, (size_t)osh_pairs_panel(k) * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        for (int64_t l = 0; l < k; l++) panel_put(to, i, l, x[i * ld + l]);
}

static void plain_columns(uint32_t *to, int64_t stride, const uint16_t *x, int64_t ld, int64_t n,
                          int64_t k)
{
    for (int64_t i = 0; i < n; i += SIDE)
        memset(to + i / SIDE * stride, 0, (size_t)osh_pairs_panel(k) * sizeof *to);
    for (int64_t l = 0; l < k; l++)
        for (int64_t i = 0; i < n; i++)
            panel_put(to + i / SIDE * stride, i % SIDE, l, x[l * ld + i]);
}

static void plain_turn(uint32_t *to, const uint32_t *panel, int64_t k)
{
    for (int64_t l = 0; l < osh_pairs_pad(k) / 2; l++)
        for (int64_t i = 0; i < SIDE; i++)
            to[l / SIDE * SIDE * SIDE + i * SIDE + l % SIDE] = panel[l * SIDE + i];
}

static void plain_sums(float *to, int64_t ld, const float *c, int64_t ldc)
{
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t k = 0; k < SIDE; k++) to[i * ld + k] = c[k * ldc + i];
}

static void plain_add(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void plain_add_rows(osh_pairs_sums to, osh_pairs_sums from, int64_t m, int64_t n,
                           int64_t more)
{
    for (int64_t r = 0; r < m; r++, n += more) plain_add(to.p + r * to.ld, from.p + r * from.ld, n);
}

static bool plain_narrow(const osh_pairs_y *y, const float *from, int64_t ld, int64_t m)
{
    bool bad = false;
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < y->n; c++) {
            float sum = y->bias ? from[r * ld + c] + y->bias[c] : from[r * ld + c];
            uint16_t *to = &y->p[r * y->ld + c];
            *to = osh_bf16_of_f32(sum);
            bad |= (*to & 0x7f80) == 0x7f80;
        }
    return !bad;
}

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl")))

/* ---- AMX ---- */

typedef struct tile_config { // operand of the instruction ldtilecfg (tile configuration, palette 1)
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Multiplies one or two blocks of 16 rows of `a` by one or two panels of `b`. Four tiles hold the
 * sums:
 *
 *             panel 0   panel 1
 *   block 0   tile 0    tile 1
 *   block 1   tile 2    tile 3
 *
 * So one block needs only tiles 0 and 1, and one panel needs only tiles 0 and 2. */
#define STEPS(load_b, both_blocks, both_panels)                                                    \
    for (int64_t s = 0; s < j->steps; s++, a += j->a.step, b += SIDE * SIDE) {                     \
        _tile_loadd(4, a, lda);                                                                    \
        load_b(6, b, 64);                                                                          \
        _tile_dpbf16ps(0, 4, 6);                                                                   \
        if (both_panels) load_b(7, b + j->panel, 64);                                              \
        if (both_panels) _tile_dpbf16ps(1, 4, 7);                                                  \
        if (both_blocks) _tile_loadd(5, a + j->a.block, lda);                                      \
        if (both_blocks) _tile_dpbf16ps(2, 5, 6);                                                  \
        if (both_blocks && both_panels) _tile_dpbf16ps(3, 5, 7);                                   \
    }

TILES static void tiles_begin(void)
{
    static const tile_config config = {.palette = 1,
                                       .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                       .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

TILES static void tiles_end(void) { _tile_release(); }

TILES static void pairs_by_tiles(const product *j, int n_blocks, int64_t n_panels)
{
    int64_t lda = j->a.row * 2, ldc = j->ldc * 4;
    for (int64_t p = 0; p < n_panels; p += 2) {
        const uint16_t *a = j->a.p;
        const uint32_t *b = j->b + p * j->panel;
        float *c = j->c + p * SIDE;
        bool two = p + 1 < n_panels;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        if (n_blocks == 2 && two && j->far) STEPS(_tile_stream_loadd, true, true)
        else if (n_blocks == 2 && two) STEPS(_tile_loadd, true, true)
        else if (two) STEPS(_tile_loadd, false, true)
        else if (n_blocks == 2) STEPS(_tile_loadd, true, false)
        else STEPS(_tile_loadd, false, false)
        _tile_stored(0, c, ldc);
        if (two) _tile_stored(1, c + SIDE, ldc);
        if (n_blocks == 2) _tile_stored(2, c + SIDE * j->ldc, ldc);
        if (n_blocks == 2 && two) _tile_stored(3, c + SIDE * j->ldc + SIDE, ldc);
    }
}

/* ---- AVX-512 BF16 ---- */

enum { ROWS = 8 }; // number of rows of c whose sums eight_rows holds in registers

WIDE static inline __m512i pair_of(const uint16_t *a)
{
    int pair;
    memcpy(&pair, a, sizeof pair);
    return _mm512_set1_epi32(pair);
}

/* Computes ROWS rows of `c` from ROWS rows of `a` and one or two panels of `b`. Each call passes a
 * constant as `panels`, so that the compiler removes branches. */
WIDE static inline __attribute__((always_inline)) void eight_rows(const product *j, int64_t row,
                                                                  int64_t p, int panels)
{
    __m512 s[ROWS][2];
    const uint16_t *from = j->a.p + row / SIDE * j->a.block + row % SIDE * j->a.row;
    const uint32_t *b = j->b + p * j->panel;
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) s[i][0] = s[i][1] = _mm512_setzero_ps();
    for (int64_t step = 0; step < j->steps; step++, from += j->a.step)
        for (int l = 0; l < STEP; l += 2, b += SIDE) {
            __m512i b0 = _mm512_loadu_si512(b),
                    b1 = panels == 2 ? _mm512_loadu_si512(b + j->panel) : b0;
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++) {
                __m512i a = pair_of(from + i * j->a.row + l);
                s[i][0] = _mm512_dpbf16_ps(s[i][0], (__m512bh)a, (__m512bh)b0);
                if (panels == 2) s[i][1] = _mm512_dpbf16_ps(s[i][1], (__m512bh)a, (__m512bh)b1);
            }
        }
    float *c = j->c + row * j->ldc + p * SIDE;
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
        _mm512_storeu_ps(c + i * j->ldc, s[i][0]);
        if (panels == 2) _mm512_storeu_ps(c + i * j->ldc + SIDE, s[i][1]);
    }
}

WIDE static void pairs_by_registers(const product *j, int n_blocks, int64_t n_panels)
{
    for (int64_t p = 0; p < n_panels; p += 2)
        for (int64_t row = 0; row < n_blocks * SIDE; row += ROWS)
            if (p + 1 < n_panels) eight_rows(j, row, p, 2);
            else eight_rows(j, row, p, 1);
}

/* ---- packing ---- */

/* Transposes a matrix of 16 x 16 words in place. r[i] is row i. */
WIDE static inline __attribute__((always_inline)) void turn_words(__m512i r[SIDE])
{
    __m512i t[SIDE];
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < SIDE; i += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] = _mm512_unpacklo_epi64(t[i + h], t[i + 2 + h]);
            r[i + 2 * h + 1] = _mm512_unpackhi_epi64(t[i + h], t[i + 2 + h]);
        }
    /* Now quarter q of r[4 g + c] contains column 4 q + c of rows 4 g to 4 g + 3. (A quarter is
     * four words of a register.) */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i ab = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                AB = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        __m512i cd = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        __m512i CD = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(ab, cd, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(ab, cd, 0xdd);
        t[4 + c] = _mm512_shuffle_i32x4(AB, CD, 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(AB, CD, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) r[i] = t[i];
}

WIDE static void pack_rows(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k)
{
    for (int64_t l = 0; l < k; l += STEP, to += SIDE * SIDE) {
        __m512i r[SIDE];
        __mmask32 in = k - l < STEP ? (1u << (k - l)) - 1 : ~0u;
#pragma GCC unroll 16
        for (int i = 0; i < SIDE; i++)
            r[i] = _mm512_maskz_loadu_epi16(i < n ? in : 0, x + i * ld + l);
#pragma GCC unroll 16
        for (int i = SIDE; i < 2 * SIDE; i++)
            /* Prefetches the elements of the next panel of b. */
            _mm_prefetch((const char *)(x + i * ld + l), _MM_HINT_T0);
        turn_words(r);
#pragma GCC unroll 16
        for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(to + i * SIDE, r[i]);
    }
}

WIDE static void pack_columns(uint32_t *to, int64_t panel, const uint16_t *x, int64_t ld, int64_t n,
                              int64_t k)
{
    int64_t l = 0;
    // packs two rows of x into all panels while the two rows are in the cache
    for (; l < k; l += 2, to += SIDE)
        for (int64_t c = 0, p = 0; c < n; c += SIDE, p += panel) {
            __mmask16 in = n - c < SIDE ? (__mmask16)((1u << (n - c)) - 1) : 0xffff;
            __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in, x + l * ld + c));
            __m512i odd = _mm512_cvtepu16_epi32(
                _mm256_maskz_loadu_epi16(l + 1 < k ? in : 0, x + (l + 1) * ld + c));
            _mm512_storeu_si512(to + p, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
        }
    for (int64_t c = 0; c < n; c += SIDE, to += panel)
        memset(to, 0, (size_t)(osh_pairs_pad(k) - l) / 2 * SIDE * sizeof *to);
}

WIDE static void turn_panel(uint32_t *to, const uint32_t *panel, int64_t k)
{
    for (int64_t l = 0; l < k; l += STEP, to += SIDE * SIDE, panel += SIDE * SIDE) {
        __m512i r[SIDE];
#pragma GCC unroll 16
        for (int i = 0; i < SIDE; i++) r[i] = _mm512_loadu_si512(panel + i * SIDE);
        turn_words(r);
#pragma GCC unroll 16
        for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(to + i * SIDE, r[i]);
    }
}
WIDE static void turn_sums(float *to, int64_t ld, const float *c, int64_t ldc)
{
    __m512i r[SIDE];
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) r[i] = _mm512_loadu_si512(c + i * ldc);
    turn_words(r);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(to + i * ld, r[i]);
}

WIDE static void pairs_add(float *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + SIDE <= n; i += SIDE)
        _mm512_storeu_ps(to + i, _mm512_add_ps(_mm512_loadu_ps(to + i), _mm512_loadu_ps(from + i)));
    if (i == n) return;
    __mmask16 in = (__mmask16)((1u << (n - i)) - 1);
    __m512 sum =
        _mm512_add_ps(_mm512_maskz_loadu_ps(in, to + i), _mm512_maskz_loadu_ps(in, from + i));
    _mm512_mask_storeu_ps(to + i, in, sum);
}

WIDE static void pairs_add_rows(osh_pairs_sums to, osh_pairs_sums from, int64_t m, int64_t n,
                                int64_t more)
{
    for (int64_t r = 0; r < m; r++, n += more) pairs_add(to.p + r * to.ld, from.p + r * from.ld, n);
}

/* Rounds 16 f32 values to bf16: to nearest, ties to even, as osh_bf16_of_f32 does. */
WIDE static inline __m256i narrow_16(__m512i u)
{
    __m512i hi = _mm512_srli_epi32(u, 16), odd = _mm512_and_si512(hi, _mm512_set1_epi32(1));
    __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)),
                                            _mm512_set1_epi32(0x7f800000));
    u = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd),
                          16);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(u, nan, hi, _mm512_set1_epi32(0x40)));
}

WIDE static bool pairs_narrow(const osh_pairs_y *y, const float *from, int64_t ld, int64_t m)
{
    const __m256i exponent = _mm256_set1_epi16(0x7f80);
    __mmask16 bad = 0;
    for (int64_t c = 0; c < y->n; c += SIDE) {
        __mmask16 in = y->n - c < SIDE ? (__mmask16)((1u << (y->n - c)) - 1) : 0xffff;
        __m512 bias = y->bias ? _mm512_maskz_loadu_ps(in, y->bias + c) : _mm512_setzero_ps();
        for (int64_t r = 0; r < m; r++) {
            __m512 sum = _mm512_maskz_loadu_ps(in, from + r * ld + c);
            if (y->bias) sum = _mm512_add_ps(sum, bias);
            __m256i to = narrow_16(_mm512_castps_si512(sum));
            bad |= _mm256_mask_cmpeq_epi16_mask(in, _mm256_and_si256(to, exponent), exponent);
            _mm256_mask_storeu_epi16(y->p + r * y->ld + c, in, to);
        }
    }
    return !bad;
}
#else
#define pairs_narrow plain_narrow
#define tiles_begin() (void)0
#define tiles_end() (void)0
#define pairs_add plain_add
#define pairs_add_rows plain_add_rows
#define turn_sums plain_sums
#define pairs_by_tiles plain_product
#define pairs_by_registers plain_product
#define pack_rows plain_rows
#define pack_columns plain_columns
#define turn_panel plain_turn
#endif

static bool has_registers(void) { return osh_isa_used() >= OSH_ISA_AVX512_BF16; }

void osh_pairs_pack_rows(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k)
{
    if (has_registers()) pack_rows(to, x, ld, n, k);
    else plain_rows(to, x, ld, n, k);
}

void osh_pairs_pack_all_rows(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < osh_pairs_pad(n); i += SIDE)
        osh_pairs_pack_rows(to + i / SIDE * osh_pairs_panel(k), x + i * ld, ld,
                            osh_max64(0, osh_min64(SIDE, n - i)), k);
}

void osh_pairs_pack_apart(uint32_t *to, int64_t stride, const uint16_t *x, int64_t ld, int64_t n,
                          int64_t k)
{
    if (has_registers()) pack_columns(to, stride, x, ld, n, k);
    else plain_columns(to, stride, x, ld, n, k);
}

void osh_pairs_pack_columns(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k)
{
    osh_pairs_pack_apart(to, osh_pairs_panel(k), x, ld, n, k);
}

void osh_pairs_turn(uint32_t *to, const uint32_t *panel, int64_t k)
{
    if (has_registers()) turn_panel(to, panel, k);
    else plain_turn(to, panel, k);
}

void osh_pairs_turn_sums(float *to, int64_t ld, const float *c, int64_t ldc)
{
    if (has_registers()) turn_sums(to, ld, c, ldc);
    else plain_sums(to, ld, c, ldc);
}

void osh_pairs_add(float *to, const float *from, int64_t n)
{
    if (has_registers()) pairs_add(to, from, n);
    else plain_add(to, from, n);
}

bool osh_pairs_narrow(const osh_pairs_y *y, const float *from, int64_t ld, int64_t m)
{
    return has_registers() ? pairs_narrow(y, from, ld, m) : plain_narrow(y, from, ld, m);
}

void osh_pairs_begin(void)
{
    if (osh_isa_used() >= OSH_ISA_AMX) tiles_begin();
}

void osh_pairs_end(void)
{
    if (osh_isa_used() >= OSH_ISA_AMX) tiles_end();
}

void osh_pairs_add_rows(osh_pairs_sums to, osh_pairs_sums from, int64_t m, int64_t n, int64_t more)
{
    if (has_registers()) pairs_add_rows(to, from, m, n, more);
    else plain_add_rows(to, from, m, n, more);
}

static void block_pack(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k)
{
    memset(to, 0, (size_t)osh_pairs_panel(k) * sizeof *to);
    for (int64_t l = 0; l < k; l += STEP)
        for (int64_t i = 0; i < n; i++)
            memcpy(to + l / 2 * SIDE + i * SIDE, x + i * ld + l,
                   (size_t)osh_min64(STEP, k - l) * sizeof *x);
}

osh_pairs_a osh_pairs_rows(uint32_t *room, const uint16_t *x, int64_t ld, int64_t n, int64_t k)
{
    if (n % SIDE == 0 && k % STEP == 0) return (osh_pairs_a){x, ld, STEP, SIDE * ld};
    for (int64_t i = 0; i < n; i += SIDE)
        block_pack(room + i / SIDE * osh_pairs_panel(k), x + i * ld, ld, osh_min64(SIDE, n - i), k);
    return osh_pairs_packed(room, k);
}

void osh_pairs_product(float *c, int64_t ldc, osh_pairs_a a, int64_t m, osh_pairs_b b)
{
    product j = {c, ldc, a, b.panels, b.stride, osh_pairs_pad(b.k) / STEP, b.far};
    int n_blocks = m > SIDE ? 2 : 1;
    if (osh_isa_used() >= OSH_ISA_AMX) pairs_by_tiles(&j, n_blocks, b.n);
    else if (has_registers()) pairs_by_registers(&j, n_blocks, b.n);
    else plain_product(&j, n_blocks, b.n);
}
