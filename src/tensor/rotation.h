/* rotation.h - orthogonal matrices by which weights and activations are multiplied. None takes memory of its size.
 *
 *   M = diag(sign) (H x F) / sqrt(n)     x: Kronecker's product, n = 2^k K
 *
 *   H   [2^k, 2^k]  Sylvester's Hadamard matrix: 1, then [H H; H -H]
 *   F   [K, K]      hadamard: K = 1. random-hadamard: a Hadamard matrix of order K by Paley's constructions, K = 4 m,
 *                   8 m, ... the smallest that there is, m the odd part of n. random-matrix: Hartley's, F[b][c] =
 *                   cos + sin of 2 pi b c / K, K = m
 *   sign            of the random ones: -1 where the top bit of value i of the counter RNG (base/rng.h) is set, of
 *                   stream n
 *
 * n = 576 = 2^6 * 9: random-hadamard has K = 36 = 2 (17 + 1), random-matrix K = 9, hadamard none. x M of a row x takes
 * n (k + K) additions. */
#ifndef OSH_ROTATION_H
#define OSH_ROTATION_H
#include "tensor/tensor.h"

typedef enum { OSH_ROTATION_HADAMARD, OSH_ROTATION_RANDOM_HADAMARD, OSH_ROTATION_RANDOM_MATRIX } osh_rotation_kind;
typedef struct osh_rotation {
    osh_rotation_kind kind;
    int64_t n, factor; // rows and columns; K
    int8_t *had;       // own [K, K]: F of 1 and -1; NULL: it is Hartley's, or K is 1
    double *cas;       // own [K]: cos + sin of 2 pi i / K
    double *sign;      // own [n]; NULL: all 1
} osh_rotation;

/* OSH_E_USAGE where there is none of n rows: what says what it is for. */
osh_status osh_rotation_init(osh_ctx *cx, osh_rotation *r, osh_rotation_kind kind, int64_t n, uint64_t seed,
                             const char *what);
void osh_rotation_deinit(osh_ctx *cx, osh_rotation *r);
/* Rows [first, first + rows) of M sqrt(n): of a Hadamard matrix 1 and -1. */
void osh_rotation_rows(double *to, const osh_rotation *r, int64_t first, int64_t rows);
size_t osh_rotation_room(const osh_rotation *r); // bytes (gross) that each thread of the calls below takes meanwhile
/* Each n elements of a row x become x M, transposed: x M^T. m [rows, width], width a multiple of n. Products and sums
 * are of f64, rounded to its dtype at the end. */
osh_status osh_rotate_rows(osh_ctx *cx, osh_tensor *m, const osh_rotation *r, bool transposed);
/* The same of each n elements of a column; rows is a multiple of n. */
osh_status osh_rotate_columns(osh_ctx *cx, osh_tensor *m, const osh_rotation *r, bool transposed);
#endif
