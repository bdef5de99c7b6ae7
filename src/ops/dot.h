/* dot.h - computes the dot product that reference kernels use. */
#ifndef OSH_DOT_H
#define OSH_DOT_H
#include <stdint.h>

/* Returns the dot product of x [n] and w [n]. Partial sum k adds the elements k, k + 8, k + 16, ...
 * in double. Then the partial sums are added in order. */
static inline double osh_dot(const float *x, const float *w, int64_t n)
{
    enum { LANES = 8 };
    double sum[LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) sum[k] += (double)x[i + k] * w[i + k];
    for (int k = 0; i + k < n; k++) sum[k] += (double)x[i + k] * w[i + k];
    for (int k = 0; k < LANES; k++) all += sum[k];
    return all;
}
#endif
