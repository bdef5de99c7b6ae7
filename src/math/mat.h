/* mat.h - defines views of row-major f32 matrices for matrix products. Row i begins at p + i *
 * ld. */
#ifndef OSH_MAT_H
#define OSH_MAT_H
#include <stdbool.h>
#include <stdint.h>

/* A matrix that is read; p is a view. */
typedef struct osh_mat { const float *p; int64_t ld; } osh_mat;
/* A matrix that is written; p is a view. A product is added to the matrix if `add` is true;
 * otherwise the product overwrites the matrix. */
typedef struct osh_into { float *p; int64_t ld; bool add; } osh_into;
/* Sizes of a matrix product: [m, n] = [m, k] [k, n]. */
typedef struct osh_mnk { int64_t m, n, k; } osh_mnk;
#endif
