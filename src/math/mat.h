/* mat.h - views of row-major matrices that are multiplied in f32. Row i begins at p + i * ld. */
#ifndef OSH_MAT_H
#define OSH_MAT_H
#include <stdbool.h>
#include <stdint.h>

/* A matrix that is read; p is a view. */
typedef struct osh_mat { const float *p; int64_t ld; } osh_mat;
/* A matrix that is written; p is a view. `add` true: a product is added to the matrix; false: a
 * product overwrites the matrix. */
typedef struct osh_into { float *p; int64_t ld; bool add; } osh_into;
/* Sizes of a matrix product: [m, n] = [m, k] [k, n]. */
typedef struct osh_mnk { int64_t m, n, k; } osh_mnk;
#endif
