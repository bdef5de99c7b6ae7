/* mat.h - operands of f32 products: views of row-major matrices, row i at p + i * ld. */
#ifndef OSH_MAT_H
#define OSH_MAT_H
#include <stdbool.h>
#include <stdint.h>

typedef struct osh_mat { const float *p; int64_t ld; } osh_mat;       // view
typedef struct osh_into { float *p; int64_t ld; bool add; } osh_into; // view: output; add: += not =
typedef struct osh_mnk { int64_t m, n, k; } osh_mnk;                  // [m, n] = [m, k] [k, n]
#endif
