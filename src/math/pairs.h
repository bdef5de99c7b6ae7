/* pairs.h - products of BF16 with sums in F32, on the instructions that multiply pairs: AMX tiles
 * and AVX-512 BF16.
 *
 *   c [m, n] = a [m, k] b [k, n]
 *
 *   a   rows whose neighbours in k are neighbours in memory: a row-major matrix as it is, or
 *       packed blocks
 *   b   packed: panels of 16 columns, each [k / 2][16] words of two bf16, the even k first; k is
 *       padded with zeros to a multiple of 32
 *
 * A call adds to each element one chain over k from 0. So the bytes depend on how the caller cuts
 * k, but not on how it cuts m and n, nor on which of the two matrices is a. */
#ifndef OSH_PAIRS_H
#define OSH_PAIRS_H
#include "tensor/tensor.h"

/* SIDE: columns of a panel. STEP: k is padded to a multiple of it. BAND: most rows of a in a
 * call. */
enum { OSH_PAIRS_SIDE = 16, OSH_PAIRS_STEP = 32, OSH_PAIRS_BAND = 32 };

/* True if the instruction set in use multiplies pairs. */
bool osh_pairs_used(void);
/* True if x is BF16 and osh_pairs_used is true. */
bool osh_pairs_take(const osh_tensor *x);

static inline int64_t osh_pairs_pad(int64_t k)
{
    return (k + OSH_PAIRS_STEP - 1) / OSH_PAIRS_STEP * OSH_PAIRS_STEP;
}
/* Returns the words of a panel. A packed block of 16 rows has as many. */
static inline int64_t osh_pairs_panel(int64_t k) { return osh_pairs_pad(k) / 2 * OSH_PAIRS_SIDE; }

/* Rows of a row-major matrix as it is (step 32), or packed blocks of 16 rows. Element (i, l) of a
 * block is p[l / 32 * step + i * row + l % 32]. The second block begins `block` elements after the
 * first. */
typedef struct osh_pairs_a { // view
    const uint16_t *p;
    int64_t row, step, block;
} osh_pairs_a;

typedef struct osh_pairs_b { // view
    const uint32_t *panels;
    int64_t n, k, stride; // n: number of panels; k: their length; stride: words from one to the
                          // next
    bool far;             // AMX reads the panels past the first cache, so that `a` stays in it
} osh_pairs_b;

/* Packs one panel of n <= 16 columns. Each column is a row of x [n, k]; rows begin ld elements
 * apart. */
void osh_pairs_pack_rows(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
/* Packs the n columns of x [k, n], whose rows begin ld elements apart, into panels. The panels
 * follow each other, or begin `stride` words apart. */
void osh_pairs_pack_columns(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
void osh_pairs_pack_apart(uint32_t *to, int64_t stride, const uint16_t *x, int64_t ld, int64_t n,
                          int64_t k);
/* Turns a panel into a block: the columns of the panel become the rows of the block. */
void osh_pairs_turn(uint32_t *to, const uint32_t *panel, int64_t k);
/* Returns a view of n <= OSH_PAIRS_BAND rows of x. If n and k are whole blocks and steps, it is a
 * view of x; if not, the rows are packed into `room` [2 panels]. */
osh_pairs_a osh_pairs_rows(uint32_t *room, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
static inline osh_pairs_a osh_pairs_packed(const uint32_t *blocks, int64_t k)
{
    return (osh_pairs_a){(const uint16_t *)blocks, OSH_PAIRS_STEP, OSH_PAIRS_SIDE * OSH_PAIRS_STEP,
                         2 * osh_pairs_panel(k)};
}

/* A thread calls osh_pairs_begin before osh_pairs_product and osh_pairs_end after it. With AMX they
 * configure and release the tiles. */
void osh_pairs_begin(void);
void osh_pairs_end(void);
/* Writes c = a b on this thread. Rows of c begin ldc elements apart. m is at most OSH_PAIRS_BAND.
 * Whole blocks of 16 rows and whole panels of columns are written. */
void osh_pairs_product(float *c, int64_t ldc, osh_pairs_a a, int64_t m, osh_pairs_b b);
typedef struct osh_pairs_y { // view: n columns; rows begin ld elements apart
    uint16_t *p;
    int64_t ld, n;
    const float *bias; // [n], or NULL for no bias
} osh_pairs_y;
/* Writes m rows of y: the sums plus the bias, rounded to BF16. */
void osh_pairs_narrow(const osh_pairs_y *y, const float *sums, int64_t ld, int64_t m);
/* Transposes 16 x 16 sums. */
void osh_pairs_turn_sums(float *to, int64_t ld, const float *c, int64_t ldc);
void osh_pairs_add(float *to, const float *from, int64_t n);
typedef struct osh_pairs_sums { float *p; int64_t ld; } osh_pairs_sums; // view: rows begin ld
                                                                        // elements apart
/* Adds m rows of `from` to `to`: n columns of the first row, n + more of the second, n + 2 more of
 * the third, and so on. */
void osh_pairs_add_rows(osh_pairs_sums to, osh_pairs_sums from, int64_t m, int64_t n, int64_t more);
#endif
