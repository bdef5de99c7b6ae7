/* panel.h - rows of a weight, turned: [columns, rows], so that a vector's lane is a row and no sum crosses lanes.
 * What the column loop and the search for scales do inside a block of columns; the same bytes under every set. */
#ifndef OSH_PANEL_H
#define OSH_PANEL_H
#include "math/mat.h"
#include "solver/gptq_scales.h"

/* Rows come in STEPs, those of a weight that is solved in ROWS at most; columns that gather together. */
enum { OSH_PANEL_STEP = 32, OSH_PANEL_ROWS = 64, OSH_PANEL_STRIP = 8 };

typedef struct osh_panel {
    int64_t rows;
    float *w;            // [n, rows] in: weights; out: dequantized
    float *ne;           // [n, rows] out: negated errors
    float *q;            // [n, rows] out: values on the grid
    float *zeros;        // [n, rows] not 0: becomes 0, whatever w is; NULL: none
    float *scale, *zero; // [scale columns, rows]
    float *strip;        // [n, STRIP] room
    bool nearest;        // w is what rounding to nearest leaves: all of it is the error, q and w stay as they are
    osh_grid grid;
    osh_dtype dtype;     // that (q - zero) scale is rounded to
} osh_panel;

/* Column j gathers what the columns before it leave to it, w_j + (-err_0 U[0, j]) + (-err_1 U[1, j]) + ..., in the
 * order in which the reference subtracts, and is quantized. u: corner of U with rows of ldu; scale_col [n]: scale
 * column of each column. No fused multiply-add: the reference rounds each product. */
void osh_panel_solve(const osh_panel *p, const float *u, int64_t ldu, const int32_t *scale_col, int64_t n);

/* w -= what the grid and rounding make of it: what rounding to nearest leaves. */
void osh_panel_rest(const osh_panel *p, const int32_t *scale_col, int64_t n);

/* w [n, rows] += ut [n, k] ne [k, rows]: what a block of k columns leaves to n later ones, ut being rows of U^T, and
 * rows = ne.ld 32 or 64. Wants osh_blas_open before. */
void osh_panel_update(float *w, osh_mat ut, osh_mat ne, int64_t n, int64_t k);

/* to [n, m] = from [m, n], turned; rows ldt and ldf apart. */
void osh_panel_turn(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t m, int64_t n);
/* The same with column j of `from` in row at[j]. */
void osh_panel_lay(float *to, int64_t ldt, osh_mat from, int64_t m, int64_t n, const int32_t *at);
/* Codes of n values of the grid, a multiple of 8. */
void osh_panel_bytes(int8_t *to, const osh_grid *grid, const float *q, int64_t n);
typedef struct osh_panel_turned { // of a panel
    const int8_t *p; // [, rows]
    int64_t rows;
} osh_panel_turned;
/* to [m, n], rows ldt apart: column j is row at[j] of `from`. m <= from.rows */
void osh_panel_codes(int8_t *to, int64_t ldt, osh_panel_turned from, const int32_t *at, int64_t m, int64_t n);
/* sums [p->rows] += the squares of the n columns of p->ne, halved, each row's in their order. */
void osh_panel_squares(const osh_panel *p, double *sums, int64_t n);

typedef struct osh_search { // for scales of columns [n, rows] x
    osh_scale_rule rule;
    const float *x, *weight; // [n, rows]; [n] or NULL: 1
    int64_t n, rows;
} osh_search;

/* lo, hi [rows]: smallest and largest of each row, and 0. */
void osh_panel_ranges(const osh_search *s, float *lo, float *hi);
/* Of each row the best scale and zero point (0 where symmetric), both [rows], in the range lo, hi. */
void osh_panel_search(const osh_search *s, const float *lo, const float *hi, float *scale, float *zero);
/* sums [OSH_SCALE_CANDIDATES] += the loss of each candidate, of n_rows rows with the same lo and hi. */
void osh_panel_candidates(const osh_search *s, const float *lo, const float *hi, int64_t n_rows, double *sums);
#endif
