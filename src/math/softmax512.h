/* softmax512.h - the softmax of one row with AVX-512 BF16. */
#ifndef OSH_SOFTMAX512_H
#define OSH_SOFTMAX512_H
#include <stdbool.h>
#include <stdint.h>

/* Overwrites s [n] with e^(s * scale - max), where max is the largest s * scale. `n`: a multiple of
 * 8. `scale`: greater than 0. Sets *sum to the sum of the exponentials. If each quotient can be
 * computed without a division, writes the quotients s / *sum as BF16 to `to` and returns true. `to`
 * may begin at s or before s. */
bool osh_softmax512(uint16_t *to, float *s, int64_t n, float scale, float *sum);
#endif
