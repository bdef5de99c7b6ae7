/* pairs.h - products of BF16 with sums in F32, on the instructions that multiply pairs: AMX's tiles, AVX-512 BF16.
 *
 *   c [m, n] = a [m, k] b [k, n]
 *
 *   a   rows, pairs of neighbours in k side by side: a row-major matrix as it lies, or blocks that were packed
 *   b   packed: panels of 16 columns, each [k / 2][16] words of two bf16, of which the first is of the even k; k
 *       padded by zeros to a multiple of 32
 *
 * What a call adds to an element is one chain over k from 0: bytes depend on how k is cut, never on how m and n are,
 * nor on which of two matrices is a. */
#ifndef OSH_PAIRS_H
#define OSH_PAIRS_H
#include "tensor/tensor.h"

enum { OSH_PAIRS_SIDE = 16, OSH_PAIRS_STEP = 32, OSH_PAIRS_BAND = 32 }; // columns of a panel; k is padded to; rows of a

bool osh_pairs_used(void); // the set that is used multiplies pairs
bool osh_pairs_take(const osh_tensor *x); // BF16, and they are

static inline int64_t osh_pairs_pad(int64_t k) { return (k + OSH_PAIRS_STEP - 1) / OSH_PAIRS_STEP * OSH_PAIRS_STEP; }
/* Words of a panel, and of a packed block of 16 rows. */
static inline int64_t osh_pairs_panel(int64_t k) { return osh_pairs_pad(k) / 2 * OSH_PAIRS_SIDE; }

/* Rows as they lie (step 32), or blocks of 16 rows as they are packed here. Element (i, l) of a block is
 * p[l / 32 * step + i * row + l % 32]; the second block is `block` elements on. */
typedef struct osh_pairs_a { // view
    const uint16_t *p;
    int64_t row, step, block;
} osh_pairs_a;

typedef struct osh_pairs_b { // view
    const uint32_t *panels;
    int64_t n, k, stride; // panels, their length, and words from one to the next
    bool far;             // AMX reads them past the first cache, in which a stays for the panels that come
} osh_pairs_b;

/* A panel of n <= 16 columns, each a row of x: x [n, k], rows ld apart. */
void osh_pairs_pack_rows(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
/* Panels of the n columns of x [k, n], rows ld apart: one behind the other, or `stride` words apart. */
void osh_pairs_pack_columns(uint32_t *to, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
void osh_pairs_pack_apart(uint32_t *to, int64_t stride, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
/* The panel's columns as the rows of a block. */
void osh_pairs_turn(uint32_t *to, const uint32_t *panel, int64_t k);
/* Up to OSH_PAIRS_BAND rows of x as they lie where that is allowed, else as blocks in room [2 panels]. */
osh_pairs_a osh_pairs_rows(uint32_t *room, const uint16_t *x, int64_t ld, int64_t n, int64_t k);
static inline osh_pairs_a osh_pairs_packed(const uint32_t *blocks, int64_t k)
{
    return (osh_pairs_a){(const uint16_t *)blocks, OSH_PAIRS_STEP, OSH_PAIRS_SIDE * OSH_PAIRS_STEP,
                         2 * osh_pairs_panel(k)};
}

/* A thread calls osh_pairs_product between these two: with AMX they set its tiles up and release them. */
void osh_pairs_begin(void);
void osh_pairs_end(void);
/* c, rows ldc apart: m <= OSH_PAIRS_BAND rows, written in whole blocks of 16, and whole panels of columns. On this
 * thread. */
void osh_pairs_product(float *c, int64_t ldc, osh_pairs_a a, int64_t m, osh_pairs_b b);
typedef struct osh_pairs_y { // view: n columns of rows that lie ld apart
    uint16_t *p;
    int64_t ld, n;
    const float *bias; // [n] or NULL
} osh_pairs_y;
/* m rows of y: sums and bias, rounded to BF16. */
void osh_pairs_narrow(const osh_pairs_y *y, const float *sums, int64_t ld, int64_t m);
void osh_pairs_turn_sums(float *to, int64_t ld, const float *c, int64_t ldc); // 16 x 16 of them
void osh_pairs_add(float *to, const float *from, int64_t n);
typedef struct osh_pairs_sums { float *p; int64_t ld; } osh_pairs_sums; // view: rows that lie ld apart
/* Adds m rows: n columns of the first, n + more of the second, n + 2 more of the third. */
void osh_pairs_add_rows(osh_pairs_sums to, osh_pairs_sums from, int64_t m, int64_t n, int64_t more);
#endif
