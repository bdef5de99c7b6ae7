/* rotation.h - multiplies weights and activations by orthogonal matrices M. Only two factors of M
 * are stored: the matrix F and the vector `sign`.
 *
 *   M = diag(sign) (H x F) / sqrt(n)     x is the Kronecker product
 *   M   [n, n]      n = 2^k K; m is the odd part of n
 *
 *   H   [2^k, 2^k]  Sylvester's Hadamard matrix: 1, then [H H; H -H]
 *   F   [K, K]      hadamard: K = 1 and F = 1
 *                   random-hadamard: a Hadamard matrix of order K by Paley's constructions; K is
 *                   the smallest possible of 4 m, 8 m, ...
 *                   random-matrix: Hartley's matrix F[b][c] = cos(a) + sin(a) with
 *                   a = 2 pi b c / K and K = m
 *   sign            random kinds: one sign for each row i of M. It is -1 if the top bit of number i
 *                   in stream n of the RNG (base/rng.h) is set
 *
 * For n = 576 = 2^6 * 9, random-hadamard has K = 36 = 2 (17 + 1), random-matrix has K = 9, and
 * hadamard does not exist. The product of one row and M needs n (k + K) additions. */
#ifndef OSH_ROTATION_H
#define OSH_ROTATION_H
#include "tensor/tensor.h"

typedef enum {
    OSH_ROTATION_HADAMARD,
    OSH_ROTATION_RANDOM_HADAMARD,
    OSH_ROTATION_RANDOM_MATRIX
} osh_rotation_kind;
typedef struct osh_rotation {
    osh_rotation_kind kind;
    int64_t n, factor; // M is [n, n]; F is [factor, factor]
    /* Own [K, K]: F if its elements are 1 and -1. NULL: F is Hartley's matrix, or K is 1. */
    int8_t *had;
    double *cas; // Own [K]: cos(a) + sin(a) with a = 2 pi i / K. NULL: F is in `had`, or K is 1.
    double *sign;      // own [n]: sign of each row of M; NULL: all signs are 1
} osh_rotation;

/* Makes a rotation of n rows. Returns OSH_E_USAGE or OSH_E_UNSUPPORTED if there is no matrix of
 * this kind and size. `what`: name of the rotated value, for messages. */
osh_status osh_rotation_init(osh_ctx *cx, osh_rotation *r, osh_rotation_kind kind, int64_t n,
                             uint64_t seed, const char *what);
void osh_rotation_deinit(osh_ctx *cx, osh_rotation *r);
/* Computes rows [first, first + rows) of the matrix M times sqrt(n). The elements are 1 and -1 if M
 * is a Hadamard matrix. */
void osh_rotation_rows(double *to, const osh_rotation *r, int64_t first, int64_t rows);
/* Returns the number of bytes of scratch (gross) that each thread of osh_rotate_rows and
 * osh_rotate_columns needs. */
size_t osh_rotation_room(const osh_rotation *r);
/* Multiplies m [rows, width] by M from the right. Each row of m is cut into vectors x of n
 * neighbouring elements, and x becomes x M, or x M^T if `transposed` is true. width is a multiple
 * of n. Products and sums are f64; results are rounded to the dtype of m. */
osh_status osh_rotate_rows(osh_ctx *cx, osh_tensor *m, const osh_rotation *r, bool transposed);
/* Works like osh_rotate_rows, but with vectors of n neighbouring elements of a column of m. The
 * number of rows is a multiple of n. */
osh_status osh_rotate_columns(osh_ctx *cx, osh_tensor *m, const osh_rotation *r, bool transposed);
#endif
