/* panel512.h - declares AVX-512 versions of two loops of panel.h. A solve spends most of its time
 * in these loops. */
#ifndef OSH_PANEL512_H
#define OSH_PANEL512_H
#include "solver/cpu/panel.h"

/* True if the AVX-512 functions support panels of `rows` rows: the CPU has AVX-512, and `rows` is a
 * multiple of 32, the number of floats in two vectors. */
bool osh_panel512_takes(int64_t rows);
/* True if osh_panel512_solve supports the panel: the CPU has AVX-512, the codes are integers, and
 * dtype is F32 or BF16. */
bool osh_panel512_solves(const osh_panel *p);
/* Solves the strip of columns [j, j + STRIP): adds the errors of all columns before j, and
 * quantizes the columns of the strip. The bytes are equal to those of panel.c. `scale_col` [STRIP]:
 * index of the scale column of each column. */
void osh_panel512_solve(const osh_panel *p, int64_t j, const int32_t *scale_col);
/* Does the work of osh_panel_rest. osh_panel512_solves must be true. */
void osh_panel512_rest(const osh_panel *p, const int32_t *scale_col, int64_t n);
/* Does the work of osh_panel_bytes for integer codes. osh_panel512_takes(n) must be true. */
void osh_panel512_bytes(int8_t *to, const float *q, int64_t n);
/* Does the work of osh_panel_update. Each element of w is computed by one chain of k fused
 * multiply-adds. */
void osh_panel512_update(float *w, osh_mat ut, osh_mat ne, int64_t n, int64_t k);
#endif
