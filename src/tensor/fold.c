/* fold.c - multiplies and divides weights by the factors of their channels. */
#include "tensor/fold.h"

#include <math.h>

enum { PIECE = 256 }; // number of elements that are converted to f32 at a time

/* Multiplies x [k] by the factors of its columns, or divides x by the factor of its row. x is a
 * part of row `row` of a weight, from column `column` on. */
static void fold_piece(float *x, const osh_fold_rule *r, int64_t row, int64_t column, int64_t k)
{
    if (r->way == OSH_FOLD_COLUMNS)
        for (int64_t i = 0; i < k; i++) x[i] *= r->s[column + i];
    else if (r->offset != 0)
        for (int64_t i = 0; i < k; i++) x[i] = (x[i] + r->offset) / r->s[row] - r->offset;
    else
        for (int64_t i = 0; i < k; i++) x[i] /= r->s[row];
}

void osh_fold_factors(void *data, osh_dtype dt, const osh_fold_rule *r, int64_t first, int64_t n)
{
    float x[PIECE];
    for (int64_t at = 0, k; at < n; at += k) {
        char *w = (char *)data + (size_t)at * osh_dtype_bytes(dt);
        int64_t row = (first + at) / r->width, column = (first + at) % r->width;
        // a piece ends at the end of its row, or before
        k = r->width - column < n - at ? r->width - column : n - at;
        if (k > PIECE) k = PIECE;
        osh_to_f32(x, w, dt, k);
        fold_piece(x, r, row, column, k);
        osh_from_f32(w, dt, x, k);
    }
}

void osh_fold_most(float *most, const void *data, osh_dtype dt, int64_t width, int64_t first,
                   int64_t n)
{
    float x[PIECE];
    for (int64_t at = 0, k; at < n; at += k) {
        int64_t column = (first + at) % width;
        k = width - column < n - at ? width - column : n - at;
        if (k > PIECE) k = PIECE;
        osh_to_f32(x, (const char *)data + (size_t)at * osh_dtype_bytes(dt), dt, k);
        for (int64_t i = 0; i < k; i++)
            if (fabsf(x[i]) > most[column + i]) most[column + i] = fabsf(x[i]);
    }
}
