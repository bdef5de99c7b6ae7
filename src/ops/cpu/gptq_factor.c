/* gptq_factor.c - flip-Cholesky in place with LAPACK: flip, spotrf, strtri, turn by 180 degrees. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/kernel.h"

#include <lapacke.h>

/* J H J of a symmetric H of which the lower triangle is given: element (i, j) becomes (n-1-j, n-1-i). */
static void flip_lower(float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i && i + j < n - 1; j++) {
            float *p = &a[i * n + j], *q = &a[(n - 1 - j) * n + n - 1 - i], t = *p;
            *p = *q;
            *q = t;
        }
}

/* Upper triangle = the lower one turned by 180 degrees, lower = 0. */
static void turn_to_upper(float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            float v = a[i * n + j];
            if (i != j) a[i * n + j] = 0;
            if (i == j && i >= n - 1 - i) { // a diagonal element trades places with its mirror image
                float *mirror = &a[(n - 1 - i) * n + n - 1 - i];
                a[i * n + i] = *mirror;
                *mirror = v;
            } else if (i != j) {
                a[(n - 1 - i) * n + n - 1 - j] = v;
            }
        }
}

osh_status osh_gptq_factor_cpu(osh_ctx *cx, const osh_op_args *a)
{
    float *h = a->out[0]->data;
    int64_t n = a->out[0]->shape[0];

    (void)cx;
    osh_blas_init();
    flip_lower(h, n);
    /* LAPACK is column-major: our lower triangle is its upper one. */
    if (LAPACKE_spotrf_work(LAPACK_COL_MAJOR, 'U', (lapack_int)n, h, (lapack_int)n)) return OSH_E_NUMERIC;
    if (LAPACKE_strtri_work(LAPACK_COL_MAJOR, 'U', 'N', (lapack_int)n, h, (lapack_int)n)) return OSH_E_NUMERIC;
    for (int64_t i = 0; i < n; i++) // before the upper triangle is touched: after a failure it is the caller's
        if (osh_find_nonfinite(h + i * n, OSH_F32, i + 1) >= 0) return OSH_E_NUMERIC;
    turn_to_upper(h, n);
    return OSH_OK;
}
