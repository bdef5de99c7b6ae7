/* gemm.h - computes f32 products of row-major matrices on one thread, by OpenBLAS.
 *
 * The last bits of a product depend on its sizes m, n and k. So callers cut rows into tiles whose
 * size depends only on one sample, and not on the batch. */
#ifndef OSH_GEMM_H
#define OSH_GEMM_H
#include "math/mat.h"
#include "tensor/tensor.h"

/* A large Hessian is cut into at least this number of blocks for each thread. With fewer blocks,
 * some threads would wait for the others at the end. */
enum { OSH_BLOCKS_EACH = 4 };

/* Sets *i and *j to the row and the column of tile number c. The tiles of the lower triangle are
 * numbered row by row: c = i (i + 1) / 2 + j. */
static inline void osh_triangle_tile(int64_t *i, int64_t *j, int64_t c)
{
    *i = 0;
    while ((*i + 1) * (*i + 2) / 2 <= c) ++*i;
    *j = c - *i * (*i + 1) / 2;
}

/* Sets *i and *j to the row and the column of tile number `c`. The n x n tiles are numbered row by
 * row: c = i n + j. */
static inline void osh_square_tile(int64_t *i, int64_t *j, int64_t c, int64_t n)
{
    *i = c / n, *j = c % n;
}

/* Each function computes a matrix product: `c = a b`, or `c += a b` if c.add is true. c is [m, n].
 * The last two letters of a function's name describe a and b: t if the matrix is stored transposed,
 * else n. osh_blas_open (math/blas.h) must be called first. */
void osh_gemm_nt(osh_into c, osh_mat a, osh_mat b, osh_mnk size); // shapes: a [m, k], b [n, k]
void osh_gemm_nn(osh_into c, osh_mat a, osh_mat b, osh_mnk size); // shapes: a [m, k], b [k, n]
void osh_gemm_tn(osh_into c, osh_mat a, osh_mat b, osh_mnk size); // shapes: a [k, m], b [k, n]
/* Adds a^T a to the lower triangle of c [n, n]. The shape of `a` is [k, n]. */
void osh_syrk_lower_t(float *c, int64_t ldc, osh_mat a, int64_t n, int64_t k);

/* Converts rows [first, first + n_rows) of x [N, I] to f32, on all threads. `to`: [n_rows, I]. */
osh_status osh_widen_rows(osh_ctx *cx, float *to, const osh_tensor *x, int64_t first,
                          int64_t n_rows);
#endif
