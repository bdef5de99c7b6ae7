/* tile.h - products of f32 on AVX2 with FMA, out of tiles of 6 x 16 elements that stay in registers.
 *
 *   c [m, n] (+)= a [m, k] b [k, n]     a as it lies, by two strides; b in panels of 16 columns, each [k, 16]
 *
 * What a product brings up often is packed once, by whoever knows how often: OpenBLAS packs in every call. What a call
 * adds to an element is one chain of fused multiply-adds over k: bytes depend on how k is cut, never on how m and n
 * are. */
#ifndef OSH_TILE_H
#define OSH_TILE_H
#include "math/mat.h"
#include "tensor/tensor.h"

enum { OSH_TILE_ROWS = 6, OSH_TILE_COLS = 16, OSH_TILE_BOTH = 48 }; // BOTH: columns that are whole panels and strips

/* The set in force is AVX2: above it the libraries' wider kernels win, below it there is no FMA. */
bool osh_tile_used(void);

typedef struct osh_tile_a { // element (i, l) is p[i / 6 * strip + i % 6 * row + l * col]; strip 0: of 6 rows
    const float *p;
    int64_t row, col, strip;
} osh_tile_a; // view

typedef struct osh_tile_b { // panel j is at p + j * panel, element (l, c) of it at l * step + c
    const float *p;
    int64_t panel, step;
} osh_tile_b; // view

/* m, n: any; what is missing in the last panel may hold anything. */
void osh_tile_product(osh_into c, osh_tile_a a, osh_tile_b b, osh_mnk size);
/* One panel, to [k, 16], of n <= 16 rows of x [n, ld] that become its columns; k a multiple of 8 or the rest of it. */
void osh_tile_pack_rows(float *to, const float *x, int64_t ld, int64_t n, int64_t k);
typedef struct osh_tile_columns { // of x [k, ld], from element `first` on
    int64_t first, ld, n; // n: columns that there are, at most 48
} osh_tile_columns;
/* 48 columns of x for products of x with itself: as three panels [k, 16] and as eight strips [k, 6], which are an
 * osh_tile_a with row 1, col 6 and strip 6 k. Of columns from n on: 0. */
void osh_tile_pack_columns(float *panels, float *strips, const osh_tensor *x, osh_tile_columns c, int64_t k);
#endif
