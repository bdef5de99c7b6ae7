/* softmax512.h - computes the softmax of rows of scores with AVX-512 BF16. */
#ifndef OSH_SOFTMAX512_H
#define OSH_SOFTMAX512_H
#include <stdbool.h>
#include <stdint.h>

enum { OSH_SOFTMAX_ROWS = 4 };

/* Rows of scores `s`, and rows of the result `to`. All pointers are views. Row r begins
 * at `s + r * ld` in the scores and at `to + 2 * r * ld` in the result. */
typedef struct osh_scores {
    float *s;
    uint16_t *to; // result in BF16; may begin at the address s or before it
    int64_t ld, n; // n: number of values of a row, a multiple of 8
    int rows;      // number of rows: 1 or OSH_SOFTMAX_ROWS
    float scale;   // greater than 0
} osh_scores;

/* Replaces s by e^(s * scale - max), where max is the largest s * scale of the row. Sets sum[r] to
 * the sum of row r. If all quotients s / sum[r] can be computed by multiplications (softmax512.c),
 * writes the quotients to `to` and returns true. Otherwise returns false. */
bool osh_softmax512(const osh_scores *q, float *sum);
#endif
