/* gemm_linear.h - computes a linear layer with OpenBLAS, in tiles of fixed size. Shape letters:
 * op.h. */
#ifndef OSH_GEMM_LINEAR_H
#define OSH_GEMM_LINEAR_H
#include "ops/kernel.h"

/* Computes y [N, O] = x [N, I] w [O, I]^T + bias [O], rounded to the dtype of y. bias may be NULL.
 * w and bias are rounded to the dtype of x. */
osh_status osh_gemm_linear(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w,
                           const osh_tensor *bias, const osh_seqs *seqs);
/* ROWS, COLS: numbers of rows and columns of a tile of y.
 * PANEL: largest number of rows of a panel. A panel consists of rows of x that are converted to f32
 * together. */
enum { OSH_GEMM_ROWS = 256, OSH_GEMM_COLS = 192, OSH_GEMM_PANEL = 2048 };
/* Returns the number of floats of a panel of x [N, I]. */
static inline int64_t osh_panel_floats(int64_t N, int64_t I)
{
    return osh_min64(N, OSH_GEMM_PANEL) * I;
}
size_t osh_gemm_scratch(int64_t I, int64_t n_tokens, int n_threads);
#endif
