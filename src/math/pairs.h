/* pairs.h - computes matrix products of BF16 values with sums in F32. These functions use the CPU
 * instructions that multiply pairs of BF16 values: AMX tiles and AVX-512 BF16.
 *
 *   c [m, n] = a [m, k] b [k, n]
 *
 *   a   row-major matrix that is not packed, or packed blocks
 *   b   packed: panels of 16 columns, each [k / 2][16] words; word [l][c] holds rows 2 l (low 16
 *       bits) and 2 l + 1 of column c; k is padded with zeros to a multiple of 32
 *
 * A call computes each element of c as one sum over k, in ascending order. So the bytes of c change
 * if the caller cuts k into several calls, but not if it cuts m or n. Exchanging a and b does not
 * change the bytes. */
#ifndef OSH_PAIRS_H
#define OSH_PAIRS_H
#include "tensor/tensor.h"

/* SIDE: number of columns of a panel.
 * STEP: k is padded to a multiple of STEP.
 * BAND: largest number of rows of `a` in one call. */
enum { OSH_PAIRS_SIDE = 16, OSH_PAIRS_STEP = 32, OSH_PAIRS_BAND = 32 };

/* True if the instruction set in use has instructions that multiply pairs of BF16 values. */
bool osh_pairs_used(void);
/* True if x is BF16 and osh_pairs_used is true. */
bool osh_pairs_take(const osh_tensor *x);

static inline int64_t osh_pairs_pad(int64_t k)
{
    return (k + OSH_PAIRS_STEP - 1) / OSH_PAIRS_STEP * OSH_PAIRS_STEP;
}
/* Returns the number of 32-bit words of a panel. A packed block of 16 rows has as many words. */
static inline int64_t osh_pairs_panel(int64_t k) { return osh_pairs_pad(k) / 2 * OSH_PAIRS_SIDE; }

/* Operand a: one or two blocks of 16 rows. They are rows of a row-major matrix (`step` is 32), or
 * packed blocks. Element (row i, column l) of a block is p[l / 32 * step + i * row + l % 32]. The
 * second block begins `block` elements after the first. */
typedef struct osh_pairs_a { // `p` is a view of the elements
    const uint16_t *p;
    int64_t row, step, block;
} osh_pairs_a;

typedef struct osh_pairs_b { // right operand b; `panels` is a view
    const uint32_t *panels;
    /* n: number of panels.
     * k: number of rows of b.
     * stride: number of words from one panel to the next. */
    int64_t n, k, stride;
    /* True: AMX loads panels with a hint to bypass the first-level cache, so that `a` stays in this
     * cache. */
    bool far;
} osh_pairs_b;

/* Packs one panel of n <= 16 columns. Column i of the panel is row i of x [n, k]. Rows of x are ld
 * elements apart. */
void osh_pairs_pack_rows(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
/* Packs all n rows of x [n, k] as columns of panels, one panel after the other. Adds columns of
 * zeros up to a multiple of 32 columns. */
void osh_pairs_pack_all_rows(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
/* Packs the n columns of x [k, n] into panels. Rows of x are ld elements apart.
 * osh_pairs_pack_columns writes one panel after the other. osh_pairs_pack_apart writes panels
 * `stride` words apart. */
void osh_pairs_pack_columns(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
void osh_pairs_pack_apart(uint32_t *to, int64_t stride, const uint16_t *x, int64_t ld, int64_t n,
                          int64_t k);
/* Transposes a packed panel [k, 16] of `b`. The result is a packed block [16, k] of `a`. */
void osh_pairs_turn(uint32_t *to, const uint32_t *panel, int64_t k);
/* Returns n <= OSH_PAIRS_BAND rows of x as the operand a. If n is a multiple of 16 and k is a
 * multiple of 32, the result is a view of x. Otherwise the rows are packed into `room`, which must
 * have memory for 2 panels. */
osh_pairs_a osh_pairs_rows(uint32_t *room, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
static inline osh_pairs_a osh_pairs_packed(const uint32_t *blocks, int64_t k)
{
    return (osh_pairs_a){(const uint16_t *)blocks, OSH_PAIRS_STEP, OSH_PAIRS_SIDE * OSH_PAIRS_STEP,
                         2 * osh_pairs_panel(k)};
}

/* A thread calls osh_pairs_begin before its first osh_pairs_product. It calls osh_pairs_end after
 * its last osh_pairs_product. With AMX, these two functions configure and release the tile
 * registers of the thread. */
void osh_pairs_begin(void);
void osh_pairs_end(void);
/* Writes c = a b on the calling thread. m: number of rows, at most OSH_PAIRS_BAND. Rows of c are
 * ldc elements apart. The function writes whole blocks of 16 rows and whole panels of 16 columns.
 * So c must have memory for rows and columns up to the next multiple of 16. */
void osh_pairs_product(float *c, int64_t ldc, osh_pairs_a a, int64_t m, osh_pairs_b b);
/* An output y with n columns. Rows of y are ld elements apart. All pointers are views. */
typedef struct osh_pairs_y {
    uint16_t *p;
    int64_t ld, n;
    const float *bias; // the bias [n], or NULL for no bias
} osh_pairs_y;
/* Writes m rows of y: sums plus bias, rounded to BF16. Rows of `sums` are ld elements apart.
 * Returns true if all written values are finite. */
bool osh_pairs_narrow(const osh_pairs_y *y, const float *sums, int64_t ld, int64_t m);
/* Writes the transpose of c [16, 16] to `to` [16, 16]. Rows of c are ldc elements apart. Rows of
 * `to` are ld elements apart. */
void osh_pairs_turn_sums(float *to, int64_t ld, const float *c, int64_t ldc);
/* Adds n elements of the array `from` to the array `to`. */
void osh_pairs_add(float *to, const float *from, int64_t n);
/* A matrix of sums. Rows are `ld` elements apart. `p` is a view. */
typedef struct osh_pairs_sums { float *p; int64_t ld; } osh_pairs_sums;
/* Adds `from[i][j]` to `to[i][j]` for rows i < m and columns j < n + i * more. */
void osh_pairs_add_rows(osh_pairs_sums to, osh_pairs_sums from, int64_t m, int64_t n, int64_t more);
#endif
