/* softmax512.h - the softmax of rows of scores with AVX-512 BF16. */
#ifndef OSH_SOFTMAX512_H
#define OSH_SOFTMAX512_H
#include <stdbool.h>
#include <stdint.h>

enum { OSH_SOFTMAX_ROWS = 4 };

/* Rows of scores s and of the result `to`. Row r of s begins at s + r * ld, row r of `to` at to + 2
 * * r * ld. All pointers are views. */
typedef struct osh_scores {
    float *s;
    uint16_t *to; // BF16; may begin at s or before s
    int64_t ld, n; // n: values of a row, a multiple of 8
    int rows;      // 1 or OSH_SOFTMAX_ROWS
    float scale;   // greater than 0
} osh_scores;

/* Replaces s by e^(s * scale - max), where max is the largest s * scale of the row. Sets sum[r] to
 * the sum of the exponentials of row r. If all quotients s / sum[r] can be computed without a
 * division, writes them to `to` and returns true. */
bool osh_softmax512(const osh_scores *q, float *sum);
#endif
