/* tile.h - multiplies f32 matrices with AVX2 and FMA, in tiles of 6 x 16 elements that stay in
 * registers.
 *
 *   c [m, n] (+)= a [m, k] b [k, n]     a in place, by two strides
 *                                       b in panels of 16 columns, each [k, 16]
 *
 * The caller packs b once and uses it for many products; OpenBLAS packs in every call. A call adds
 * to each element one chain of fused multiply-adds over k. So the bytes depend on how the caller
 * cuts k, but not on how it cuts m and n. */
#ifndef OSH_TILE_H
#define OSH_TILE_H
#include "math/mat.h"
#include "tensor/tensor.h"

/* BOTH: 48 columns are whole panels of 16 and whole strips of 6. */
enum { OSH_TILE_ROWS = 6, OSH_TILE_COLS = 16, OSH_TILE_BOTH = 48 };

/* True if the set in use is AVX2. With a higher set the wider kernels of the libraries are faster;
 * a lower one has no FMA. */
bool osh_tile_used(void);

/* Element (i, l) is p[i / 6 * strip + i % 6 * row + l * col]. A strip of 0 means 6 * row. */
typedef struct osh_tile_a {
    const float *p;
    int64_t row, col, strip;
} osh_tile_a; // view

typedef struct osh_tile_b { // panel j begins at p + j * panel; its element (l, c) is at l * step +
                            // c
    const float *p;
    int64_t panel, step;
} osh_tile_b; // view

/* c (+)= a b for any m and n. The last panel may have any values in columns from n on. */
void osh_tile_product(osh_into c, osh_tile_a a, osh_tile_b b, osh_mnk size);
/* Packs n <= 16 rows of x [n, ld] as the columns of one panel [k, 16]. The other columns become
 * 0. */
void osh_tile_pack_rows(float *to, const float *x, int64_t ld, int64_t n, int64_t k);
typedef struct osh_tile_columns { // n columns of x [k, ld] from element `first` on
    int64_t first, ld, n;         // n: number of columns, at most 48
} osh_tile_columns;
/* Packs 48 columns of x for products of x with itself, both as three panels [k, 16] and as eight
 * strips [k, 6]. The strips are an osh_tile_a with row 1, col 6 and strip 6 k. Columns from n on
 * are 0. */
void osh_tile_pack_columns(float *panels, float *strips, const osh_tensor *x, osh_tile_columns c,
                           int64_t k);
#endif
