/* gptq_hessian.h - the matrix that the tests of gptq_factor and gptq_solve begin with. */
#ifndef GPTQ_HESSIAN_H
#define GPTQ_HESSIAN_H
#include "kernel_test.h"

/* X^T X / n of n = 2 I correlated rows, damped: what a modifier hands to gptq_factor. Full symmetric. */
static inline void make_hessian(float *h, int64_t I)
{
    for (int64_t i = 0; i < I * I; i++) h[i] = 0;
    for (int64_t n = 0; n < 2 * I; n++) {
        float common = osh_rng_sym(SEED, 10, (uint64_t)n);
        for (int64_t i = 0; i < I; i++)
            for (int64_t j = 0; j <= i; j++) {
                float a = common + osh_rng_sym(SEED, 11, (uint64_t)(n * I + i)),
                      b = common + osh_rng_sym(SEED, 11, (uint64_t)(n * I + j));
                h[i * I + j] += a * b / (float)(2 * I);
            }
    }
    for (int64_t i = 0; i < I; i++) {
        h[i * I + i] += 0.01f;
        for (int64_t j = 0; j < i; j++) h[j * I + i] = h[i * I + j];
    }
}
#endif
