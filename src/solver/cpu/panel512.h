/* panel512.h - the two loops of panel.h that a solve spends its time in, with AVX-512. */
#ifndef OSH_PANEL512_H
#define OSH_PANEL512_H
#include "solver/cpu/panel.h"

/* The CPU has AVX-512, and so many rows are whole vectors, two and two. */
bool osh_panel512_takes(int64_t rows);
/* It does the column loop too: of whole numbers, rounded to F32 or BF16. */
bool osh_panel512_solves(const osh_panel *p);
/* STRIP columns from j on gather what those before j leave to them and are quantized, in the order and with the
 * rounding of panel.c: the same bytes. scale_col [STRIP]: of these columns. */
void osh_panel512_solve(const osh_panel *p, int64_t j, const int32_t *scale_col);
/* osh_panel_rest, where osh_panel512_solves, and osh_panel_bytes of whole numbers, where it takes n rows. */
void osh_panel512_rest(const osh_panel *p, const int32_t *scale_col, int64_t n);
void osh_panel512_bytes(int8_t *to, const float *q, int64_t n);
/* osh_panel_update: an element is added one chain of fused multiply-adds over k. */
void osh_panel512_update(float *w, osh_mat ut, osh_mat ne, int64_t n, int64_t k);
#endif
