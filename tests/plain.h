/* plain.h - computes sums over large arrays. Tests compare these sums with the results of kernels.
 *
 * PLAIN functions are compiled without sanitizers, because sanitizers make such loops ten times
 * slower. `I` is the number of in_features of a Linear, and `O` is the number of out_features. */
#ifndef OSH_PLAIN_H
#define OSH_PLAIN_H
#include <stdint.h>

#ifdef __SANITIZE_ADDRESS__ // if SANITIZED is true, a test may skip cases that run the same code
                            // again
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#if defined(__GNUC__) && !defined(__clang__) // gcc 12 -O2 does not vectorize these loops
#define PLAIN                                                                                      \
    __attribute__((noinline, unused, no_sanitize("address"), no_sanitize("undefined"),             \
                   optimize("O3")))
#else
#define PLAIN __attribute__((noinline, unused, no_sanitize("address"), no_sanitize("undefined")))
#endif

/* Adds x^T y of two rows, x [I] and y [I], to the lower triangle (with the diagonal) of h [I,
 * I]. */
PLAIN static void plain_add_lower(float *restrict h, const float *restrict x,
                                  const float *restrict y, int64_t I)
{
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j <= i; j++) h[i * I + j] += x[i] * y[j];
}

/* Copies the lower triangle of h [I, I] to the upper triangle. */
PLAIN static void plain_mirror(float *h, int64_t I)
{
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < i; j++) h[j * I + i] = h[i * I + j];
}

/* Returns the sum of a[k] b[k] in double, from four partial sums. */
PLAIN static double plain_dot(const float *a, const float *b, int64_t n)
{
    double s[4] = {0};
    int64_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int c = 0; c < 4; c++) s[c] += (double)a[k + c] * (double)b[k + c];
    for (; k < n; k++) s[0] += (double)a[k] * (double)b[k];
    return s[0] + s[1] + (s[2] + s[3]);
}

/* Returns the sum of e h e^T over the rows e of d. d [O, I] is the error of a weight, and h [I, I]
 * is the Hessian. GPTQ minimizes this sum. */
PLAIN static double plain_objective(const float *d, const float *h, int64_t O, int64_t I)
{
    double sum = 0;
    for (int64_t o = 0; o < O; o++)
        for (int64_t i = 0; i < I; i++)
            if (d[o * I + i] != 0) sum += plain_dot(h + i * I, d + o * I, I) * (double)d[o * I + i];
    return sum;
}
#endif
