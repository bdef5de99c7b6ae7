/* tile.h - multiplies f32 matrices with AVX2 and FMA, in tiles of 6 x 16 elements whose sums are in
 * registers.
 *
 *   c [m, n] (+)= a [m, k] b [k, n]     a is not packed: strides for rows and columns
 *                                       b in panels of 16 columns, each [k, 16]
 *
 * The caller packs b once and uses it for many products. (OpenBLAS would pack b in every call.) A
 * call computes each element of c by one chain of fused multiply-adds, in the order of k. So the
 * bytes of c change if the caller cuts k into several calls, but not if it cuts m or n. */
#ifndef OSH_TILE_H
#define OSH_TILE_H
#include "math/mat.h"
#include "tensor/tensor.h"

/* ROWS, COLS: numbers of rows and columns of a tile.
 * BOTH: least common multiple of the 16 columns of a panel and the 6 columns of a strip
 * (osh_tile_pack_columns). */
enum { OSH_TILE_ROWS = 6, OSH_TILE_COLS = 16, OSH_TILE_BOTH = 48 };

/* True if the instruction set in use is AVX2. With a higher set, the kernels of OpenBLAS and of
 * pairs.h are faster. A lower set has no fused multiply-add. */
bool osh_tile_used(void);

/* Matrix `a` in strips of 6 rows: element (row i, column l) is p[i / 6 * strip + i % 6 * row + l *
 * col]. For a matrix that is not packed, `strip` is 0, which stands for 6 * row. */
typedef struct osh_tile_a {
    const float *p;
    int64_t row, col, strip;
} osh_tile_a; // `p` is a view of the elements

/* Matrix `b` in panels of 16 columns. Panel `j` begins at p + j * panel. Row `l` of a panel begins
 * at l * step in the panel. */
typedef struct osh_tile_b {
    const float *p;
    int64_t panel, step;
} osh_tile_b; // `p` is a view of the elements

/* Computes c = a b for any m and n, or c += a b if c.add is true. If n is not a multiple of 16, the
 * last columns of b's last panel are not used. */
void osh_tile_product(osh_into c, osh_tile_a a, osh_tile_b b, osh_mnk size);
/* Packs n <= 16 rows of x [n, k] as the columns of one panel [k, 16]. Rows of x are ld elements
 * apart. The other columns of the panel become 0. */
void osh_tile_pack_rows(float *to, const float *x, int64_t ld, int64_t n, int64_t k);
typedef struct osh_tile_columns { // describes n columns of x [k, ld], from column `first` on
    int64_t first, ld, n; // n: number of columns, at most 48. ld: elements from row to row of x.
} osh_tile_columns;
/* Packs n <= 48 columns of x for products x^T x in two layouts: three panels [k, 16], and eight
 * strips [k, 6]. The strips are an osh_tile_a with row 1, col 6 and strip 6 k. Columns n to 47
 * become 0. */
void osh_tile_pack_columns(float *panels, float *strips, const osh_tensor *x, osh_tile_columns c,
                           int64_t k);
#endif
