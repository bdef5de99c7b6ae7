/* panel.h - the column loop and the search for scales inside a block of columns. A panel contains
 * rows of a weight, transposed to [columns, rows], so that each vector lane has its own row and no
 * sum crosses lanes. All instruction sets give the same bytes. */
#ifndef OSH_PANEL_H
#define OSH_PANEL_H
#include "math/mat.h"
#include "solver/gptq_scales.h"

/* STEP: the number of rows of a panel is a multiple of STEP. ROWS: largest number of rows of a
 * panel in the column loop. STRIP: number of columns (a strip) to which errors are added at the
 * same time. */
enum { OSH_PANEL_STEP = 32, OSH_PANEL_ROWS = 64, OSH_PANEL_STRIP = 8 };

typedef struct osh_panel {
    int64_t rows;
    float *w;            // [n, rows] input: weights; output: dequantized weights
    float *ne;           // [n, rows] output: negated errors
    float *q;            // [n, rows] output: values on the grid
    float *zeros;        // [n, rows] an element that is not 0: the weight must become 0; NULL: no
                         // weight must become 0
    float *scale, *zero; // [scale columns, rows]
    float *strip;        // [n, STRIP] scratch
    /* true: w contains errors of rounding to nearest; only ne is written, not q and w */
    bool nearest;
    osh_grid grid;
    osh_dtype dtype;     // dtype to which q - zero and (q - zero) scale are rounded
} osh_panel;

/* Solves n columns in order. Column j first receives the errors of the columns before j, in the
 * order of the reference: w_j + (-err_0 U[0, j]) + (-err_1 U[1, j]) + ... Then column j is
 * quantized. u [n, n]: diagonal block of U, with rows ldu elements apart; scale_col [n]: scale
 * column of each column. There is no fused multiply-add, because the reference rounds each
 * product. */
void osh_panel_solve(const osh_panel *p, const float *u, int64_t ldu, const int32_t *scale_col,
                     int64_t n);

/* Replaces the weights w of n columns by the errors w - dq of rounding them to nearest. */
void osh_panel_rest(const osh_panel *p, const int32_t *scale_col, int64_t n);

/* w [n, rows] += ut [n, k] ne [k, rows]: adds the errors of a block of k columns to n later
 * columns. ut: the elements of U^T for these columns; rows = ne.ld is 32 or 64. The caller must
 * have called osh_blas_open. */
void osh_panel_update(float *w, osh_mat ut, osh_mat ne, int64_t n, int64_t k);

/* to [n, m] = the transposed `from` [m, n]. Rows begin ldt and ldf elements apart. */
void osh_panel_turn(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t m, int64_t n);
/* Transposes `from` [m, n]: column j of `from` becomes row at[j] of `to`, or row j if `at` is
 * NULL. */
void osh_panel_lay(float *to, int64_t ldt, osh_mat from, int64_t m, int64_t n, const int32_t *at);
/* to [n] = the codes of the grid values q [n]. n is a multiple of 8. */
void osh_panel_bytes(int8_t *to, const osh_grid *grid, const float *q, int64_t n);
typedef struct osh_panel_turned { // the codes of a panel, transposed to [columns, rows]
    const int8_t *p; // [columns, rows]
    int64_t rows;
} osh_panel_turned;
/* Copies row at[j] of `from` to column j of `to` [m, n]. Rows of `to` are ldt elements apart. m <=
 * from.rows. */
void osh_panel_codes(int8_t *to, int64_t ldt, osh_panel_turned from, const int32_t *at, int64_t m,
                     int64_t n);
/* sums [p->rows] += ne^2 / 2 over the n columns of each row, added in order. */
void osh_panel_squares(const osh_panel *p, double *sums, int64_t n);

typedef struct osh_search { // arguments of the search for the scales of a group
    osh_scale_rule rule;
    const float *x, *weight; // x: [n, rows] weights; weight: [n] cost of an error in each column,
                             // NULL: 1
    int64_t n, rows;
} osh_search;

/* lo, hi [rows] = for each row, the smallest and the largest of its weights and the number 0. */
void osh_panel_ranges(const osh_search *s, float *lo, float *hi);
/* scale, zero [rows] = the best scale and zero point of each row with the range lo, hi [rows]. If
 * the rule is symmetric, zero is 0. */
void osh_panel_search(const osh_search *s, const float *lo, const float *hi, float *scale,
                      float *zero);
/* sums [OSH_SCALE_CANDIDATES] += the loss of each candidate scale over n_rows rows that have equal
 * lo and hi. */
void osh_panel_candidates(const osh_search *s, const float *lo, const float *hi, int64_t n_rows,
                          double *sums);
#endif
