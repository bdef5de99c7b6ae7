/* rotation.h - orthogonal matrices that multiply weights and activations. Of a matrix M only F and
 * sign are stored.
 *
 *   M = diag(sign) (H x F) / sqrt(n)     x: Kronecker's product, n = 2^k K
 *
 *   H   [2^k, 2^k]  Sylvester's Hadamard matrix: 1, then [H H; H -H]
 *   F   [K, K]      hadamard: K = 1
 *                   random-hadamard: a Hadamard matrix of order K by Paley's constructions, K
 *                   the smallest possible of 4 m, 8 m, ..., m the odd part of n
 *                   random-matrix: Hartley's, F[b][c] = cos + sin of 2 pi b c / K, K = m
 *   sign            random kinds: -1 if the top bit of value i of stream n of the counter RNG
 *                   (base/rng.h) is set
 *
 * For n = 576 = 2^6 * 9 random-hadamard has K = 36 = 2 (17 + 1), random-matrix K = 9, and hadamard
 * does not exist. x M of a row x takes n (k + K) additions. */
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
    int64_t n, factor; // n: rows and columns; factor: K
    int8_t *had;       // own [K, K]: F of 1 and -1; NULL: Hartley's matrix, or K is 1
    double *cas;       // own [K]: cos + sin of 2 pi i / K
    double *sign;      // own [n]: sign of each row; NULL: all 1
} osh_rotation;

/* Makes a rotation of n rows. Returns OSH_E_USAGE or OSH_E_UNSUPPORTED if no such matrix exists.
 * `what` names its use in messages. */
osh_status osh_rotation_init(osh_ctx *cx, osh_rotation *r, osh_rotation_kind kind, int64_t n,
                             uint64_t seed, const char *what);
void osh_rotation_deinit(osh_ctx *cx, osh_rotation *r);
/* Computes rows [first, first + rows) of M sqrt(n); the elements of a Hadamard matrix are 1 and
 * -1. */
void osh_rotation_rows(double *to, const osh_rotation *r, int64_t first, int64_t rows);
/* Returns the gross bytes that each thread of the calls below allocates. */
size_t osh_rotation_room(const osh_rotation *r);
/* Multiplies each vector x of n neighbouring elements of a row by M, or by M^T if transposed. m:
 * [rows, width]; width is a multiple of n. Products and sums are f64 and are rounded to the dtype
 * of m at the end. */
osh_status osh_rotate_rows(osh_ctx *cx, osh_tensor *m, const osh_rotation *r, bool transposed);
/* Multiplies each vector of n neighbouring elements of a column in the same way. The number of rows
 * is a multiple of n. */
osh_status osh_rotate_columns(osh_ctx *cx, osh_tensor *m, const osh_rotation *r, bool transposed);
#endif
