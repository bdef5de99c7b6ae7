/* panel.h - declares two functions on panels: the column loop inside a block of columns, and the
 * search for scales. A panel contains rows of a weight, transposed to [columns, rows]. Each vector
 * lane has its own row, so no sum crosses lanes and all instruction sets give the same bytes. */
#ifndef OSH_PANEL_H
#define OSH_PANEL_H
#include "math/mat.h"
#include "solver/gptq_scales.h"

/* STEP: a panel has a multiple of STEP rows.
 * ROWS: largest number of rows of a panel in the column loop.
 * STRIP: number of columns of a strip. Errors are added to all columns of a strip at the same
 * time. */
enum { OSH_PANEL_STEP = 32, OSH_PANEL_ROWS = 64, OSH_PANEL_STRIP = 8 };

typedef struct osh_panel {
    int64_t rows;
    float *w;            // input: weights; output: dequantized weights; [n, rows]
    float *ne;           // output: negated errors, [n, rows]
    float *q;            // output: the codes as values of the grid, [n, rows]
    /* [n, rows]. An element is not 0 if the weight at this place must become 0. NULL: no weight
     * must become 0. */
    float *zeros;
    float *scale, *zero; // scales and zero points, [scale columns, rows]
    float *strip;        // scratch, [n, STRIP]
    /* True: `w` contains errors of rounding to nearest instead of weights, and `ne` is the only
     * output. */
    bool nearest;
    osh_grid grid;
    osh_dtype dtype;     // dtype to which q - zero and (q - zero) scale are rounded
} osh_panel;

/* Solves n columns in order. Column j first receives the errors of the columns before it, in the
 * order of the reference: w_j + (-err_0 U[0, j]) + (-err_1 U[1, j]) + ... Then column j is
 * quantized. No fused multiply-add is used, because the reference rounds each product.
 * u [n, n]: diagonal block of U, whose rows are ldu elements apart.
 * scale_col [n]: index of the scale column of each column. */
void osh_panel_solve(const osh_panel *p, const float *u, int64_t ldu, const int32_t *scale_col,
                     int64_t n);

/* Rounds the weights of n columns to nearest. Replaces each weight by its rounding error. */
void osh_panel_rest(const osh_panel *p, const int32_t *scale_col, int64_t n);

/* Adds the errors of a block of k columns to n later columns: w [n, rows] += ut [n, k] ne [k,
 * rows]. `ut` is the part of U^T for the later columns. rows = ne.ld is 32 or 64. The caller must
 * have called osh_blas_open. */
void osh_panel_update(float *w, osh_mat ut, osh_mat ne, int64_t n, int64_t k);

/* Transposes `from` [m, n] to `to` [n, m].
 * ldt: number of elements from one row of `to` to the next.
 * ldf: number of elements from one row of `from` to the next. */
void osh_panel_turn(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t m, int64_t n);
/* Transposes `from` [m, n]: column j of `from` becomes row `at`[j] of `to`, or row j if `at` is
 * NULL. */
void osh_panel_lay(float *to, int64_t ldt, osh_mat from, int64_t m, int64_t n, const int32_t *at);
/* Sets `to` [n] to the codes of q [n], which are values of the grid. n is a multiple of 8. */
void osh_panel_bytes(int8_t *to, const osh_grid *grid, const float *q, int64_t n);
typedef struct osh_panel_turned { // the codes of a panel
    const int8_t *p; // one byte per code, [columns, rows]
    int64_t rows;
} osh_panel_turned;
/* Copies row `at[j]` of `from` to column j of `to` [m, n]. Rows of `to` are ldt elements apart. m
 * <= from.rows. */
void osh_panel_codes(int8_t *to, int64_t ldt, osh_panel_turned from, const int32_t *at, int64_t m,
                     int64_t n);
/* For each row r of the panel and each of n columns j, adds ne[j][r]^2 / 2 to sums[r]. The terms
 * are added in the order of the columns. */
void osh_panel_squares(const osh_panel *p, double *sums, int64_t n);

typedef struct osh_search { // arguments of the search for the scales of one group
    osh_scale_rule rule;
    /* x [n, rows]: weights.
     * weight [n]: factor of the squared errors of each column in the loss; NULL: 1. */
    const float *x, *weight;
    int64_t n, rows;
} osh_search;

/* For each row r: sets lo[r] to min(0, weights of row r) and hi[r] to max(0, weights of row r). */
void osh_panel_ranges(const osh_search *s, float *lo, float *hi);
/* Sets `scale` and `zero` [rows] to the best scale and zero point of each row. lo, hi [rows]: range
 * of each row. If the rule is symmetric, `zero` becomes 0. */
void osh_panel_search(const osh_search *s, const float *lo, const float *hi, float *scale,
                      float *zero);
/* Computes the loss of each candidate scale, summed over n_rows rows, and adds it to `sums`
 * [OSH_SCALE_CANDIDATES]. All rows have the same range, lo to hi. */
void osh_panel_candidates(const osh_search *s, const float *lo, const float *hi, int64_t n_rows,
                          double *sums);
#endif
