/* fold.c - see fold.h. */
#include "tensor/fold.h"

#include <math.h>

enum { PIECE = 256 }; // elements at a time

void osh_fold_factors(void *data, osh_dtype dt, osh_fold_way way, const float *s, int64_t width, int64_t first,
                      int64_t n)
{
    float x[PIECE];
    for (int64_t at = 0, k; at < n; at += k) {
        char *w = (char *)data + (size_t)at * osh_dtype_bytes(dt);
        int64_t row = (first + at) / width, column = (first + at) % width;
        k = width - column < n - at ? width - column : n - at; // one row
        if (k > PIECE) k = PIECE;
        osh_to_f32(x, w, dt, k);
        for (int64_t i = 0; i < k; i++) x[i] = way == OSH_FOLD_ROWS ? x[i] / s[row] : x[i] * s[column + i];
        osh_from_f32(w, dt, x, k);
    }
}

void osh_fold_most(float *most, const void *data, osh_dtype dt, int64_t width, int64_t first, int64_t n)
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
