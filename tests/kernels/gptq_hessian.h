/* gptq_hessian.h - makes the Hessian for tests of gptq_factor and gptq_solve. */
#ifndef GPTQ_HESSIAN_H
#define GPTQ_HESSIAN_H
#include "kernel_test.h"
#include "plain.h"

/* Makes a damped Hessian h [I, I] = X^T X / n in the form that a modifier passes to gptq_factor.
 * Both triangles are set. X [n, I] has n = 2 I correlated rows. */
static inline void hessian_of(float *h, int64_t I)
{
    /* x: one row of X; y: that row divided by n; x owns the memory of both rows. */
    float *x = malloc((size_t)(2 * I) * sizeof *x), *y = x + I;
    assert_non_null(x);
    for (int64_t i = 0; i < I * I; i++) h[i] = 0;
    for (int64_t n = 0; n < 2 * I; n++) {
        float common = osh_rng_sym(SEED, 10, (uint64_t)n);
        for (int64_t i = 0; i < I; i++)
            x[i] = common + osh_rng_sym(SEED, 11, (uint64_t)(n * I + i));
        for (int64_t i = 0; i < I; i++) y[i] = x[i] / (float)(2 * I);
        plain_add_lower(h, x, y, I);
    }
    for (int64_t i = 0; i < I; i++) h[i * I + i] += 0.01f;
    plain_mirror(h, I);
    free(x);
}

/* Copies the Hessian of hessian_of to h [I, I]. The Hessian of each size is computed only once,
 * because the computation is slow with sanitizers. */
static inline void make_hessian(float *h, int64_t I)
{
    static struct { int64_t I; float *h; } made[16]; // own: at exit, `h` is not freed
    size_t k = 0, n = (size_t)(I * I) * sizeof *h;

    while (k < 15 && made[k].I && made[k].I != I) k++;
    if (made[k].I != I) {
        free(made[k].h);
        made[k].I = I, made[k].h = malloc(n);
        assert_non_null(made[k].h);
        hessian_of(made[k].h, I);
    }
    memcpy(h, made[k].h, n);
}
#endif
